//! `sluice validate`: a file is checked and explained.
#![cfg(unix)]

use crate::serving::Folder;
use crate::{sluice, stderr, stdout};

#[test]
fn rules_are_explained_in_plain_words() {
    let folder = Folder::new("validate");
    let file = folder.write(
        "sluice.toml",
        r#"
[[rule]]
name = "reply"
limit = "sliding-log 5/60s"

[[rule]]
name = "exports"
limit = "concurrency 10 ttl=30s"
[rule.keys]
"acme" = "concurrency 20 ttl=30s"

[[rule]]
name = "api"
limit = ["token-bucket 10/s burst=50", "fixed-window 1000/day"]
on_store_failure = "local"
shadow = true
[rule.keys]
"partner-7" = "token-bucket 100/s burst=500"
"health-check" = "unlimited"
"203.0.113.9" = "blocked"
"#,
    );
    let output = sluice(&["validate", &file], "");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for part in [
        "rule reply\nsliding-log 5/min\nWhat it does   Logs every call of the last 1 min",
        "Worst case     5 in any 1 min.",
        "rule exports\nconcurrency 10 ttl=30s\nWhat it does   Grants leases for up to 10 units at once.",
        "Exception      acme has concurrency 20 ttl=30s instead.",
        "rule api\ntoken-bucket 10/s burst=50\n",
        "\nfixed-window 1000/d\n",
        "Together       A call is charged to all of these limits",
        "Exception      partner-7 has token-bucket 100/s burst=500 instead.",
        "Exception      health-check is always allowed.",
        "Exception      203.0.113.9 is never allowed.",
        "Shadow         Denials are counted, but every call is allowed.",
        "Failure        While the shared store is unavailable, each server decides from its own memory.",
        ": OK, 3 rules\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn mistakes_are_lines_with_their_place() {
    let folder = Folder::new("validate-bad");
    let file = folder.write("sluice.toml", "[[rule]]\nname = \"a\"\nlimit = \"pacer\"\n[lgo]\n");
    let output = sluice(&["validate", &file], "");
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    let said = stderr(&output);
    let mut lines = said.lines();
    assert!(lines.next().unwrap().starts_with(&format!("sluice: {file}:3:9: rule a: pacer: ")), "{said}");
    assert_eq!(
        lines.next(),
        Some(format!("sluice: {file}:4:2: unknown table \"lgo\"; did you mean log?").as_str())
    );
    assert_eq!(sluice(&["validate", "no/such.toml"], "").status.code(), Some(2));
}

/// What a command says without its log, and its exit code.
fn said(arguments: &[&str]) -> (Option<i32>, String) {
    let output = sluice(arguments, "");
    let said = stderr(&output);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("sluice: ")).collect();
    (output.status.code(), lines.join("\n"))
}

#[test]
fn validate_rejects_what_serve_rejects() {
    let folder = Folder::new("validate-serve");
    let [cert, key] = folder.certificate();
    let short = folder.write("short", "fifteen bytes..\n");
    let long = folder.write("long", "at least sixteen bytes\n");
    let empty = folder.write("empty", "\n");
    let exposed = "[server]\nresp = \"0.0.0.0:0\"\nhttp = \"off\"\n";
    let tls = format!("tls_cert = \"{cert}\"\ntls_key = \"{key}\"\n");
    let starting = "[[rule]]\nname = \"a\"\nlimit = \"token-bucket 1/s initial=0\"\n";
    // The last column: whether the files that are named have to be read to see it.
    for (file, reason, in_files) in [
        ("[server]\nresp = \"off\"\nhttp = \"off\"\n".into(), "every protocol is off", false),
        ("[server]\nresp = \"no such host:1\"\n".into(), "no such host", false),
        (exposed.into(), "without password and TLS", false),
        (format!("{exposed}password_file = \"{long}\"\n"), "without TLS", false),
        (format!("{exposed}{tls}"), "without password", false),
        (format!("{exposed}{tls}password_file = \"{short}\"\n"), "fewer than 16 bytes", true),
        (format!("{exposed}{tls}password_file = \"{empty}\"\n"), "the password is empty", true),
        ("[server]\npassword_file = \"no/such\"\n".into(), "no/such: cannot read the password", true),
        ("[server]\ntls_cert = \"no/such\"\ntls_key = \"no/such\"\n".into(), "no/such: ", true),
        (format!("[server]\ntls_cert = \"{key}\"\ntls_key = \"{cert}\"\n"), "key.pem: ", true),
        (format!("[server]\ntls_cert = \"{cert}\"\n"), "the key is missing", false),
        ("[store]\nurl = \"redis://host:port\"\n".into(), "port", false),
        ("[store]\nurl = \"redis+sentinel://127.0.0.1:1\"\n".into(), "master", false),
        ("[store]\nurl = \"rediss://127.0.0.1:1\"\ntls_ca = \"no/such\"\n".into(), "no/such: ", true),
        (format!("[store]\nurl = \"redis://127.0.0.1:1\"\n{starting}"), "start=", false),
        ("[[rule]]\nname = \"a\"\nlimit = [\"smooth 1/s\", \"smooth 2/s\"]\n".into(), "smooth", false),
        ("[lgo]\n".into(), "unknown table", false),
    ] {
        let path = folder.write("sluice.toml", &file);
        let (code, by_serve) = said(&["serve", "--config", &path]);
        assert!(code == Some(2) && by_serve.contains(reason), "{file}: serve: {by_serve}");
        assert_eq!(said(&["validate", &path]), (Some(2), by_serve.clone()), "{file}");
        let without_files = said(&["validate", &path, "--no-files"]);
        let expected = if in_files { (Some(0), String::new()) } else { (Some(2), by_serve) };
        assert_eq!(without_files, expected, "{file}: --no-files");
    }
    let path = folder.write("sluice.toml", exposed);
    assert_eq!(said(&["validate", &path, "--insecure"]).0, Some(0), "flags count as for serve");
    assert_eq!(said(&["validate", &path, "--resp", "127.0.0.1:0"]).0, Some(0));
}

#[test]
fn a_warning_of_the_server_is_one_of_validate() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("validate-warning");
    let password = folder.write("password", "at least sixteen bytes\n");
    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o644)).unwrap();
    let file = folder.write("sluice.toml", &format!("[server]\npassword_file = \"{password}\"\n"));
    let output = sluice(&["validate", &file], "");
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("every user of this machine can read the password"));
}

#[test]
fn the_example_is_right() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../sluicegate-server/sluice.example.toml");
    let output = sluice(&["validate", example], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("sluice.example.toml: OK, 0 rules\n"));
}
