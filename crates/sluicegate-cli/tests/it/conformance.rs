//! The command itself answers the conformance vectors: each case is a trace.

use crate::{sluice, stdout};
use sluicegate_conformance::vectors::{FILES, LIMITS_SEPARATOR};

#[test]
fn replay_gives_the_answers_of_the_vectors() {
    for (file, text) in FILES {
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.splitn(6, ',').collect()).collect();
        for case in rows.chunk_by(|one, next| one[0] == next[0]) {
            let arguments: Vec<&str> = std::iter::once("replay")
                .chain(case[0][1].split(LIMITS_SEPARATOR).flat_map(|limit| ["--limit", limit]))
                .collect();
            let trace: String = std::iter::once("at_us,key,cost\n".to_owned())
                .chain(case.iter().map(|row| format!("{},{},{}\n", row[2], row[3], row[4])))
                .collect();
            let output = stdout(&sluice(&arguments, &trace));
            let answers: Vec<&str> = output.lines().skip(1).collect();
            let expected: Vec<&str> = case.iter().map(|row| row[5]).collect();
            assert_eq!(answers, expected, "{file}: {}: {}", case[0][0], case[0][1]);
        }
    }
}
