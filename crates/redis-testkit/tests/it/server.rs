//! A single server.

use redis_testkit::{Client, Options, Reply, Server, until};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, path::Path, thread};

#[test]
fn a_redis_server_starts_answers_and_stops_on_drop() {
    starts_answers_and_stops(&Options::redis());
}

#[test]
fn a_valkey_server_starts_answers_and_stops_on_drop() {
    let Some(options) = Options::valkey() else { return };
    starts_answers_and_stops(&options);
}

fn starts_answers_and_stops(options: &Options) {
    let server = Server::start(options);
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert!(server.memory() > 100_000);
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    let folder = server.cli(&["CONFIG", "GET", "dir"]).lines().nth(1).map(str::to_owned).expect("a folder");
    let (port, process) = (server.port(), server.process().expect("a process"));
    assert!(Path::new(&folder).exists());
    drop(server);
    assert!(Client::connect(port).is_err());
    assert!(!is_alive(process));
    assert!(!Path::new(&folder).exists());
}

#[test]
fn a_killed_server_restarts_empty_on_the_same_port() {
    let server = Server::start(&Options::redis());
    let url = server.url();
    assert_eq!(server.cli(&["SET", "a", "1"]), "OK");
    server.kill();
    assert!(server.client().is_err());
    server.restart();
    assert_eq!(server.url(), url);
    assert_eq!(server.ask(&["GET", "a"]), Reply::Nil);
}

#[test]
fn with_append_only_a_killed_server_keeps_its_data() {
    let server = Server::start(&Options::redis().append_only());
    assert_eq!(server.cli(&["SET", "a", "1"]), "OK");
    server.restart();
    assert_eq!(server.cli(&["GET", "a"]), "1");
}

#[test]
fn a_stopped_server_is_silent_until_it_continues() {
    let server = Server::start(&Options::redis());
    let mut client = server.client().expect("a connection");
    server.stop();
    let asked = thread::spawn(move || client.ask(&["PING"]).expect("an answer after SIGCONT").to_string());
    // Long enough for any reply; this is the one test that waits for nothing to happen.
    thread::sleep(Duration::from_millis(200));
    assert!(!asked.is_finished());
    server.cont();
    assert_eq!(asked.join().expect("no panic"), "PONG");
}

#[test]
fn passwords_and_users_are_required() {
    let server = Server::start(&Options::redis().password("secret").user("app", "word", "~app:* +get"));
    assert_eq!(server.url(), format!("redis://app:word@127.0.0.1:{}", server.port()));
    assert_eq!(server.cli(&["PING"]), "PONG");
    let mut client = Client::connect(server.port()).expect("a connection");
    let mut ask = |words: &[&str]| client.ask(words).expect("an answer").to_string();
    assert!(ask(&["PING"]).starts_with("NOAUTH"));
    assert_eq!(ask(&["AUTH", "app", "word"]), "OK");
    assert_eq!(ask(&["GET", "app:1"]), "");
    assert!(ask(&["GET", "other"]).starts_with("NOPERM"));
    assert!(ask(&["SET", "app:1", "1"]).starts_with("NOPERM"));
}

#[test]
fn a_server_with_tls_uses_it_on_its_port() {
    let server = Server::start(&Options::redis().tls());
    assert!(server.url().starts_with("rediss://"));
    let certificate = env::temp_dir().join(format!("redis-testkit-{}.pem", server.port()));
    fs::write(&certificate, server.certificate()).expect("a file");
    let port = server.port().to_string();
    let mut command = Command::new("redis-cli");
    command.args(["--tls", "-h", "127.0.0.1", "-p", &port, "--cacert"]).arg(&certificate).arg("PING");
    let output = command.output().expect("redis-cli");
    let _ = fs::remove_file(&certificate);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "PONG", "{output:?}");
}

#[test]
fn a_full_server_rejects_writes() {
    let server = Server::start(&Options::redis().max_memory(1));
    assert!(server.cli(&["SET", "a", "1"]).starts_with("OOM"));
}

#[test]
fn cpu_time_grows_with_work() {
    let server = Server::start(&Options::redis());
    let before = server.cpu_time();
    server.cli(&["EVAL", "for i = 1, 3000000 do local x = i % 7 end return 1", "0"]);
    assert!(server.cpu_time() >= before + Duration::from_millis(2));
}

/// Set in the process that is killed: this test, run again.
const DIES: &str = "REDIS_TESTKIT_TEST_DIES";

#[test]
fn a_server_does_not_outlive_a_killed_test_process() {
    if env::var_os(DIES).is_some() {
        let server = Server::start(&Options::redis());
        let folder = env::var(DIES).expect("a path");
        fs::write(&folder, server.process().expect("a process").to_string()).expect("a file");
        loop {
            thread::park();
        }
    }
    let note = env::temp_dir().join(format!("redis-testkit-note-{}", std::process::id()));
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", "server::a_server_does_not_outlive_a_killed_test_process"]);
    command.env(DIES, &note).stdout(Stdio::null()).stderr(Stdio::null());
    let mut dying = command.spawn().expect("this program once more");
    let noted = || fs::read_to_string(&note).ok().and_then(|text| text.parse::<u32>().ok());
    until("the other process has started a server", || noted().is_some());
    let process = noted().expect("a process");
    assert!(is_alive(process));
    dying.kill().expect("killed");
    dying.wait().expect("ended");
    until("the server has ended", || !is_alive(process));
    let _ = fs::remove_file(&note);
}

fn is_alive(process: u32) -> bool {
    // A process that has ended but was not waited for is a zombie, `Z`: the init process of a
    // container may never wait.
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}
