//! `sluice serve` as a process: how it starts and why not, what signals do, and what floods cannot
//! do.
#![cfg(unix)]

use crate::serving::{Folder, Serving, TEST_TIMEOUT, client, free_port, ping};
use crate::{sluice, stderr, stdout};
use redis_testkit::{Options, Server, until};
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::Instant;

/// `sluice check`'s line.
fn check(address: &str, rule: &str, key: &str) -> String {
    let output = sluice(&["check", rule, key, "--server", address], "");
    stdout(&output) + &stderr(&output)
}

/// A file with one rule.
fn rule(limit: &str) -> String {
    format!("[[rule]]\nname = \"reply\"\nlimit = \"{limit}\"\n")
}

#[test]
fn it_does_not_start_where_others_could_reach_it() {
    for (arguments, missing) in [
        (
            &["--resp", "0.0.0.0:0", "--http", "off"][..],
            "RESP on 0.0.0.0:0 would be reachable from other machines",
        ),
        (
            &["--resp", "127.0.0.1:0", "--http", "0.0.0.0:0"],
            "HTTP on 0.0.0.0:0 would be reachable from other machines",
        ),
        (
            &["--resp", "off", "--http", "off"],
            "every protocol is off, so no client could connect; turn one on: resp",
        ),
    ] {
        let output = sluice(&[&["serve"], arguments].concat(), "");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with("sluice: ") && said.contains(missing) && said.lines().count() == 1,
            "{said}"
        );
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["serve", "--resp", "0.0.0.0:0", "--http", "off", "--insecure"]);
    let mut insecure = Serving::spawn(&mut command);
    insecure.wait_for("listening for RESP on 0.0.0.0:");
}

#[test]
fn a_bad_file_is_exit_2_with_a_line_for_each_mistake() {
    let folder = Folder::new("serve-bad");
    let file = folder.write("sluice.toml", "[server]\nrsep = \"off\"\n[memory]\nmax_keys = 0\n");
    let output = sluice(&["serve", "--config", &file], "");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        format!(
            "sluice: {file}:2:1: [server]: unknown field \"rsep\"; did you mean resp?\n\
             sluice: {file}:4:12: max_keys: 0 is out of bounds; use a whole number from 1 to 1000000000\n"
        )
    );
}

#[test]
fn keys_keep_what_they_have_used_when_the_file_is_read_again() {
    let folder = Folder::new("serve-reload");
    let file = folder.write("sluice.toml", &rule("sliding-log 5/1h"));
    let mut server = Serving::start(&["--config", &file]);
    let address = server.resp();
    assert!(check(&address, "reply", "user:42").starts_with("allowed: 4 of 5 remaining"));
    folder.write("sluice.toml", &format!("{}{}", rule("sliding-log 5/1h"), "[log]\nlevel = \"debug\"\n"));
    server.signal("-HUP");
    server.wait_for("configuration reloaded: 1 rule");
    assert!(check(&address, "reply", "user:42").starts_with("allowed: 3 of 5 remaining"));
}

#[test]
fn keys_keep_what_they_have_used_when_the_numbers_of_a_rule_change() {
    let folder = Folder::new("serve-change");
    let file = folder.write("sluice.toml", &rule("sliding-log 5/1h"));
    let mut server = Serving::start(&["--config", &file]);
    let address = server.resp();
    assert!(check(&address, "reply", "user:42").starts_with("allowed: 4 of 5 remaining"));
    folder.write("sluice.toml", &rule("sliding-log 10/1h"));
    server.signal("-HUP");
    server.wait_for("configuration reloaded: 1 rule");
    let said = check(&address, "reply", "user:42");
    assert!(said.starts_with("allowed: 8 of 10 remain"), "{said}");
}

#[test]
fn a_bad_file_is_refused_and_the_old_goes_on() {
    let folder = Folder::new("serve-refused");
    let file = folder.write("sluice.toml", &rule("sliding-log 5/1h"));
    let mut server = Serving::start(&["--config", &file]);
    let address = server.resp();
    folder.write("sluice.toml", &rule("sliding-lok 9/1h"));
    server.signal("-HUP");
    let line = server.wait_for("configuration rejected, keeping the previous one: ");
    assert!(line.contains(&format!("{file}:3:9: rule reply: sliding-lok 9/1h: ")), "{line}");
    assert!(check(&address, "reply", "user:42").starts_with("allowed: 4 of 5 remaining"));
    // What needs a restart is named; the rest is taken up all the same.
    let more = "[server]\nthreads = 1\nidle_timeout = \"9s\"\n[[rule]]\nname = \"new\"\nlimit = \"sliding-log 1/1h\"\n";
    folder.write("sluice.toml", more);
    server.signal("-HUP");
    let line = server.wait_for("need a restart: ");
    assert!(line.ends_with("need a restart: threads, idle_timeout"), "{line}");
    assert!(check(&address, "new", "user:42").starts_with("allowed: 0 of 1 remain"));
    assert!(check(&address, "reply", "user:42").starts_with("sluice: no rule is called \"reply\""));
}

