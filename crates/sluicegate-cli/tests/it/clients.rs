//! Clients of other languages against `sluice serve`: the programs of docs/protocol.md, and suites
//! that send every command.
#![cfg(unix)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a suite says what it sent, a skipped test why"
)]

use crate::serving::{Folder, Serving, free_port};
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/protocol.md");
const SUITES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// The rules of the page, and those of the suites, under which nothing comes back while they run.
const PAGE_RULES: &str = "[[rule]]\nname = \"reply\"\nlimit = \"sliding-log 5/60s\"\n";
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

/// The section's blocks in a language.
fn blocks(language: &str) -> impl Iterator<Item = &'static str> {
    let section = PAGE.split("## From Python, Node.js\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let start = format!("```{language}\n");
    section.split("```\n\n").filter_map(move |part| part.split_once(&start)).map(|(_, block)| block)
}

/// Runs programs of the page, with the port of a server instead of the default one.
fn programs(language: &str, run: impl Fn(&str) -> String) {
    let folder = Folder::new(&format!("page-{language}"));
    let mut server = Serving::start(&["--config", &folder.write("sluice.toml", PAGE_RULES)]);
    let address = server.resp();
    let port = address.rsplit(':').next().unwrap();
    let expected = blocks("text").next().unwrap();
    let mut count = 0;
    for program in blocks(language) {
        assert!(program.contains("6380"), "{program}");
        assert_eq!(run(&program.replace("6380", port)), expected, "{program}");
        count += 1;
    }
    assert!(count > 0, "the page has no program in {language}");
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

#[test]
fn redis_py_prints_what_the_page_shows() {
    // Without `cargo xtask ci` the test is skipped and says so, as those of Valkey are.
    let Some(folder) = installed("REDIS_PY") else {
        eprintln!("REDIS_PY is not set: skipped; `cargo xtask ci` installs redis-py and sets it");
        return;
    };
    programs("python", |program| printed(python(&folder).args(["-c", program])));
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
