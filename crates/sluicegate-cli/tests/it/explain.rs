//! `sluice explain`.

use crate::{sluice, stderr, stdout};

#[test]
fn a_token_bucket_is_explained_and_shown_at_work() {
    let output = sluice(&["explain", "token-bucket 30/60s burst=15"], "");
    assert_eq!(
        stdout(&output),
        "\
token-bucket 30/min burst=15

What it does   Holds up to 15 tokens; 30 are added every 1 min, one every 2 s. A call takes
               tokens for its whole cost, or none and is denied. A new key starts full.
Promise        Any period admits at most 15, plus 30 per 1 min of its length.
Worst case     44 in any 1 min: 15 saved up, and 29 more before it ends.
Clock          On a shared store, a step back of its clock makes the limit stricter by at most
               the step.
Memory per key 16 bytes of state, regardless of how many calls.
Instead        For at most N in any period use sliding-log; for an even flow use pacer.

                 at           cost  answer  remaining             and then
                0 s              1  yes     ██████████████░░ 14
                0 s             14  yes     ░░░░░░░░░░░░░░░░ 0
                0 s              1  no      ░░░░░░░░░░░░░░░░ 0  retry in 2 s
         2 s - 1 µs              1  no      ░░░░░░░░░░░░░░░░ 0  retry in 1 µs
                2 s              1  yes     ░░░░░░░░░░░░░░░░ 0
               32 s              -          ████████████████ 15  fully recovered
               32 s             16  no      ████████████████ 15  never: above the limit
"
    );
}

#[test]
fn smooth_shows_who_pays() {
    let output = sluice(&["explain", "smooth 10/s"], "");
    assert_eq!(
        stdout(&output),
        "\
smooth 10/s

What it does   Guava's RateLimiter: 10 permits are added every 1 s, one every 100 ms. A call is
               allowed once all earlier cost is paid for; its own cost is paid by the next call.
               Up to 10 permits are stored while the key is idle, which later calls use first,
               for free. A key starts with nothing stored when the limiter is created.
Promise        After an allowed call the next is allowed once that cost, less the stored
               permits, is paid for, one every 100 ms.
Worst case     One call of any cost, then none until it is paid for. Of calls with cost 1, 11 at
               once.
Clock          If the clock steps back, the time of the next call stays where it is, and waits
               grow by the step.
Memory per key 16 bytes of state, regardless of how many calls.
Instead        To deny a cost that is too large use token-bucket; to queue calls without stored
               permits use pacer.

                 at           cost  answer  remaining             and then
                0 s              1  yes     ░░░░░░░░░░░░░░░░ 0
                0 s              1  no      ░░░░░░░░░░░░░░░░ 0  retry in 100 ms
                0 s              1  yes     ░░░░░░░░░░░░░░░░ 0  waits, and leaves in 100 ms
         1 s 200 ms              -          ████████████████ 10  fully recovered
         1 s 200 ms             12  yes     ░░░░░░░░░░░░░░░░ 0
         1 s 200 ms              1  no      ░░░░░░░░░░░░░░░░ 0  retry in 200 ms
"
    );
}

#[test]
fn leases_are_granted_released_and_expired() {
    let text = stdout(&sluice(&["explain", "concurrency 10 ttl=30s"], ""));
    let rows: Vec<Vec<&str>> =
        text.lines().rev().take(7).map(|row| row.split_whitespace().collect()).collect();
    let rows: Vec<String> = rows.into_iter().rev().map(|words| words.join(" ")).collect();
    assert_eq!(
        rows,
        [
            "0 s 1 yes ██████████████░░ 9",
            "10 s 9 yes ░░░░░░░░░░░░░░░░ 0",
            "10 s 1 no ░░░░░░░░░░░░░░░░ 0 retry in 20 s, or sooner",
            "10 s - █░░░░░░░░░░░░░░░ 1 the first is released",
            "10 s 1 yes ░░░░░░░░░░░░░░░░ 0",
            "40 s - ████████████████ 10 the rest have expired",
            "40 s 11 no ████████████████ 10 never: above the limit",
        ],
        "{text}"
    );
    assert!(text.contains("At most 10 are held at any time"), "{text}");
}

