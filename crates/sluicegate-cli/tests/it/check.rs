//! `sluice check` against a running server.

use crate::serving::{Folder, Serving, free_port};
use crate::{sluice, stderr, stdout};
use std::io::Write as _;
use std::process::{Command, Output};

/// Runs `sluice check` against a server, and tells the exit code and what it printed.
fn check(address: &str, arguments: &[&str]) -> (Option<i32>, String) {
    reported(&sluice(&[&["check", "--server", address], arguments].concat(), ""))
}

fn reported(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), stdout(output) + &stderr(output))
}

#[test]
fn the_exit_code_tells_the_decision_and_the_line_the_rest() {
    let folder = Folder::new("check");
    let config = folder.write(
        "sluice.toml",
        "[[rule]]\nname = \"reply\"\nlimit = \"sliding-log 5/1h\"\n[rule.keys]\nbad = \"blocked\"\n\
         [[rule]]\nname = \"try\"\nlimit = \"sliding-log 1/1h\"\nshadow = true\n",
    );
    let mut server = Serving::start(&["--config", &config]);
    let address = server.resp();
    for (arguments, code, line) in [
        (&["reply", "user:42", "--peek"][..], 0, "would be allowed: 5 of 5 remaining\n"),
        (&["reply", "user:42"], 0, "allowed: 4 of 5 remaining, resets in 1 h\n"),
        (&["reply", "user:42", "--cost", "4"], 0, "allowed: 0 of 5 remaining, resets in 1 h\n"),
        (
            &["reply", "user:9", "--cost", "6"],
            1,
            "denied by sliding-log 5/h: retrying will not help, a call may cost at most 5\n",
        ),
        (&["reply", "bad"], 1, "denied: the key is blocked\n"),
        (&["token-bucket 2/1h", "user:42", "--cost", "2"], 0, "allowed: 0 of 2 remaining, resets in 1 h\n"),
        (&["try", "a"], 0, "allowed: 0 of 1 remaining, resets in 1 h\n"),
    ] {
        assert_eq!(check(&address, arguments), (Some(code), line.to_owned()), "{arguments:?}");
    }
    let (code, line) = check(&address, &["reply", "user:42"]);
    assert_eq!(code, Some(1));
    assert!(line.starts_with("denied by sliding-log 5/h: retry in "), "{line}");
    let (code, line) = check(&address, &["try", "a"]);
    assert_eq!(code, Some(0));
    assert!(line.starts_with("allowed by a shadow rule, denied by sliding-log 1/h: "), "{line}");
}

#[test]
fn a_limit_that_gives_leases_is_not_checked_but_can_be_looked_at() {
    let mut server = Serving::start(&[]);
    let address = server.resp();
    assert_eq!(
        check(&address, &["concurrency 3 ttl=30s", "acme"]),
        (Some(2), "sluice: a concurrency limit grants leases, which a check cannot release; use RL.ACQUIRE or POST /v1/acquire\n".into())
    );
    assert_eq!(
        check(&address, &["concurrency 3 ttl=30s", "acme", "--peek"]),
        (Some(0), "would be allowed: 3 of 3 remaining\n".into())
    );
}

#[test]
fn json_is_for_programs() {
    let mut server = Serving::start(&[]);
    let address = server.resp();
    let (code, line) = check(&address, &["sliding-log 5/1h", "user:42", "--cost", "9", "--json"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        line,
        "{\"allowed\":false,\"limit\":5,\"remaining\":5,\"retry_after_ms\":null,\"never\":true,\"reset_after_ms\":0,\
         \"delay_ms\":0,\"denied_by\":\"sliding-log 5/h\"}\n"
    );
    let (code, line) = check(&address, &["sliding-log 5/1h", "user:42", "--json"]);
    assert_eq!(code, Some(0));
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&json["remaining"], &json["reset_after_ms"]), (&4.into(), &3_600_000.into()));
}

#[test]
fn what_cannot_be_found_out_is_exit_2() {
    let mut server = Serving::start(&[]);
    let address = server.resp();
    let (code, line) = check(&address, &["repyl", "user:42"]);
    assert_eq!(code, Some(2));
    assert!(line.starts_with("sluice: no rule is called \"repyl\""), "{line}");
    let (code, line) = check(&address, &["sliding-log", "5/60s", "user:42"]);
    assert_eq!((code, line.contains("quote the limit")), (Some(2), true), "{line}");
    drop(server);
    let (code, line) = check(&address, &["reply", "user:42"]);
    assert_eq!(code, Some(2));
    assert!(line.starts_with(&format!("sluice: cannot connect to {address}: ")), "{line}");
}