#[test]
fn certificates_are_read_again_too() {
    let folder = Folder::new("serve-certs");
    let [cert, key] = folder.certificate();
    let mut server = Serving::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let address = server.resp();
    let asked =
        || sluice(&["check", "sliding-log 5/1h", "a", "--server", &address, "--ca", &cert], "").status.code();
    assert_eq!(asked(), Some(0));
    let old_key = std::fs::read_to_string(&key).unwrap();
    folder.certificate();
    assert_eq!(asked(), Some(2), "the new certificate was taken up before it was said");
    let new_key = std::fs::read_to_string(&key).unwrap();
    // A key that does not fit is refused, whatever else the file says.
    folder.write("key.pem", &old_key);
    server.signal("-HUP");
    server.wait_for("configuration rejected, keeping the previous one: ");
    folder.write("key.pem", &new_key);
    server.signal("-HUP");
    server.wait_for("configuration reloaded");
    assert_eq!(asked(), Some(0));
}

#[test]
fn what_has_arrived_is_answered_before_it_exits_0() {
    const QUESTIONS: usize = 1000;
    for signal in ["-TERM", "-INT"] {
        let mut server = Serving::start(&[]);
        let mut client = client(&server.resp());
        ping(&mut client).unwrap();
        client.write_all("PING\r\n".repeat(QUESTIONS).as_bytes()).unwrap();
        server.signal(signal);
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert_eq!(said, "+PONG\r\n".repeat(QUESTIONS));
        server.wait_for("stopped");
        assert_eq!(server.end().code(), Some(0));
    }
}

#[test]
fn a_second_signal_does_not_wait_for_clients() {
    let folder = Folder::new("serve-second");
    let file = folder.write("sluice.toml", "[server]\nunread_timeout = \"1h\"\nrequest_timeout = \"1h\"\n");
    let mut server = Serving::start(&["--config", &file]);
    let mut client = client(&server.resp());
    // A client that asks and never reads, until nothing more fits anywhere, also for a server that
    // is slow on a busy machine.
    client.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    let (questions, mut timeouts) = ("PING\r\n".repeat(10_000), 0);
    while timeouts < 3 {
        timeouts = if client.write(questions.as_bytes()).is_ok() { 0 } else { timeouts + 1 };
    }
    server.signal("-TERM");
    server.wait_for("stopping: answering pending requests");
    server.signal("-TERM");
    server.wait_for("stopped by a second signal");
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn the_log_can_be_json_and_can_be_off() {
    let mut server = Serving::start(&["--log-format", "json"]);
    let line = server.wait_for("listening for RESP on ");
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(json["message"].as_str().unwrap().starts_with("listening for RESP on 127.0.0.1:"));
    server.signal("-TERM");
    assert_eq!(server.end().code(), Some(0));
    let quiet = Serving::start(&["--log", "off"]);
    quiet.signal("-0");
}

/// The accept loop outlives the system's having no more files for it, which ended other servers for
/// good.
#[test]
fn too_few_files_stop_the_server_only_as_long_as_they_last() {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 48 && exec \"$0\" serve \"$@\"", env!("CARGO_BIN_EXE_sluice")])
        .args(free_port());
    let mut server = Serving::spawn(&mut command);
    server.wait_for("the system allows 48");
    let address = server.resp();
    let begun = Instant::now();
    // More than it can hold: connections_max was lowered to what the system allows.
    let flood: Vec<_> = (0..100).map(|_| client(&address)).collect();
    server.wait_for("connections_max is reached, and it had sent no request");
    drop(flood);
    while ping(&mut client(&address)).is_err() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the flood is over, and the server takes no client");
    }
    server.signal("-TERM");
    server.wait_for("stopped");
    let logged = server.log.iter().filter(|line| line.contains("cannot accept clients")).count();
    let most = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    assert!(logged <= most, "logged {logged} times in {most} s");
    assert_eq!(server.end().code(), Some(0));
}

