//! `sluice simulate`.

use crate::{sluice, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const EDGE: [&str; 7] = [
    "simulate",
    "--limit",
    "fixed-window 12/60s",
    "--limit",
    "sliding-log 12/60s",
    "--workload",
    "edge 12/60s for=6min",
];

/// A log of one loud caller, a quiet one, and a line that is none.
const LOG: &str = r#"203.0.113.9 - - [10/Nov/2026:14:05:00 +0000] "GET / HTTP/1.1" 200 10 "-" "a"
203.0.113.9 - - [10/Nov/2026:14:05:01 +0000] "GET / HTTP/1.1" 200 10 "-" "a"
198.51.100.7 - - [10/Nov/2026:14:05:01 +0000] "GET / HTTP/1.1" 200 10 "-" "b"
oops
203.0.113.9 - - [10/Nov/2026:14:05:02 +0000] "GET / HTTP/1.1" 200 10 "-" "a"
203.0.113.9 - - [10/Nov/2026:14:05:59 +0000] "GET / HTTP/1.1" 200 10 "-" "a"
"#;

/// A folder of its own for a test, gone when it is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sluice-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn said(arguments: &[&str], input: &str) -> String {
    let output = sluice(arguments, input);
    assert_eq!(stderr(&output), "", "{arguments:?}");
    assert!(output.status.success());
    stdout(&output)
}

