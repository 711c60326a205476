//! `sluice validate`: a file is checked and explained.

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

#[test]
fn what_would_not_start_alone_is_noted() {
    let folder = Folder::new("validate-note");
    let file = folder.write("sluice.toml", "[server]\nresp = \"0.0.0.0:6380\"\npassword_file = \"x\"\n");
    let output = sluice(&["validate", &file], "");
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(
        text.starts_with(
            "Note           RESP on 0.0.0.0:6380 could be reached by others, and there is no TLS:"
        ),
        "{text}"
    );
}

#[test]
fn the_example_is_right() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../sluicegate-server/sluice.example.toml");
    let output = sluice(&["validate", example], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("sluice.example.toml: OK, 0 rules\n"));
}
