//! What the pages say that the command prints is what it prints.

use crate::{sluice, stderr, stdout};
use std::fs;
use std::path::Path;

/// Each `sluice simulate ...` in a page that is followed by a block of text, and that text.
fn examples(page: &str) -> Vec<(Vec<String>, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(path).unwrap();
    let mut examples = Vec::new();
    for piece in text.split("```console\n").skip(1) {
        let Some((command, rest)) = piece.split_once("```\n\n```text\n") else { continue };
        let Some((_, arguments)) = command.trim().split_once("sluice simulate ") else { continue };
        let said = rest.split("```").next().unwrap_or_default();
        examples.push((words(&format!("simulate {arguments}")), said.to_owned()));
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
    for page in ["README.md", "docs/simulate.md"] {
        for (arguments, said) in examples(page) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = sluice(&arguments, "");
            assert_eq!(stdout(&output), said, "{page}: {arguments:?}: {}", stderr(&output));
            tried += 1;
        }
    }
    assert!(tried >= 3, "{tried} examples");
}