/// Every algorithm, the extremes of the bounds included: something is said under each heading, and
/// the timeline ends.
#[test]
fn every_limit_is_explained() {
    for limit in [
        "token-bucket 50/10s initial=0",
        "token-bucket 1000000000/us",
        "token-bucket 1/3650d burst=10",
        "token-bucket 5/s initial=1 start=2030-01-01T00:00:00Z",
        "leaky-bucket 1/2s capacity=3",
        "fixed-window 5/60s",
        "fixed-window 5/60s start=first",
        "fixed-window 100/1h start=2026-11-11T00:00:00+08:00",
        "fixed-window 100/1h start=2999-11-11T00:00:00+08:00",
        "fixed-window 1/day tz=Asia/Shanghai",
        "fixed-window 1/year",
        "sliding-log 5/60s",
        "sliding-log 1/60s count=all",
        "sliding-window 1000/1min",
        "sliding-window 1/1us",
        "min-interval 200ms",
        "min-interval 3650d",
        "pacer 10/s queue=20",
        "pacer 3/s queue=0",
        "smooth 10/s",
        "smooth 1/min",
        "smooth 10/s burst=20 initial=5",
        "smooth 10/s warmup=4s cold=2.5",
        "smooth 1/3650d burst=10",
        "smooth 1000000000/us burst=1000000000",
        "concurrency 1",
        "concurrency 1 ttl=1us",
        "concurrency 10 ttl=30s",
        "concurrency 1000000000 ttl=3650d",
    ] {
        let output = sluice(&["explain", limit], "");
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{limit}: {}", stderr(&output));
        for heading in ["What it does  ", "Promise  ", "Worst case  ", "Memory per key", "at  ", " yes "] {
            assert!(text.contains(heading), "{limit}: no {heading}in\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 104),
            "{limit}: a line is too long in\n{text}"
        );
    }
}

#[test]
fn each_limit_of_a_list_is_explained() {
    let limits = ["token-bucket 30/60s burst=15", "fixed-window 1k/day"];
    let list = sluice(&["explain", &limits.join(" + ")], "");
    let [first, second] = limits.map(|limit| stdout(&sluice(&["explain", limit], "")));
    let together = "Together       A call is charged to all of these limits, or to none and is denied.\n";
    assert_eq!(
        stdout(&list),
        format!("token-bucket 30/min burst=15 + fixed-window 1000/d\n\n{together}\n{first}\n{second}")
    );
    let output = sluice(&["explain", "pacer 1/s + smooth 1/s"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("smooth does not go with other limits"));
    let output = sluice(&["explain", "100/min"], "");
    assert!(stderr(&output).ends_with("name an algorithm, for example token-bucket 100/min\n"));
}

#[test]
fn quotes_are_optional() {
    let (quoted, plain) = (["explain", "sliding-log 5/60s"], ["explain", "sliding-log", "5/60s"]);
    assert_eq!(stdout(&sluice(&quoted, "")), stdout(&sluice(&plain, "")));
}

#[test]
fn an_error_is_one_line_and_exit_code_2() {
    let output = sluice(&["explain", "token-bucket 5/s brust=3"], "");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "sluice: token-bucket 5/s brust=3: unknown option \"brust\"; did you mean burst=?\n"
    );
}

#[test]
fn help_has_examples_and_version_prints_it() {
    let help = stdout(&sluice(&["--help"], ""));
    for limit in
        ["token-bucket 30/60s burst=15", "sliding-log 5/60s", "min-interval 200ms", "pacer 10/s queue=20"]
    {
        assert!(help.contains(limit), "{limit} is not in the help");
    }
    assert!(
        stdout(&sluice(&["explain", "--help"], "")).contains("sluice explain 'token-bucket 30/60s burst=15'")
    );
    assert_eq!(stdout(&sluice(&["--version"], "")), concat!("sluice ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// The page on limits shows what the command prints.
#[test]
fn the_docs_show_what_explain_prints() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md")).unwrap();
    let text = stdout(&sluice(&["explain", "token-bucket 30/60s burst=15"], ""));
    assert!(page.contains(&text), "docs/limits.md should show\n{text}");
}

/// The worst case that explain tells is reached, and never exceeded, by callers who take all they
/// can.
#[test]
fn the_worst_case_is_true() {
    for (limit, period) in [
        ("token-bucket 3/7us burst=2", 7),
        ("token-bucket 3/7us burst=9", 7),
        ("token-bucket 50/7us burst=2", 7),
        ("leaky-bucket 1/5us capacity=3", 5),
        ("fixed-window 3/7us", 7),
        ("fixed-window 3/7us start=first", 7),
        ("sliding-log 3/7us", 7),
        ("sliding-window 3/7us", 7),
        ("sliding-window 1/7us", 7),
        ("min-interval 7us", 7),
    ] {
        let text = stdout(&sluice(&["explain", limit], ""));
        let said = text.lines().find_map(|line| line.strip_prefix("Worst case")).unwrap();
        let said: u64 =
            said.split(|letter: char| !letter.is_ascii_digit()).find_map(|word| word.parse().ok()).unwrap();
        assert_eq!(worst_of_all(limit, period), said, "{limit}");
    }
}

/// The most that any period admits, to callers who perhaps take one at first and then, from some
/// moment on, all they can.
fn worst_of_all(limit: &str, period: u64) -> u64 {
    use sluicegate_core::{Account, Time};
    let at = |micros| Time::from_micros(micros).unwrap();
    let limits = [limit.parse::<sluicegate::Limit>().unwrap().made_at(at(0)).unwrap()];
    let mut worst = 0;
    for (first, from) in [0, 1].into_iter().flat_map(|first| (0..2 * period).map(move |from| (first, from))) {
        let mut account = Account::default();
        let end = from + 4 * period;
        let taken: Vec<u64> = (0..end)
            .map(|now| {
                let up_to = if now >= from { u64::MAX } else { u64::from(now == 0) * first };
                account.take(&limits, at(now), up_to).unwrap().1
            })
            .collect();
        let width = usize::try_from(period).unwrap();
        worst = taken.windows(width).map(|stretch| stretch.iter().sum()).max().unwrap_or(0).max(worst);
    }
    worst
}