#[test]
fn something_else_that_listens_is_not_believed() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let says: [&[u8]; 3] = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n", b"*7\r\n:1\r\n"];
    let other = std::thread::spawn(move || {
        for said in says {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(said).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the client leaves, so that its question is not answered by a reset.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    for reason in ["it does not speak RESP", "does not reply like sluice serve", "it closed the connection"] {
        let (code, line) = check(&address, &["reply", "user:42"]);
        assert_eq!(code, Some(2));
        assert!(line.contains(reason), "{reason}: {line}");
    }
    other.join().unwrap();
}

#[test]
fn a_password_is_said_and_never_as_a_flag() {
    let folder = Folder::new("check-password");
    let file = folder.write("password", "open sesame\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    let mut server =
        Serving::spawn(command.arg("serve").args(free_port()).env("SLUICE_PASSWORD", "open sesame"));
    let address = server.resp();
    let (code, line) = check(&address, &["sliding-log 5/60s", "user:42"]);
    assert_eq!(code, Some(2));
    assert!(line.contains("NOAUTH") && line.contains("SLUICE_PASSWORD"), "{line}");
    assert_eq!(check(&address, &["sliding-log 5/60s", "user:42", "--password-file", &file]).0, Some(0));
    for (password, code) in [("open sesame", 0), ("open", 2)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args(["check", "--server", &address, "sliding-log 5/60s", "user:42"]);
        let output = command.env("SLUICE_PASSWORD", password).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{password}: {}", reported(&output).1);
    }
}

#[test]
fn a_password_does_not_leave_this_machine_unencrypted() {
    // An address for documentation, which is not assigned; the command does not try it.
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["check", "--server", "192.0.2.7:6380", "reply", "user:42"]);
    let output = command.env("SLUICE_PASSWORD", "open sesame").output().unwrap();
    let (code, line) = reported(&output);
    assert_eq!(code, Some(2));
    assert!(line.starts_with("sluice: the password would go to 192.0.2.7:6380 unencrypted"), "{line}");
    assert!(line.contains("--ca FILE"), "{line}");
}

#[test]
fn of_two_passwords_none_is_chosen() {
    let folder = Folder::new("two-passwords");
    // Without TLS it would not start there in any case.
    let file = folder.write("password", "open sesame\n");
    let flag = ["--password-file", file.as_str()];
    for (flags, variable, other) in
        [(&flag[..], None, "--password-file"), (&[], Some(file.as_str()), "SLUICE_PASSWORD_FILE")]
    {
        for subcommand in
            [&["check", "reply", "user:42"][..], &["serve", "--resp", "0.0.0.0:0", "--http", "off"]]
        {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
            command.args(subcommand).args(flags).env("SLUICE_PASSWORD", "open sesame");
            command.envs(variable.map(|file| ("SLUICE_PASSWORD_FILE", file)));
            let (code, line) = reported(&command.output().unwrap());
            assert_eq!(code, Some(2), "{line}");
            assert!(line.starts_with(&format!("sluice: SLUICE_PASSWORD: {other} is set too; ")), "{line}");
        }
    }
}

#[test]
fn tls_is_spoken_with_a_certificate_to_trust() {
    let folder = Folder::new("check-tls");
    let [cert, key] = folder.certificate();
    let mut server = Serving::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let address = server.resp();
    assert_eq!(check(&address, &["sliding-log 5/60s", "user:42", "--ca", &cert]).0, Some(0));
    let (code, line) = check(&address, &["sliding-log 5/60s", "user:42", "--ca", &key]);
    assert_eq!((code, line.contains("not a certificate")), (Some(2), true), "{line}");
    assert_eq!(check(&address, &["sliding-log 5/60s", "user:42"]).0, Some(2));
}

#[test]
fn help_shows_examples() {
    for (command, example) in [
        ("check", "sluice check reply user:42"),
        ("serve", "sluice serve --config sluice.toml"),
        ("validate", "sluice validate sluice.toml"),
    ] {
        assert!(stdout(&sluice(&[command, "--help"], "")).contains(example), "{command}");
    }
}
