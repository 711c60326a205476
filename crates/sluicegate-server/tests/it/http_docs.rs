//! Runs the examples of `docs/http.md`, in order.

use crate::http_client::Serving;

const DOCS: &str = include_str!("../../../../docs/http.md");
const HERE: &str = "$ curl -s localhost:8380";

#[test]
fn the_examples_answer_as_written() {
    let serving = Serving::with_rules(&[("reply", "sliding-log 5/60s")]);
    let mut lines = DOCS.lines();
    let mut run = 0;
    while let Some(line) = lines.next() {
        let Some(request) = line.strip_prefix(HERE) else {
            assert!(!line.starts_with("$ "), "{line:?} is not run; begin it with {HERE:?}");
            continue;
        };
        let (path, body) = request.split_once(" --json ").unwrap();
        let reply = serving.post(path, body.trim_matches('\''));
        assert_eq!(reply.text, lines.next().unwrap(), "{line}");
        run += 1;
    }
    assert!(run >= 6, "only {run} examples");
}

#[test]
fn every_path_is_described() {
    let serving = Serving::with_rules(&[]);
    let document = serving.get("/openapi.json").json();
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(DOCS.contains(&format!("| `{path}` |")), "{path} has no row in docs/http.md");
    }
}