fn refused(arguments: &[&str], input: &str) -> String {
    let output = sluice(arguments, input);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stdout(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    stderr(&output)
}

#[test]
fn limits_are_compared_in_a_table() {
    assert_eq!(
        said(&EDGE, ""),
        "\
edge 12/60s for=6min: 72 calls of 1 key in 6 min

                                      longest  longest
limit                allowed  denied      run     wait              worst
fixed-window 12/min       72       0        0        -  24 of 12 in 1 min
sliding-log 12/min        36      36       12     57 s  12 of 12 in 1 min
"
    );
}

/// 80 columns wide, without colours as it is no terminal.
#[test]
fn the_terminal_drawing_shows_the_doubled_burst() {
    let drawing = said(&[&EDGE[..], &["--terminal", "--show", "window"]].concat(), "");
    let drawing = drawing.split_once("\nUsed ").unwrap().1;
    assert_eq!(
        drawing,
        "\
in the last 1 min: ░ within the limit █ above it
Calls: ● allowed · denied ◐ some of both

fixed-window 12/min
     24 ┤            ████████████           ▄███████████            ████████████
        │            ████████████           ████████████▆           ████████████
        │           ▆████████████           █████████████           ████████████
     12 ┤┄┄┄┄┄┄┄┄┄┄┄░░░░░░░░░░░░░┄┄┄┄┄┄┄┄┄┄┄░░░░░░░░░░░░░┄┄┄┄┄┄┄┄┄┄┄░░░░░░░░░░░░
        │           ░░░░░░░░░░░░░▆          ░░░░░░░░░░░░░          ░░░░░░░░░░░░░
        │           ░░░░░░░░░░░░░░          ░░░░░░░░░░░░░          ░░░░░░░░░░░░░
      0 ┼───────────────────────────────────────────────────────────────────────
  calls             ●●                     ●●●                     ●●

sliding-log 12/min
     24 ┤
        │
        │
     12 ┤┄┄┄┄┄┄┄┄┄┄┄░░░░░░░░░░░░░┄┄┄┄┄┄┄┄┄┄┄░░░░░░░░░░░░┄┄┄┄┄┄┄┄┄┄┄┄░░░░░░░░░░░░
        │           ░░░░░░░░░░░░░           ░░░░░░░░░░░░▆          ░░░░░░░░░░░░░
        │           ░░░░░░░░░░░░░           ░░░░░░░░░░░░░          ░░░░░░░░░░░░░
      0 ┼───────────────────────────────────────────────────────────────────────
  calls             ◐·                     ●◐·                     ●◐
         0 s                             3 min                             6 min
"
    );
    assert!(drawing.lines().all(|line| line.chars().count() <= 80));
    assert!(!drawing.contains('\x1b'));
}

#[test]
fn every_view_is_drawn_in_80_columns() {
    let crowd = ["--workload", "poisson 50/s keys=30 zipf=1 for=1min"];
    let limits = ["simulate", "--limit", "token-bucket 2/s burst=10", "--limit", "pacer 2/s queue=3"];
    let drawing = said(&[&limits[..], &crowd, &["--terminal"]].concat(), "");
    for heading in ["Calls per 1 s:", "Used in the last 1 s by caller-1:", "Left to use by caller-1"] {
        assert!(drawing.contains(heading), "{heading} in\n{drawing}");
    }
    let widest = drawing.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{widest:?} in\n{drawing}");
}

#[test]
fn the_same_seed_gives_the_same_answer_and_another_one_another() {
    let run = |seed: &str| {
        said(
            &[
                "simulate",
                "--limit",
                "sliding-window 9/s",
                "--workload",
                "poisson 20/s keys=9 for=60s",
                "--seed",
                seed,
                "--json",
                "-",
            ],
            "",
        )
    };
    assert_eq!(run("3"), run("3"));
    assert_ne!(run("3"), run("4"));
}

#[test]
fn without_traffic_twice_the_rate_is_tried() {
    let said = said(&["simulate", "--limit", "sliding-log 5/60s"], "");
    assert!(said.starts_with("poisson 10/1min, seed 1: "), "{said}");
    assert!(said.contains(" in 10 min\n"), "{said}");
}

#[test]
fn several_limits_in_one_must_all_allow() {
    let said = said(
        &[
            "simulate",
            "--limit",
            "token-bucket 10/s + fixed-window 15/min",
            "--workload",
            "steady 1/s for=60s",
        ],
        "",
    );
    assert!(said.contains("token-bucket 10/s + fixed-window 15/min       15      45 "), "{said}");
}

#[test]
fn a_trace_is_decided_as_replay_decides_it() {
    let folder = Folder::new("trace");
    let trace = "at_us,key,cost\n0,a,1\n0,a,1\n2000000,a,1\n1000000,a,1\n3000000,b,2\n";
    fs::write(folder.path("t.csv"), trace).unwrap();
    let limit = "token-bucket 1/s burst=1";
    let replayed = said(&["replay", "--limit", limit], trace);
    let allowed = replayed.lines().filter(|row| row.starts_with("1,")).count();
    for source in [&folder.path("t.csv"), "-"] {
        let csv = said(&["simulate", "--limit", limit, "--trace", source, "--csv", "-"], trace);
        assert_eq!(
            csv,
            format!(
                "label,limit,allowed,denied,never,allowed_cost,longest_run,longest_wait_us,worst,worst_of,worst_period_us,worst_until_us,worst_until,worst_key\n\
                 token-bucket 1/s,token-bucket 1/s,{allowed},3,1,2,1,2000000,1,1,1000000,0,1970-01-01T00:00:00Z,a\n"
            )
        );
    }
}

#[test]
fn the_report_says_who_would_have_been_denied() {
    let folder = Folder::new("log");
    fs::write(folder.path("access.log"), LOG).unwrap();
    let log = folder.path("access.log");
    let output = sluice(
        &[
            "simulate",
            "--log",
            &log,
            "--key",
            "ip",
            "--limit",
            "sliding-log 1/min",
            "--limit",
            "min-interval 1s",
        ],
        "",
    );
    assert!(output.status.success());
    let reported = stdout(&output).replace(&log, "access.log");
    assert_eq!(
        reported,
        "\
access.log by ip: 5 calls of 2 keys from 2026-11-10 14:05:00 to 2026-11-10 14:05:59 UTC

                                    longest  longest
limit              allowed  denied      run     wait            worst
sliding-log 1/min        2       3        3     59 s  1 of 1 in 1 min
min-interval 1s          5       0        0        -    1 of 1 in 1 s

sliding-log 1/min
  3 of 5 calls denied (60 %), 1 of 2 keys affected
  3 of them at the peak, within 1 min up to Nov 10 14:05:59
  key          calls  denied  share     first denied      last denied
  203.0.113.9      4       3   75 %  Nov 10 14:05:01  Nov 10 14:05:59

min-interval 1s
  0 of 5 calls denied (0 %), 0 of 2 keys affected
"
    );
    let passed_over = stderr(&output);
    assert!(
        passed_over
            .starts_with("sluice: skipped 1 malformed line (17 %); --strict stops at the first\n  line 4: "),
        "{passed_over}"
    );
}

#[test]
fn a_strict_reader_stops_at_the_first_broken_line() {
    let error =
        refused(&["simulate", "--log", "-", "--key", "ip", "--limit", "sliding-log 1/min", "--strict"], LOG);
    assert!(error.starts_with("sluice: standard input: line 4: "), "{error}");
}

#[test]
fn a_few_broken_lines_among_many_are_counted() {
    let mut log = String::new();
    for line in 0..20_000 {
        log += if line % 4_000 == 7 { "broken\n" } else { LOG.lines().next().unwrap() };
        log += "\n";
    }
    let output = sluice(
        &["simulate", "--log", "-", "--key", "ip", "--limit", "sliding-log 1/min", "--json", "-"],
        &log,
    );
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&json["calls"], &json["broken_lines"]), (&19_995.into(), &5.into()));
    assert!(stderr(&output).starts_with("sluice: skipped 5 malformed lines (<0.1 %)"), "{}", stderr(&output));
}

