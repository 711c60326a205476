//! `sluice overload`: the table, the files, and what is refused.

use crate::{sluice, stderr, stdout};

const SMALL: [&str; 4] =
    ["--workload", "steady 50/s for=10s", "--dependency", "workers=1 takes=10ms random=0%"];

fn overload(arguments: &[&str]) -> std::process::Output {
    sluice(&[&["overload"], arguments, &SMALL[..]].concat(), "")
}

#[test]
fn the_table_has_a_row_for_each_protection() {
    let output =
        overload(&["--protect", "none", "--protect", "bulkhead 2", "--label", "bare", "--label", "two"]);
    let said = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        said.starts_with(
            "steady 50/s for=10s, seed 1; timeout=1s; workers=1 takes=10ms random=0%\n500 calls in 10 s\n"
        ),
        "{said}"
    );
    for row in ["bare", "two"] {
        let row: Vec<&str> =
            said.lines().find(|line| line.starts_with(row)).unwrap().split_whitespace().collect();
        assert_eq!(row[1..3], ["100", "%"], "{said}");
    }
}

#[test]
fn pictures_and_json_are_written_and_the_same_each_time() {
    let folder = std::env::temp_dir().join(format!("sluice-overload-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (svg, png, json) = (path("a.svg"), path("a.png"), path("a.json"));
    let draw = || {
        let output = overload(&["--protect", "aimd 5", "--plot", &svg, "--plot", &png, "--json", &json]);
        assert!(output.status.success(), "{}", stderr(&output));
        [&svg, &png, &json].map(|path| std::fs::read(path).unwrap())
    };
    let first = draw();
    assert_eq!(first, draw());
    assert!(first[0].starts_with(b"<svg") && first[1].starts_with(b"\x89PNG"));
    let read: serde_json::Value = serde_json::from_slice(&first[2]).unwrap();
    assert_eq!(read["protections"][0]["good"], 500);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_simulated_is_refused_in_one_line() {
    for (arguments, said) in [
        (
            &["--protect", "aimed 20"][..],
            "protection \"aimed 20\": unknown protection \"aimed\"; did you mean aimd?",
        ),
        (
            &["--protect", "none", "aimd"],
            "\"aimd\" stands alone; quote lines as in --protect 'aimd 20', and name a picture with --plot",
        ),
        (
            &["--protect", "none", "--label", "a", "--label", "b"],
            "there are 2 labels for 1 protection; give each one, or none",
        ),
        (
            &["--protect", "none", "--callers", "retries=99"],
            "callers \"retries=99\": retries=99 is above the maximum, 10; use fewer, 2 is many",
        ),
        (
            &["--protect", "none", "--plot", "a.gif"],
            "--plot a.gif: the kind of picture is unknown; name it FILE.svg or FILE.png",
        ),
        (
            &["--protect", "none", "--show", "calls,calls"],
            "--show has calls twice; name each view once, as in --show calls,limit",
        ),
        (
            &["--protect", "none", "--max-calls", "499"],
            "there are more than 499 calls; take a part of them, or allow for more",
        ),
    ] {
        let output = overload(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stderr(&output), format!("sluice: {said}\n"));
    }
    let many: Vec<&str> = (0..17).flat_map(|_| ["--protect", "none"]).collect();
    assert!(stderr(&overload(&many)).contains("17 protections are above the maximum, 16; leave some out"));
}
