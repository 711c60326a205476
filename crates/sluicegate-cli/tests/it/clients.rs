//! Clients of other languages against `sluice serve`: the programs of docs/protocol.md and
//! docs/budgets.md, and suites that send every command.
#![cfg(unix)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a suite says what it sent, a skipped test why"
)]

use crate::serving::{Folder, Serving, free_port};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROTOCOL: &str = include_str!("../../../../docs/protocol.md");
const BUDGETS: &str = include_str!("../../../../docs/budgets.md");
const SUITES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// The rules of the page about the protocol.
const PROTOCOL_RULES: &str = "[[rule]]\nname = \"reply\"\nlimit = \"sliding-log 5/60s\"\n";
/// The rules of the suites, under which nothing comes back while they run.
const SUITE_RULES: &str = "\
[[rule]]
name = \"reply\"
limit = \"sliding-log 5/h\"
[[rule]]
name = \"budget\"
limit = \"token-bucket 1/d burst=50\"
[[rule]]
name = \"exports\"
limit = \"concurrency 1 ttl=10min\"
";

/// The folder that `cargo xtask` installed a client into.
fn installed(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

fn python(folder: &Path) -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", folder);
    command
}

fn node_clients() -> PathBuf {
    installed("SLUICE_NODE_CLIENTS").expect("run this test with: cargo xtask integration")
}

/// What a program prints.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{command:?}:\n{stdout}{stderr}");
    stdout
}

/// The blocks of a page in a language.
fn blocks<'a>(page: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("```{language}\n");
    page.split("```\n\n").filter_map(move |part| part.split_once(&start)).map(|(_, block)| block)
}

/// The page's section about clients.
fn clients_section() -> &'static str {
    PROTOCOL.split("## From Python, Node.js\n").nth(1).unwrap().split("\n## ").next().unwrap()
}

/// Starts a server, and calls `run` with a function that makes a program use its port.
fn with_server(name: &str, rules: &str, run: impl FnOnce(&dyn Fn(&str) -> String)) {
    let folder = Folder::new(name);
    let mut server = Serving::start(&["--config", &folder.write("sluice.toml", rules)]);
    let address = server.resp();
    let port = address.rsplit(':').next().unwrap();
    run(&|program| {
        assert!(program.contains("6380"), "{program}");
        program.replace("6380", port)
    });
}

/// Runs the programs of the page about the protocol.
fn programs(language: &str, run: impl Fn(&str) -> String) {
    with_server(&format!("page-{language}"), PROTOCOL_RULES, |with_port| {
        let expected = blocks(clients_section(), "text").next().unwrap();
        let mut count = 0;
        for program in blocks(clients_section(), language) {
            assert_eq!(run(&with_port(program)), expected, "{program}");
            count += 1;
        }
        assert!(count > 0, "the page has no program in {language}");
    });
}

/// Runs a suite, which prints a line for each protocol or client.
fn suite(name: &str, command: &mut Command) {
    let folder = Folder::new(name);
    let file = folder.write("sluice.toml", SUITE_RULES);
    let mut server = Serving::spawn(
        Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg("serve")
            .args(free_port())
            .args(["--config", &file])
            .env("SLUICE_PASSWORD", "sesame"),
    );
    let address = server.resp();
    command.env("SLUICE_PORT", address.rsplit(':').next().unwrap());
    command.env("SLUICE_COMMANDS", format!("{SUITES}/commands.json"));
    let said = printed(command);
    assert!(said.contains(" commands"), "{said}");
    println!("{}", said.trim_end());
}

/// Without `cargo xtask ci` a test is skipped and says so, as those of Valkey are.
fn redis_py() -> Option<PathBuf> {
    let folder = installed("REDIS_PY");
    if folder.is_none() {
        eprintln!("REDIS_PY is not set: skipped; `cargo xtask ci` installs redis-py and sets it");
    }
    folder
}

#[test]
fn redis_py_prints_what_the_page_shows() {
    let Some(folder) = redis_py() else { return };
    programs("python", |program| printed(python(&folder).args(["-c", program])));
}

/// The program of the page, and the same with its stream: one that fits into the budget, and one
/// that is ended when the budget is used up.
#[test]
fn redis_py_keeps_the_budgets_of_the_page() {
    const STREAMS: &str = "
def streamed(user, chunks):
    receipt = reserve(user, \"team:8\", 500)
    sent = sum(1 for _ in stream(receipt, [(100, \"chunk\")] * chunks))
    tokens = sent * 100
    settled = server.execute_command(\"RL.SETTLE\", receipt, 1, tokens, tokens, tokens * PRICE)
    return sent, settled


for user, chunks in (\"user:43\", 30), (\"user:44\", 300):
    print(*streamed(user, chunks), server.execute_command(\"RL.USAGE\", \"spend\", \"team:8\")[0][2])
";
    let Some(folder) = redis_py() else { return };
    let mut programs = blocks(BUDGETS, "python");
    let (program, stream) = (programs.next().unwrap(), programs.next().unwrap());
    let shown = blocks(BUDGETS, "text").next().unwrap();
    // Nothing comes back while it runs.
    let rules = blocks(BUDGETS, "toml").next().unwrap().replace("20000/min", "1/d burst=20000");
    with_server("page-budgets", &rules, |with_port| {
        let program = with_port(&format!("{program}\n\n{stream}\n{STREAMS}"));
        let expected = format!("{shown}30 1 9000\n200 1 69000\n");
        assert_eq!(printed(python(&folder).args(["-c", &program])), expected);
    });
}

#[test]
#[ignore = "cargo xtask integration installs the client and runs this"]
fn redis_py_sends_every_command() {
    let folder = installed("REDIS_PY").expect("run this test with: cargo xtask integration");
    suite("suite-redis-py", python(&folder).arg(format!("{SUITES}/redis_py.py")));
}

#[test]
#[ignore = "cargo xtask integration installs the clients and runs this"]
fn clients_for_node_print_what_the_page_shows() {
    let folder = node_clients();
    programs("js", |program| {
        printed(Command::new("node").current_dir(&folder).args(["--input-type=module", "--eval", program]))
    });
}

/// Modules are looked for beside a script, so the scripts are copied to the clients.
fn node_suite(script: &str) {
    let folder = node_clients();
    let scripts = folder.join(format!("{script}-{}", std::process::id()));
    std::fs::create_dir_all(&scripts).unwrap();
    for file in ["table.mjs", script] {
        std::fs::copy(Path::new(SUITES).join(file), scripts.join(file)).unwrap();
    }
    suite(script, Command::new("node").arg(scripts.join(script)));
    std::fs::remove_dir_all(scripts).unwrap();
}

#[test]
#[ignore = "cargo xtask integration installs the client and runs this"]
fn ioredis_sends_every_command() {
    node_suite("ioredis.mjs");
}

#[test]
#[ignore = "cargo xtask integration installs the client and runs this"]
fn node_redis_sends_every_command() {
    node_suite("node_redis.mjs");
}