#[test]
fn an_unknown_log_is_answered_with_its_line_and_what_to_do() {
    let error = refused(
        &["simulate", "--log", "-", "--key", "ip", "--limit", "sliding-log 1/min"],
        "\nwhat is this\n",
    );
    assert_eq!(
        error,
        "sluice: standard input: line 2: \"what is this\" is in no format of logs that is known; use --format common, combined or json; for a CSV with the header at_us,key,cost use --trace\n"
    );
}

#[test]
fn everything_is_in_the_json() {
    let crowd = ["--workload", "poisson 100/s keys=200 zipf=1.2 for=1min"];
    let limits = ["simulate", "--limit", "token-bucket 1/s burst=5", "--label", "bucket", "--json", "-"];
    let json: Value = serde_json::from_str(&said(&[&limits[..], &crowd].concat(), "")).unwrap();
    let limit = &json["limits"][0];
    let number = |value: &Value| value.as_u64().unwrap();
    assert_eq!(number(&limit["allowed"]) + number(&limit["denied"]), number(&json["calls"]));
    assert_eq!((&limit["label"], &limit["limit"]), (&"bucket".into(), &"token-bucket 1/s burst=5".into()));
    assert_eq!(limit["deciles"].as_array().unwrap().len(), 10);
    assert_eq!(limit["worst"][0]["of"], 1);
    assert!(number(&limit["above_p99"]["denied"]) <= number(&limit["denied"]));
    assert_eq!(limit["most_affected"][0]["key"], "caller-1");
    let offered: u64 = json["over_time"]["offered_cost"].as_array().unwrap().iter().map(number).sum();
    assert_eq!(offered, number(&json["calls"]));
    let allowed: u64 = limit["allowed_cost_over_time"].as_array().unwrap().iter().map(number).sum();
    assert_eq!(allowed, number(&limit["allowed_cost"]));
}