/// The configuration is a FIFO, which is read for as long as its writer likes.
#[test]
fn signals_are_queued_during_a_start_and_a_reload_delays_nothing() {
    let folder = Folder::new("serve-fifo");
    let path = folder.write("unused", "");
    let path = path.replace("unused", "sluice.toml");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut server = Serving::start(&["--config", &path]);
    // Opening it waits until the server reads it.
    let mut config = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    server.signal("-HUP");
    config.write_all(b"[[rule]]\nname = \"reply\"\nlimit = \"sliding-log 5/60s\"\n").unwrap();
    drop(config);
    let address = server.resp();
    server.wait_for("1 rule loaded");
    // The queued reload opens the FIFO again, and waits for a writer.
    let _config = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert!(ping(&mut client(&address)).is_ok());
    server.signal("-TERM");
    server.wait_for("stopped");
    assert_eq!(server.end().code(), Some(0));
}

/// Both the start and a reload read a FIFO without a writer.
#[test]
fn files_that_are_never_read_block_neither_a_stop_nor_later_reloads() {
    let folder = Folder::new("serve-hanging");
    let path = folder.write("sluice.toml", "");
    let fifo = path.replace("sluice.toml", "fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let starting = Serving::start(&["--config", &fifo]);
    // It opens the FIFO only after it has begun to listen for signals.
    let config = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    starting.signal("-TERM");
    assert_eq!(starting.end().code(), Some(0));
    drop(config);
    let mut server = Serving::start(&["--config", &path]);
    server.resp();
    std::fs::rename(&fifo, &path).unwrap();
    server.signal("-HUP");
    server.wait_for("keeping the previous one: reading the files took longer than 10 s");
    std::fs::remove_file(&path).unwrap();
    folder.write("sluice.toml", "[[rule]]\nname = \"reply\"\nlimit = \"sliding-log 5/60s\"\n");
    server.signal("-HUP");
    server.wait_for("configuration reloaded: 1 rule");
}

#[test]
fn a_password_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("serve-password");
    let file = folder.write("password", "open sesame\n");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut server = Serving::start(&["--password-file", &file]);
    server.wait_for(&format!("run chmod 600 {file}"));
    let empty = folder.write("empty", "\n");
    let output = sluice(&["serve", "--password-file", &empty], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the password is empty"), "{}", stderr(&output));
}

#[test]
fn at_debug_the_log_names_who_is_closed_for_a_protocol_error() {
    let mut server = Serving::start(&["--log", "debug"]);
    let address = server.resp();
    let mut stream = client(&address);
    let peer = stream.local_addr().unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let line =
        server.wait_for("closed a RESP connection after a protocol error: this port speaks RESP, not HTTP");
    assert!(line.contains(&format!("peer={peer}")), "{line}");
}

/// The store's policy is changed while the server runs, and the connection broken: the warning is
/// logged once for each connection.
#[test]
fn a_store_that_evicts_keys_is_logged_and_counted() {
    let redis = Server::start(&Options::redis());
    let set = |setting, value| assert_eq!(redis.cli(&["CONFIG", "SET", setting, value]), "OK");
    set("maxmemory-policy", "allkeys-lru");
    set("maxmemory", "100mb");
    let mut serving = Serving::start(&["--store", &redis.url()]);
    let mut client = client(&serving.resp());
    let warning = "its maxmemory-policy is allkeys-lru. An evicted key starts again with its whole limit; set \
                   maxmemory-policy noeviction";
    // It may have been logged before the address was.
    if !serving.log.iter().any(|line| line.contains(warning)) {
        serving.wait_for(warning);
    }
    assert_eq!(redis.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]), "1");
    serving.wait_for(warning);
    let mut evicted = || {
        client.write_all(b"INFO store\r\n").unwrap();
        let mut reply = [0; 4096];
        let length = client.read(&mut reply).unwrap();
        let info = String::from_utf8_lossy(&reply[..length]).into_owned();
        info.lines().find_map(|line| line.strip_prefix("store_evicted_keys:")?.parse::<u64>().ok()).unwrap()
    };
    assert_eq!(evicted(), 0);
    let of_redis = || redis.info("evicted_keys").parse::<u64>().unwrap();
    assert_eq!(redis.cli(&["DEBUG", "POPULATE", "1000", "user", "1000"]), "OK");
    set("maxmemory", "1");
    // Every command that may write evicts, until nothing is left.
    until("all keys are evicted", || {
        redis.cli(&["SET", "other", "1"]);
        of_redis() >= 1_000
    });
    until("the server counts the evicted keys", || evicted() == of_redis());
    serving.wait_for("the store evicted 1");
}
