//! `docs/protocol.md` lists every command, and `redis-cli` gets the replies it shows.

use crate::resp_client::{TestServer, words};
use crate::resp_clients::run;
use crate::running::{config, rule};
use sluicegate::clock::ManualClock;
use sluicegate_server::resp::usages;
use sluicegate_server::server::Config;

const PAGE: &str = include_str!("../../../../docs/protocol.md");

#[test]
fn every_command_is_documented() {
    // In a table a bar is escaped by a backslash.
    let page = PAGE.replace("\\|", "|");
    for usage in usages() {
        let has = page.contains(&format!("#### {usage}\n")) || page.contains(&format!("| `{usage}` |"));
        assert!(has, "docs/protocol.md has no `{usage}`");
    }
}

/// The commands of the page and the replies it shows.
fn examples() -> Vec<(&'static str, String)> {
    let blocks = PAGE.split("```redis\n").skip(1).map(|block| block.split("```").next().unwrap());
    let mut examples: Vec<(&str, String)> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match line.strip_prefix("> ") {
            Some(command) => examples.push((command, String::new())),
            None => examples.last_mut().unwrap().1 += &format!("{line}\n"),
        }
    }
    examples
}

#[test]
fn every_example_matches_redis_cli() {
    let rules = vec![
        rule("reply", &["sliding-log 5/60s"]),
        rule("api", &["token-bucket 10/s burst=50", "fixed-window 1000/day"]),
        rule("exports", &["concurrency 2 ttl=30s"]),
    ];
    let server = TestServer::start_at(Config { rules, ..config() }, &ManualClock::default());
    // The latest receipt or lease.
    let mut latest = String::new();
    let mut wrong = Vec::new();
    for (command, expected) in examples() {
        let command = command.replace("$RECEIPT", &latest).replace("$LEASE", &latest);
        let words = words(&command);
        let mut arguments = vec!["--no-raw"];
        arguments.extend(words.iter().map(String::as_str));
        let mut shown = run("redis-cli", &server, &arguments);
        let place = expected.lines().position(|line| line.ends_with("\"...\""));
        let receipt = place.and_then(|place| shown.lines().nth(place)?.split('"').nth(1));
        if let Some(receipt) = receipt.map(ToOwned::to_owned) {
            shown = shown.replace(&receipt, "...");
            latest = receipt;
        }
        // After an error redis-cli prints an empty line.
        if shown.trim_end() != expected.trim_end() {
            wrong.push(format!("> {command}\nthe page shows\n{expected}redis-cli shows\n{shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
