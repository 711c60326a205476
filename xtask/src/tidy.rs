//! The vocabulary and the form of the text in this repository, checked word by word.
//!
//! docs/glossary.md says which word names which thing. What a machine can check of that is here:
//! phrases that a native speaker of the field would not write, comments and pages that do not wrap,
//! table cells that nobody reads, and an architecture page that is too long to read to the end.

use crate::root;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Phrases to avoid, each with what to write instead.
const PHRASES: [(&str, &str); 20] = [
    ("whoever", "name the caller, key, waiter or client"),
    ("whosever", "name the caller, key, waiter or client"),
    ("somebody", "name the caller, key, waiter or client"),
    ("nobody", "no caller, no waiter"),
    ("so many", "N, or at most N"),
    ("so often", "every 200 ms, N times"),
    ("anew", "again"),
    ("unless said", "by default"),
    ("if not said", "by default"),
    ("as good as new", "fully recovered"),
    ("at the most", "at most"),
    ("is told", "receives, is notified"),
    ("lapse", "expire"),
    ("lapses", "expires"),
    ("lapsed", "expired"),
    ("in vain", "without success, failed"),
    ("what came of", "the result of"),
    ("those who wait", "waiters"),
    ("in plain words", "(delete it)"),
    ("says no", "denies"),
];

/// Comments and prose wrap here.
const WIDTH_MAX: usize = 100;
/// A table cell is no longer than about two lines.
const CELL_MAX: usize = 200;
const ARCHITECTURE_WORDS_MAX: usize = 800;

/// These files list the phrases.
const EXEMPT: [&str; 2] = ["docs/glossary.md", "xtask/src/tidy.rs"];

pub(crate) fn run() -> Result<(), String> {
    let mut findings = Vec::new();
    for file in tracked_files()? {
        let Ok(text) = fs::read_to_string(root().join(&file)) else { continue };
        findings.extend(check(&file, &text).into_iter().map(|finding| format!("{file}:{finding}")));
    }
    if findings.is_empty() {
        println!("tidy: nothing found");
        return Ok(());
    }
    for finding in &findings {
        println!("{finding}");
    }
    Err(format!("{} findings; docs/glossary.md has the words to use", findings.len()))
}

fn tracked_files() -> Result<Vec<String>, String> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let output = output.map_err(|error| format!("git does not start: {error}"))?;
    if !output.status.success() {
        return Err("git ls-files failed; run this in a clone".to_owned());
    }
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Findings in one file, each as `line: what`.
fn check(file: &str, text: &str) -> Vec<String> {
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    let is_page = extension == Some("md");
    let is_source = matches!(extension, Some("rs" | "lua" | "toml"));
    let is_other_text = matches!(extension, Some("java" | "json" | "txt" | "yml"));
    if EXEMPT.contains(&file) || !(is_page || is_source || is_other_text) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        for (phrase, instead) in PHRASES {
            if contains_phrase(line, phrase) {
                findings.push(format!("{number}: \"{phrase}\"; write: {instead}"));
            }
        }
        let text = line.trim_start().trim_start_matches(['/', '!', '-', '#']).trim_start();
        let is_fence = text.starts_with("```") && (is_page || is_comment(line));
        in_code ^= is_fence;
        let width = line.chars().count();
        let wraps =
            !in_code && !is_fence && if is_page { is_prose(line) } else { is_source && is_comment(line) };
        if wraps && width > WIDTH_MAX {
            findings.push(format!("{number}: {width} columns; wrap at {WIDTH_MAX}"));
        }
        if is_page && !in_code && line.starts_with('|') {
            let longest = line.split('|').map(|cell| cell.trim().chars().count()).max().unwrap_or(0);
            if longest > CELL_MAX {
                findings
                    .push(format!("{number}: a table cell of {longest} characters; use at most {CELL_MAX}"));
            }
        }
    }
    let words = text.split_whitespace().count();
    if file == "ARCHITECTURE.md" && words > ARCHITECTURE_WORDS_MAX {
        findings.push(format!("1: {words} words; use at most {ARCHITECTURE_WORDS_MAX}"));
    }
    findings
}

/// Prose of a page: not a table, and not a line that one long link or word fills.
fn is_prose(line: &str) -> bool {
    !line.starts_with('|') && line.split_whitespace().all(|word| word.len() < WIDTH_MAX / 2)
}

/// A comment that can be wrapped: not one that one long link or word fills.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    let is_comment = ["//", "-- ", "# "].iter().any(|start| line.starts_with(start));
    is_comment && is_prose(line)
}

/// Returns `true` if the text contains the phrase as whole words, in any case.
fn contains_phrase(line: &str, phrase: &str) -> bool {
    let line = line.to_lowercase();
    let is_edge = |character: Option<char>| !character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(phrase).any(|(at, found)| {
        is_edge(line[..at].chars().next_back()) && is_edge(line[at + found.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_whole_words_in_any_case() {
        assert!(contains_phrase("// Whoever waits", "whoever"));
        assert!(contains_phrase("`so many` at once", "so many"));
        assert!(!contains_phrase("a collapsed row", "lapsed"));
        assert!(!contains_phrase("fn is_told()", "is told"));
        assert_eq!(check("A.java", "// So many a second.").len(), 1);
    }

    #[test]
    fn long_comments_and_prose_are_found() {
        let long = "word ".repeat(25);
        assert_eq!(check("a.rs", &format!("// {long}")).len(), 1);
        assert_eq!(check("a.rs", &format!("let x = \"{long}\";")).len(), 0);
        assert_eq!(check("a.rs", &format!("/// ```\n/// {long}\n/// ```\n/// {long}")).len(), 1);
        assert_eq!(check("a.md", &long).len(), 1);
        assert_eq!(check("a.md", &format!("```text\n{long}\n```")).len(), 0);
        assert_eq!(check("a.md", &format!("| {} |", "x".repeat(201))).len(), 1);
        assert_eq!(check("a.png", &long).len(), 0);
    }

    #[test]
    fn the_architecture_page_stays_short() {
        assert_eq!(check("ARCHITECTURE.md", &"word\n".repeat(801)).len(), 1);
        assert_eq!(check("ARCHITECTURE.md", &"word\n".repeat(800)).len(), 0);
    }
}