#[test]
fn files_are_written_and_pictures_are_what_they_are_called() {
    let folder = Folder::new("files");
    let (svg, png, csv, series, json) = (
        folder.path("p.svg"),
        folder.path("p.PNG"),
        folder.path("t.csv"),
        folder.path("s.csv"),
        folder.path("j.json"),
    );
    // What was there before is replaced, all of it.
    fs::write(&csv, "x".repeat(100_000)).unwrap();
    let outputs = ["--plot", &svg, "--plot", &png, "--csv", &csv, "--series", &series, "--json", &json];
    let table = said(&[&EDGE[..], &outputs].concat(), "");
    assert!(table.contains("24 of 12 in 1 min"));
    assert!(fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 3);
    assert!(serde_json::from_str::<Value>(&fs::read_to_string(&json).unwrap()).is_ok());
    let series = fs::read_to_string(&series).unwrap();
    let mut rows = series.lines();
    assert_eq!(rows.next(), Some("label,from_us,from,to_us,to,offered_cost,allowed_cost,denied"));
    let offered: u64 = rows
        .filter(|row| row.starts_with("fixed"))
        .map(|row| row.split(',').nth(5).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(offered, 72);
}

#[test]
fn an_output_that_cannot_be_written_is_reported_before_the_work_and_leaves_nothing_behind() {
    let folder = Folder::new("unwritable");
    let (good, bad) = (folder.path("good.svg"), folder.path("no/such/folder.svg"));
    let error = refused(&[&EDGE[..], &["--plot", &good, "--plot", &bad]].concat(), "");
    assert_eq!(
        error,
        format!(
            "sluice: {bad} cannot be written: No such file or directory (os error 2); choose a folder that exists and that you may write to\n"
        )
    );
    assert!(!PathBuf::from(&good).exists(), "made to see whether it can be, and taken away");
    // What was there before stays as it was if it comes to nothing.
    fs::write(&good, "a picture").unwrap();
    refused(&["simulate", "--limit", "sliding-log 1/min", "--trace", "-", "--plot", &good], "not a trace\n");
    assert_eq!(fs::read_to_string(&good).unwrap(), "a picture");
}

#[test]
fn each_bound_has_a_name_and_is_reported() {
    let many = |flag: &'static str, text: &str, count: usize| -> Vec<String> {
        (0..count)
            .flat_map(|number| [flag.to_owned(), text.replace('N', &(number + 1).to_string())])
            .collect()
    };
    let run = |arguments: Vec<String>| {
        let all: Vec<&str> = ["simulate"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        sluice(&all, "")
    };
    let limit = || many("--limit", "sliding-log N/min", 1);
    let long = |length: usize| "x".repeat(length);
    for (within, beyond, said) in [
        (
            many("--limit", "sliding-log N/min", 32),
            many("--limit", "sliding-log N/min", 33),
            "33 limits are above the maximum, 32",
        ),
        (
            [limit(), many("--workload", "steady N/min for=1min", 32)].concat(),
            [limit(), many("--workload", "steady N/min for=1min", 33)].concat(),
            "33 workloads are above the maximum, 32",
        ),
        (
            vec!["--limit".to_owned(), ["sliding-log 5/min"; 8].join(" + ")],
            vec!["--limit".to_owned(), ["sliding-log 5/min"; 9].join(" + ")],
            "a list of 9 limits is above the maximum, 8",
        ),
        (
            [limit(), vec!["--label".to_owned(), long(60)]].concat(),
            [limit(), vec!["--label".to_owned(), long(61)]].concat(),
            "is longer than 60 letters",
        ),
        (
            [limit(), ["--plot", "/dev/null.svg", "--title"].map(str::to_owned).to_vec(), vec![long(120)]]
                .concat(),
            [limit(), ["--plot", "/dev/null.svg", "--title"].map(str::to_owned).to_vec(), vec![long(121)]]
                .concat(),
            "a title of 121 letters is above the maximum, 120",
        ),
    ] {
        let output = run(beyond);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
        // A title within its bound comes as far as the file, which is none.
        let error = stderr(&run(within));
        assert!(error.is_empty() || error.contains("/dev/null.svg"), "{error}");
    }
}

/// The rows of a spreadsheet: every key that was denied anything, under each limit.
#[test]
fn all_affected_keys_are_in_a_file() {
    let arguments = [
        "simulate",
        "--limit",
        "fixed-window 1/min",
        "--limit",
        "sliding-log 2/min",
        "--trace",
        "-",
        "--keys",
        "-",
    ];
    let trace = "at_us,key,cost\n0,\"a,b\",1\n1,c,1\n2,\"a,b\",1\n3,\"a,b\",1\n4,c,1\n5,d,1\n";
    assert_eq!(
        said(&arguments, trace),
        "\
label,key,calls,offered_cost,allowed_cost,denied,first_denied_us,first_denied,last_denied_us,last_denied
fixed-window 1/min,\"a,b\",3,3,1,2,2,1970-01-01T00:00:00.000002Z,3,1970-01-01T00:00:00.000003Z
fixed-window 1/min,c,2,2,1,1,4,1970-01-01T00:00:00.000004Z,4,1970-01-01T00:00:00.000004Z
sliding-log 2/min,\"a,b\",3,3,2,1,3,1970-01-01T00:00:00.000003Z,3,1970-01-01T00:00:00.000003Z
"
    );
}

#[test]
fn lengths_and_moments_are_reported_as_they_are() {
    let reported = |workload| said(&["simulate", "--limit", "min-interval 1s", "--workload", workload], "");
    assert!(reported("steady 1/s for=125s").contains(" in 2 min 5 s\n"));
    let crowd =
        said(&["simulate", "--limit", "fixed-window 1/d", "--workload", "steady 2/1h keys=2 for=50h"], "");
    assert!(crowd.contains("  2 d 1 h 30 min\n"), "{crowd}");
}

/// Calls that wait at the end of the traffic are still shown.
#[test]
fn what_acts_after_the_traffic_is_over_is_in_the_series() {
    let series = said(
        &[
            "simulate",
            "--limit",
            "pacer 1/s queue=100",
            "--workload",
            "burst 50/60s for=10s",
            "--series",
            "-",
        ],
        "",
    );
    let allowed: u64 =
        series.lines().skip(1).map(|row| row.split(',').nth(6).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(allowed, 50);
}

#[test]
fn a_link_to_nowhere_is_left_alone_when_it_comes_to_nothing() {
    let folder = Folder::new("link");
    let link = folder.path("link.svg");
    std::os::unix::fs::symlink(folder.path("nowhere.svg"), &link).unwrap();
    refused(&["simulate", "--limit", "sliding-log 1/min", "--workload", "wave 1/s", "--plot", &link], "");
    assert!(fs::symlink_metadata(&link).is_ok());
    assert!(!PathBuf::from(folder.path("nowhere.svg")).exists());
}

#[test]
fn nothing_that_is_given_moves_the_cursor() {
    let wild = "\x1b]0;title\x07\nx";
    let table = said(
        &[
            "simulate",
            "--limit",
            "sliding-log 1/min",
            "--label",
            wild,
            "--workload",
            "steady 1/s keys=3",
            "--terminal",
        ],
        "",
    );
    assert!(!table.contains(['\x1b', '\x07']), "{table}");
    let many = format!("steady 1000000/us key=a{}", "\x1b[31m");
    let error =
        refused(&["simulate", "--limit", "sliding-log 1/min", "--workload", &many, "--max-calls", "10"], "");
    assert!(!error.contains('\x1b'), "{error}");
    let error = refused(&["simulate", "--limit", "sliding-log 1/min", "--trace", wild], "");
    assert!(!error.contains('\x1b') && error.lines().count() == 1, "{error}");
}

#[test]
fn traces_before_dates_began_are_as_long_as_they_are() {
    let trace = "at_us,key,cost\n300000000000000,a,1\n300000001000000,a,1\n";
    let reported = said(&["simulate", "--limit", "sliding-log 1/s", "--trace", "-"], trace);
    assert!(reported.starts_with("standard input: 2 calls of 1 key in 1 s\n"), "{reported}");
}

#[test]
fn a_compressed_log_is_recognised() {
    let bytes: Vec<u8> = [0x1f, 0x8b, 8, 0].to_vec();
    let folder = Folder::new("gzip");
    fs::write(folder.path("a.gz"), bytes).unwrap();
    let error = refused(&["simulate", "--limit", "sliding-log 1/min", "--log", &folder.path("a.gz")], "");
    assert!(
        error.ends_with(
            "line 1: this is compressed; hand it in as zcat access.log.gz | sluice simulate --log -\n"
        ),
        "{error}"
    );
}

/// Under whatever name: a link of either kind, or standard input.
#[test]
fn no_input_is_overwritten() {
    let folder = Folder::new("input");
    let (trace, hard, soft) = (folder.path("t.csv"), folder.path("hard.csv"), folder.path("soft.csv"));
    let text = "at_us,key,cost\n0,a,1\n";
    fs::write(&trace, text).unwrap();
    fs::hard_link(&trace, &hard).unwrap();
    std::os::unix::fs::symlink(&trace, &soft).unwrap();
    for output in [&trace, &hard, &soft] {
        for flag in ["--csv", "--series", "--keys", "--json"] {
            let error =
                refused(&["simulate", "--limit", "sliding-log 1/min", "--trace", &trace, flag, output], "");
            assert!(error.contains("is named twice"), "{error}");
        }
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["simulate", "--limit", "sliding-log 1/min", "--trace", "-", "--csv", output])
            .stdin(fs::File::open(&trace).unwrap())
            .output()
            .unwrap();
        assert_eq!(status.status.code(), Some(2));
        assert_eq!(fs::read_to_string(&trace).unwrap(), text);
    }
}

#[test]
fn times_in_the_terminal_stay_apart_and_tell_the_year_if_it_takes_one() {
    for seconds in [10_u64, 40, 80, 100, 4000, 90_000, 900_000_000] {
        let trace = format!(
            "at_us,key,cost\n1794398400000000,k,1\n{},k,1\n",
            1_794_398_400_000_000 + seconds * 1_000_000
        );
        let drawing =
            said(&["simulate", "--limit", "sliding-log 1/min", "--trace", "-", "--terminal"], &trace);
        for line in drawing.lines().filter(|line| line.trim_start().starts_with("Nov 11 ")) {
            assert!(line.trim().split("  ").all(|time| time.trim().len() <= 21), "{line}");
            assert!(line.matches("Nov").count() <= 1 + line.matches("  Nov").count(), "{line}");
        }
        let tells_the_year = drawing.lines().any(|line| line.starts_with("         20"));
        assert_eq!(tells_the_year, seconds == 900_000_000, "{drawing}");
    }
}

/// A log of one caller still says when it would have been limited.
#[test]
fn a_log_of_one_key_is_answered_too() {
    let one = LOG.lines().filter(|line| line.starts_with("203")).collect::<Vec<_>>().join("\n");
    let reported = said(&["simulate", "--log", "-", "--limit", "sliding-log 1/min"], &one);
    assert!(reported.contains("  3 of 4 calls denied (75 %), 1 of 1 keys affected\n"), "{reported}");
    assert!(
        reported.contains("  203.0.113.9      4       3   75 %  Nov 10 14:05:01  Nov 10 14:05:59\n"),
        "{reported}"
    );
}

#[test]
fn a_full_disk_is_reported() {
    let error = sluice(&[&EDGE[..], &["--json", "/dev/full"]].concat(), "");
    assert_eq!(error.status.code(), Some(2));
    assert!(
        stderr(&error).contains("/dev/full cannot be written: No space left on device"),
        "{}",
        stderr(&error)
    );
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let with =
        |more: &[&'static str]| refused(&[&["simulate", "--limit", "sliding-log 1/min"], more].concat(), "");
    for (more, said) in [
        (&["--limit", "fixed-window 1/x"][..], "fixed-window 1/x: unknown unit \"x\""),
        (
            &["--label", "a", "--label", "b"],
            "there are 2 --label for 1 --limit; give none, or one for each in the same order",
        ),
        (
            &["--limit", "sliding-log 1/60s"],
            "the limits 1 and 2 are both called \"sliding-log 1/min\"; leave one out, or tell them apart with --label",
        ),
        (
            &["--workload", "wave 1/s"],
            "workload \"wave 1/s\": unknown workload \"wave\"; use steady burst poisson on-off ramp edge",
        ),
        (
            &["--plot", "picture.gif"],
            "--plot picture.gif: the kind of picture is unknown; name it FILE.svg or FILE.png",
        ),
        (&["--plot", "x.svg", "--plot", "x.svg"], "x.svg is named twice; read and write different files"),
        (
            &["--focus", "absent"],
            "--focus \"absent\": no call has this key; leave --focus out for the busiest key",
        ),
        (
            &["--trace", "no-such.csv"],
            "no-such.csv cannot be read: No such file or directory (os error 2); check the name",
        ),
        (
            &["--log", "-", "--key", "ip", "--format", "xml"],
            "--format: \"xml\" is not a format of logs; use common, combined or json",
        ),
        (
            &["--log", "-", "--key", "ip"],
            "standard input: there is not a single call; check that the log is the right one, and not empty",
        ),
        (
            &["access.log"],
            "\"access.log\" stands alone; quote limits and workloads as in --limit 'sliding-log 5/60s', and name a file with --trace, --log or --plot",
        ),
        (
            &["--workload", "steady 1000/s", "--max-calls", "10"],
            "steady 1000/s makes more than 10 calls; shorten it with for=, or raise --max-calls",
        ),
        (
            &["--limit", "sliding-log 5/min count=all + min-interval 1s"],
            "sliding-log 5/min count=all: count=all does not go with other limits",
        ),
    ] {
        let error = with(more);
        assert!(error.starts_with(&format!("sluice: {said}")), "{more:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(!PathBuf::from("x.svg").exists());
    // clap's own: two sources, a log without a key.
    assert!(with(&["--workload", "steady 1/s", "--trace", "-"]).contains("cannot be used with"));
    assert!(with(&["--workload", "steady 1/s", "--key", "ip"]).contains("cannot be used with"));
    assert!(with(&["--title", "t"]).contains("--plot <FILE>"));
}

/// Long enough for a bar on a terminal; here there is none.
#[test]
fn no_bar_is_drawn_when_piped() {
    let output =
        sluice(&["simulate", "--limit", "token-bucket 9/s", "--workload", "steady 200000/s for=26s"], "");
    assert!(output.status.success());
    assert_eq!(stderr(&output), "");
    assert!(stdout(&output).contains("5 200 000 calls"), "{}", stdout(&output));
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(EDGE)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}
