//! What the pages say that the command prints is what it prints.

use crate::{sluice, stderr, stdout};
use std::fs;
use std::path::Path;

/// Each `sluice simulate ...` or `sluice overload ...` in a page that is followed by a block of
/// text, and that text.
fn examples(page: &str) -> Vec<(Vec<String>, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(path).unwrap();
    let mut examples = Vec::new();
    for piece in text.split("```console\n").skip(1) {
        let Some((command, rest)) = piece.split_once("```\n\n```text\n") else { continue };
        let Some((_, arguments)) = command.trim().split_once("sluice ") else { continue };
        if !["simulate ", "overload "].iter().any(|command| arguments.starts_with(command)) {
            continue;
        }
        let said = rest.split("```").next().unwrap_or_default();
        examples.push((words(&arguments.replace("\\\n", " ")), said.to_owned()));
    }
    examples
}

/// The words of a command line, of which some are in single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, piece) in line.split('\'').enumerate() {
        if place % 2 == 1 {
            words.push(piece.to_owned());
        } else {
            words.extend(piece.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn examples_print_what_the_pages_say() {
    let mut tried = 0;
    for page in ["README.md", "docs/simulate.md", "docs/overload.md"] {
        for (arguments, said) in examples(page) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = sluice(&arguments, "");
            assert_eq!(stdout(&output), said, "{page}: {arguments:?}: {}", stderr(&output));
            tried += 1;
        }
    }
    assert!(tried >= 4, "{tried} examples");
}

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// Each algorithm has a section with a picture of its own.
#[test]
fn every_algorithm_has_its_picture() {
    let text = page("docs/algorithms.md");
    for algorithm in sluicegate::Limit::CHECKS {
        let section = text
            .split(&format!("\n## {algorithm}\n"))
            .nth(1)
            .unwrap_or_else(|| panic!("no section on {algorithm}"));
        let section = section.split("\n## ").next().unwrap_or_default();
        assert!(section.contains(&format!("(pictures/{algorithm}.svg)")), "no picture of {algorithm}");
        for what in ["**Use it**", "**Not**", "**Worst case**", "**Memory**"] {
            assert!(section.contains(what), "{algorithm}: {what}");
        }
    }
}

/// What the text says about the pictures, `24 of 12`, is what they show.
#[test]
fn counts_in_the_text_are_those_of_the_pictures() {
    let worst = |picture: &str, limit: &str| -> String {
        let svg = page(&format!("docs/pictures/{picture}.svg"));
        let said = svg.split(&format!(" {limit}: ")).nth(1).unwrap_or_else(|| panic!("{limit} in {picture}"));
        said.split("at most ")
            .nth(1)
            .and_then(|rest| rest.split(" in any").next())
            .unwrap_or_default()
            .to_owned()
    };
    let readme = page("README.md").replace('\n', " ");
    for (limit, words) in [
        ("fixed-window 12/min", "admits **24** around"),
        ("sliding-window 12/min", "an estimate, admits **17**"),
        ("sliding-log 12/min", "never more than **12**"),
        ("token-bucket 12/min", "**23** in its first minute"),
        ("pacer 12/min queue=2", "act evenly, **12** per minute"),
    ] {
        let shown = worst("compared", limit);
        let number: String = words.chars().filter(char::is_ascii_digit).collect();
        assert_eq!(shown, format!("{number} of 12"), "{limit}");
        assert!(readme.contains(words), "README.md should say of {limit}: {words}");
    }
    let algorithms = page("docs/algorithms.md").replace('\n', " ");
    for (picture, limit, words) in [
        ("token-bucket", "token-bucket 12/min burst=6", "17 of 12"),
        ("fixed-window", "fixed-window 12/min", "24 of 12"),
        ("sliding-window", "sliding-window 12/min", "14 of 12"),
    ] {
        assert_eq!(worst(picture, limit), words);
        assert!(algorithms.contains(words), "docs/algorithms.md should say {words}");
    }
}

/// Every column and field that is written is explained.
#[test]
fn every_field_is_explained() {
    let text = page("docs/simulate.md");
    let crowd =
        ["--workload", "poisson 100/s keys=200 zipf=1.2 for=1min", "--limit", "token-bucket 1/s burst=5"];
    let written = |flag: &str| stdout(&sluice(&[&["simulate", flag, "-"], &crowd[..]].concat(), ""));
    let mut names: Vec<String> = Vec::new();
    for flag in ["--csv", "--series", "--keys"] {
        names.extend(written(flag).lines().next().unwrap().split(',').map(str::to_owned));
    }
    let json: serde_json::Value = serde_json::from_str(&written("--json")).unwrap();
    fields(&json, &mut names);
    assert!(names.len() > 60, "{}", names.len());
    for name in names {
        assert!(text.contains(&format!("`{name}`")), "docs/simulate.md does not say what {name} is");
    }
}

fn fields(json: &serde_json::Value, names: &mut Vec<String>) {
    match json {
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                names.push(name.clone());
                fields(value, names);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
        _ => {}
    }
}

/// Every field of an overload's JSON is explained.
#[test]
fn every_field_of_an_overload_is_explained() {
    let text = page("docs/overload.md");
    let arguments =
        ["overload", "--json", "-", "--protect", "breaker 50%/10s + aimd 20", "--workload", "steady 9/s"];
    let dependency = ["--dependency", "workers=1 takes=50ms"];
    let json = stdout(&sluice(&[&arguments[..], &dependency[..]].concat(), ""));
    let mut names = Vec::new();
    fields(&serde_json::from_str(&json).unwrap(), &mut names);
    assert!(names.len() > 20, "{}", names.len());
    for name in names {
        assert!(text.contains(&format!("`{name}`")), "docs/overload.md does not say what {name} is");
    }
}

/// The workloads of the help are those of the page.
#[test]
fn every_workload_is_on_the_page() {
    let text = page("docs/simulate.md");
    for line in sluicegate_sim::traffic::workload::HELP.lines() {
        if let Some((workload, _)) = line.split_once("  ").filter(|(words, _)| words.contains('/')) {
            assert!(text.contains(&format!("`{workload}`")), "docs/simulate.md does not have {workload}");
        }
    }
}
