//! Records what a real redis-cell answers, for the test that replays it against ours.
//!
//! It takes a redis-cell that rounds times up and refuses a rate of zero, as all since 0.3 do.
//!
//! Times are real: calls wait where a case says so, and each row has the milliseconds since the
//! case's first call. All waits keep well away from the moments at which an answer changes, so that
//! a millisecond more or less makes no difference.

use super::Outcome;
use super::client::{Client, Reply};
use super::redis::{self, RedisCell};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits this many milliseconds after the case's first call, then calls with these words after the
/// key.
type Step = (u64, &'static str);

const CASES: &[(&str, &[Step])] = &[
    ("readme", &[(0, "15 30 60 1"), (0, "15 30 60 1"), (0, "15 30 60"), (0, "15 30 60 1")]),
    (
        "burst is used up",
        &[(0, "2 10 10"), (0, "2 10 10"), (0, "2 10 10"), (0, "2 10 10"), (0, "2 10 10 2"), (0, "2 10 10 3")],
    ),
    (
        "some comes back",
        &[
            (0, "2 2 1"),
            (0, "2 2 1"),
            (0, "2 2 1"),
            (0, "2 2 1"),
            (650, "2 2 1"),
            (650, "2 2 1"),
            (1250, "2 2 1"),
            (1250, "2 2 1 2"),
            (2400, "2 2 1"),
        ],
    ),
    ("all comes back", &[(0, "1 4 1"), (0, "1 4 1"), (0, "1 4 1"), (800, "1 4 1"), (800, "1 4 1 0")]),
    ("no burst", &[(0, "0 1 1"), (0, "0 1 1"), (400, "0 1 1"), (1300, "0 1 1"), (1300, "0 1 1 0")]),
    ("a slow rate", &[(0, "4 3 3600"), (0, "4 3 3600"), (0, "4 3 3600 3"), (0, "4 3 3600")]),
    (
        "a quantity of nothing",
        &[
            (0, "3 6 60 0"),
            (0, "3 6 60"),
            (0, "3 6 60 0"),
            (0, "3 6 60 3"),
            (0, "3 6 60 0"),
            (0, "3 6 60"),
            (0, "3 6 60 0"),
        ],
    ),
    (
        "more than there is",
        &[(0, "4 5 60 6"), (0, "4 5 60 5"), (0, "4 5 60 1"), (0, "4 5 60 6"), (0, "4 5 60 100")],
    ),
    (
        "some is given back",
        &[
            (0, "9 10 100 5"),
            (0, "9 10 100 -2"),
            (0, "9 10 100 0"),
            (0, "9 10 100 8"),
            (0, "9 10 100 7"),
            (0, "9 10 100 -1"),
            (0, "9 10 100 1"),
        ],
    ),
    (
        "then a faster rate",
        &[(0, "9 10 100 5"), (0, "9 20 100 1"), (0, "9 100 100 1"), (0, "9 100 100 9"), (0, "9 100 100 0")],
    ),
    (
        "then a slower rate",
        &[(0, "9 100 100 5"), (0, "9 50 100 1"), (0, "9 10 100 1"), (0, "9 10 100 9"), (0, "9 10 100 8")],
    ),
    (
        "then a smaller burst",
        &[(0, "9 10 100 6"), (0, "4 10 100 1"), (0, "4 10 100 0"), (0, "9 10 100 1"), (0, "6 10 100 1")],
    ),
    ("then a larger burst", &[(0, "1 10 100 2"), (0, "1 10 100"), (0, "5 10 100"), (0, "5 10 100 3")]),
    ("a fast rate", &[(0, "999 1000 100 500"), (0, "999 1000 100 501"), (0, "999 1000 100 499")]),
];

/// What redis-cell refuses: all words after the command's name.
const MISTAKES: &[&str] = &[
    "",
    "key",
    "key 15",
    "key 15 30",
    "key 15 30 60 1 1",
    "key x 30 60",
    "key 15 x 60",
    "key 15 30 x",
    "key 15 30 60 x",
    "key 15 30 60.5",
    "key 15 0 60",
    "key 15 30 0",
    "key 15 99999999999999999999 60",
];

pub fn run(folder: &Path) -> Outcome<()> {
    let cell = RedisCell::find()?;
    let server = redis::start("redis-cell", Some(&cell), None)?;
    let broken = |error: std::io::Error| format!("redis-cell: {error}");
    let mut client = Client::connect(server.address).map_err(broken)?;

    let mut rows =
        "case,at_ms,key,max_burst,count,period,quantity,limited,limit,remaining,retry,reset\n".to_owned();
    for (case, steps) in CASES {
        let key = case.replace(' ', "-");
        let began = Instant::now();
        for (at, numbers) in *steps {
            std::thread::sleep(Duration::from_millis(*at).saturating_sub(began.elapsed()));
            let at_ms = began.elapsed().as_millis();
            let words: Vec<&str> = ["CL.THROTTLE", &key].into_iter().chain(numbers.split(' ')).collect();
            let Reply::Numbers(answer) = client.call(&words).map_err(broken)? else {
                return Err(format!("{case}: {numbers} is answered with an error"));
            };
            let quantity = if numbers.split(' ').count() == 3 { "," } else { "" };
            let [numbers, answer] =
                [numbers.replace(' ', ","), answer.iter().map(i64::to_string).collect::<Vec<_>>().join(",")];
            rows.push_str(&format!("{case},{at_ms},{key},{numbers}{quantity},{answer}\n"));
        }
    }
    save(&folder.join("redis-cell.csv"), &rows)?;

    let mut rows = "words,error\n".to_owned();
    for words in MISTAKES {
        let given: Vec<&str> = ["CL.THROTTLE"].into_iter().chain(words.split_ascii_whitespace()).collect();
        match client.call(&given).map_err(broken)? {
            Reply::Error(error) => rows.push_str(&format!("{words},{error}\n")),
            other => {
                return Err(format!(
                    "CL.THROTTLE {words} is answered with {other:?}; record with redis-cell 0.3 or later"
                ));
            }
        }
    }
    save(&folder.join("redis-cell-errors.csv"), &rows)
}

fn save(file: &Path, rows: &str) -> Outcome<()> {
    println!("{}: {} rows", file.display(), rows.lines().count() - 1);
    fs::write(file, rows).map_err(|error| format!("{}: {error}", file.display()))
}
