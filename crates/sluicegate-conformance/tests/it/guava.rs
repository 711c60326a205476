//! `smooth` is Guava's limiter: the same waits to the microsecond, and the same state to the last
//! bit.

use sluicegate_conformance::guava::{FILES, play};

#[test]
fn every_wait_and_state_equals_guavas() {
    for (name, rows) in FILES {
        let report = play(rows.as_bytes()).unwrap_or_else(|mismatch| panic!("{name}.csv: {mismatch}"));
        assert!(report.cases == 60 && report.checks > 2_000 && report.denied > 300, "{name}: {report:?}");
    }
}

#[test]
fn a_difference_is_reported() {
    let (_, rows) = FILES[0];
    let mut lines: Vec<String> = rows.lines().take(6).map(str::to_owned).collect();
    lines[3] = lines[3].replace(",1,0,0,", ",1,1,0,");
    let mismatch = play(lines.join("\n").as_bytes()).unwrap_err();
    assert_eq!(mismatch.case, "line 4");
    let mismatch = play("call,at\n".as_bytes()).unwrap_err();
    assert_eq!((mismatch.case.as_str(), mismatch.actual.as_str()), ("line 1", "call,at"));
}
