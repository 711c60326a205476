//! Workloads: what they are made of, and that they are the same every time.

use sluicegate_core::Span;
use sluicegate_sim::Traffic;
use sluicegate_sim::traffic::workload::{KEYS_MAX, START, Workload, generate};
use sluicegate_sim::traffic::{Reading, TrafficError};
use std::collections::BTreeMap;

const MINUTE: Span = Span::from_micros(60_000_000);

fn traffic(texts: &[&str], seed: u64) -> Traffic {
    let workloads: Vec<Workload> = texts.iter().map(|text| text.parse().unwrap()).collect();
    generate(&workloads, seed, MINUTE, Reading::default(), |_| {}).unwrap()
}

/// The times of the calls in milliseconds from the beginning.
fn millis(text: &str) -> Vec<u64> {
    let micros = |call: &sluicegate_sim::traffic::Call| call.at.since(START).as_micros();
    traffic(&[text], 1).calls().iter().map(|call| micros(call) / 1000).collect()
}

#[test]
fn steady_calls_are_evenly_apart_and_stop_in_time() {
    assert_eq!(millis("steady 4/s for=1s"), [0, 250, 500, 750]);
    assert_eq!(millis("steady 3/s for=1s after=2s"), [2000, 2333, 2666]);
    assert_eq!(millis("steady 1/min").len(), 10, "ten of its periods unless it says otherwise");
    assert_eq!(millis("steady 1/s").len(), 60, "and at least as long as requested");
    // Exact over a long time: the last of 7 a second does not drift.
    assert_eq!(millis("steady 7/s for=1h").last(), Some(&3_599_857));
}

#[test]
fn bursts_come_at_once() {
    assert_eq!(millis("burst 3/10s for=15s"), [0, 0, 0, 10_000, 10_000, 10_000]);
}

#[test]
fn on_and_off_take_turns() {
    assert_eq!(millis("on-off 2/s on=1s off=3s for=9s"), [0, 500, 4000, 4500, 8000, 8500]);
    assert_eq!(millis("on-off 2/s on=1s for=3s"), [0, 500, 2000, 2500], "off defaults to on");
}

#[test]
fn a_ramp_goes_from_slow_to_fast_and_back() {
    // From 0 to 10 a second in 10 s are 50 calls; by time t there have been t^2 / 2.
    let up = millis("ramp 10/s for=10s");
    assert_eq!(up.len(), 50);
    assert_eq!((up[0], up[8], up[18]), (0, 4000, 6000));
    assert_eq!(millis("ramp 10/s from=10/s for=1s"), millis("steady 10/s for=1s"));
    let down = millis("ramp 1/s from=9/s for=10s");
    assert_eq!(down.len(), 50);
    let first_half = down.iter().filter(|at| **at <= 5000).count();
    assert_eq!(first_half, 36, "9 to 5 a second for 5 s");
}

#[test]
fn an_edge_is_met_from_both_sides() {
    let calls = millis("edge 3/60s spread=3s for=5min");
    assert_eq!(
        calls,
        [
            57_000, 58_000, 59_000, 60_000, 61_000, 62_000, 177_000, 178_000, 179_000, 180_000, 181_000,
            182_000, 297_000, 298_000, 299_000
        ]
    );
}

/// Windows begin with the epoch, wherever the workload does: in each of two windows that meet, all
/// of the count.
#[test]
fn an_edge_is_one_of_the_clock() {
    for text in ["edge 5/11s", "edge 5/60s after=10s", "edge 5/7s after=3s spread=7s"] {
        let (traffic, period) = (traffic(&[text], 1), text.parse::<Workload>().map(|_| text).unwrap());
        let micros: u64 = period.split(['/', 's']).nth(1).unwrap().parse::<u64>().unwrap() * 1_000_000;
        let mut windows: BTreeMap<u64, u32> = BTreeMap::new();
        for call in traffic.calls() {
            *windows.entry(call.at.as_micros() / micros).or_default() += 1;
        }
        let full = windows.values().filter(|count| **count == 5).count();
        assert!(full >= 8 && windows.values().all(|count| *count <= 5), "{text}: {windows:?}");
    }
}

#[test]
fn the_examples_of_the_help_are_workloads() {
    let mut read = 0;
    for line in sluicegate_sim::traffic::workload::HELP.lines() {
        if let Some((workload, _)) = line.split_once("  ").filter(|(words, _)| words.contains('/')) {
            assert!(workload.parse::<Workload>().is_ok(), "{workload}");
            read += 1;
        }
    }
    assert_eq!(read, 6);
}

#[test]
fn random_calls_come_as_often_as_said_at_random_times() {
    let calls = millis("poisson 100/s for=100s");
    // 10 000 give or take five standard deviations.
    assert!((9_500..10_500).contains(&calls.len()), "{}", calls.len());
    let gaps: Vec<u64> = calls.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let short = gaps.iter().filter(|gap| **gap < 10).count();
    // Of exponential gaps 63 % are shorter than the mean.
    assert!((6_000..6_700).contains(&short), "{short}");
}

#[test]
fn the_same_seed_gives_the_same_calls_and_another_one_others() {
    let texts = ["poisson 50/s keys=100 zipf=1.2", "poisson 5/s key=other"];
    let calls = |seed| traffic(&texts, seed).calls().to_vec();
    assert_eq!(calls(7), calls(7));
    assert_ne!(calls(7), calls(8));
    // Pinned, so that pictures and figures stay the same from version to version and machine to
    // machine.
    let first: Vec<u64> = traffic(&["poisson 1/s"], 1)
        .calls()
        .iter()
        .take(3)
        .map(|call| call.at.since(START).as_micros())
        .collect();
    assert_eq!(first, [1_096_793, 2_226_769, 2_588_156]);
}

#[test]
fn a_workload_is_the_same_alone_and_beside_others() {
    let alone = traffic(&["poisson 9/s keys=5"], 3);
    let both = traffic(&["poisson 9/s keys=5", "steady 1/s key=late"], 3);
    let of_first: Vec<_> = both
        .calls()
        .iter()
        .filter(|call| both.key(call.key) != b"late")
        .map(|call| (call.at, both.key(call.key)))
        .collect();
    let alone: Vec<_> = alone.calls().iter().map(|call| (call.at, alone.key(call.key))).collect();
    assert_eq!(of_first, alone);
    assert!(both.calls().is_sorted_by_key(|call| call.at));
}

#[test]
fn popular_keys_call_more_often() {
    let crowd = traffic(&["steady 1000/s keys=50 zipf=1 key=user for=100s"], 1);
    let mut calls: BTreeMap<&[u8], u32> = BTreeMap::new();
    for call in crowd.calls() {
        *calls.entry(crowd.key(call.key)).or_default() += 1;
    }
    assert_eq!(calls.len(), 50);
    let (first, second, tenth) = (calls[&b"user-1"[..]], calls[&b"user-2"[..]], calls[&b"user-10"[..]]);
    assert!((19..21).contains(&(first * 10 / second)), "{first} {second}");
    assert!((9..11).contains(&(first / tenth)), "{first} {tenth}");
}

#[test]
fn costs_are_as_said() {
    assert!(traffic(&["steady 5/s cost=7"], 1).calls().iter().all(|call| call.cost == 7));
}

#[test]
fn too_many_calls_and_none_are_refused() {
    let refuse = |text: &str, calls_max| {
        let workload = text.parse().unwrap();
        generate(&[workload], 1, MINUTE, Reading { calls_max, strict: false }, |_| {}).unwrap_err()
    };
    let error = refuse("steady 1000000000/us", 1000);
    assert!(matches!(error, TrafficError::TooMany(1000)));
    assert_eq!(error.to_string(), "there are more than 1000 calls; take a part of them, or allow for more");
    assert!(
        generate(
            &["steady 10/s for=1s".parse().unwrap()],
            1,
            MINUTE,
            Reading { calls_max: 10, strict: false },
            |_| {}
        )
        .is_ok()
    );
    assert_eq!(
        refuse("edge 5/1h for=1s", 1000).to_string(),
        "there is not a single call; let it last longer with for=, or raise the rate"
    );
}

#[test]
fn mistakes_are_answered_with_the_word_and_what_to_write() {
    let refuse = |text: &str| text.parse::<Workload>().unwrap_err().to_string();
    for (text, said) in [
        ("steady 0/s", r#"workload "steady 0/s": a rate of 0 makes no calls; use at least 1, such as 1/s"#),
        (
            "steady 5/s zipf=1",
            r#"workload "steady 5/s zipf=1": zipf= says how busy each of several keys is; add keys=1000, or leave zipf= out"#,
        ),
        ("", r#"workload "": it is empty; write one, such as poisson 20/s"#),
        ("poison 20/s", r#"workload "poison 20/s": unknown workload "poison"; did you mean poisson?"#),
        (
            "wave 20/s",
            r#"workload "wave 20/s": unknown workload "wave"; use steady burst poisson on-off ramp edge"#,
        ),
        ("poisson", r#"workload "poisson": poisson needs its rate right after it; write poisson 20/s"#),
        (
            "poisson keys=3",
            r#"workload "poisson keys=3": poisson needs its rate right after it; write poisson 20/s"#,
        ),
        (
            "poisson 20",
            r#"workload "poisson 20": "20" is not COUNT/PERIOD; write how many in how long without a space, such as 5/60s"#,
        ),
        (
            "steady 5/s on=3s",
            r#"workload "steady 5/s on=3s": unknown option "on"; steady, burst and poisson take for=10min after=10s cost=N key=NAME keys=N zipf=1.1"#,
        ),
        (
            "steady 5/s keys=2 zipf=x",
            r#"workload "steady 5/s keys=2 zipf=x": zipf="x" is not a number from 0 to 10; write zipf=1.1: 0 makes all keys alike, 1 is usual on the web, more is steeper"#,
        ),
        (
            "steady 5/s keys=0",
            r#"workload "steady 5/s keys=0": keys="0" is not a number from 1 to 10000000; write how many callers there are, such as keys=1000"#,
        ),
        (
            "steady 5/s for=0s",
            r#"workload "steady 5/s for=0s": for=0s is not from 1us to 3650d; write for=10s"#,
        ),
        (
            "steady 5/s for=99999d",
            r#"workload "steady 5/s for=99999d": for=99999d is not from 1us to 3650d; write for=10s"#,
        ),
        (
            "edge 5/1s spread=2s",
            r#"workload "edge 5/1s spread=2s": spread=2s is longer than the window, 1s; use a part of the window"#,
        ),
        (
            "steady 5/s keys=2 zipf=NaN",
            r#"workload "steady 5/s keys=2 zipf=NaN": zipf="NaN" is not a number from 0 to 10; write zipf=1.1: 0 makes all keys alike, 1 is usual on the web, more is steeper"#,
        ),
    ] {
        assert_eq!(refuse(text), said);
    }
    let too_many = format!("steady 5/s keys={}", KEYS_MAX + 1);
    assert!(refuse(&too_many).contains("keys=\"10000001\" is not a number from 1 to 10000000"));
    assert!(refuse(&"x".repeat(300)).contains("its 300 bytes are above the maximum, 256"));
}

/// Whatever is written, it is read or refused, and what is read is generated within its bounds.
#[test]
fn no_text_makes_it_panic() {
    let mut random = fastrand::Rng::with_seed(5);
    let words = [
        "steady",
        "burst",
        "poisson",
        "on-off",
        "ramp",
        "edge",
        "5/s",
        "1000000000/us",
        "1/3650d",
        "3/60s",
        "for=1s",
        "for=3650d",
        "after=1us",
        "keys=3",
        "zipf=0",
        "zipf=10",
        "on=1us",
        "off=1us",
        "from=9/s",
        "spread=1s",
        "cost=0",
        "key=x",
        "=",
        "é",
    ];
    let mut made = 0;
    for _ in 0..20_000 {
        let text: Vec<&str> = (0..random.usize(1..6)).map(|_| words[random.usize(..words.len())]).collect();
        let Ok(workload) = text.join(" ").parse::<Workload>() else { continue };
        made += 1;
        if let Ok(traffic) =
            generate(&[workload], 1, MINUTE, Reading { calls_max: 200, strict: false }, |_| {})
        {
            assert!(
                traffic.calls().iter().all(|call| call.at <= traffic.last() && call.at >= traffic.first()),
                "{text:?}"
            );
        }
    }
    assert!(made > 200, "{made}");
}

/// Also of windows so short that a part of them is less than a microsecond.
#[test]
fn an_edge_of_a_short_window_is_met_from_both_sides() {
    let micros: Vec<u64> = traffic(&["edge 2/8us for=16us"], 1)
        .calls()
        .iter()
        .map(|call| call.at.since(START).as_micros())
        .collect();
    assert_eq!(micros, [7, 7, 8, 8]);
}

/// Keys are numbered as they call, whichever workload or line they come from.
#[test]
fn keys_are_in_the_order_of_their_first_calls() {
    let both = traffic(&["burst 3/100s key=late after=30s for=100s", "burst 3/100s key=early for=100s"], 1);
    assert_eq!((both.key(0), both.key(1)), (&b"early"[..], &b"late"[..]));
    assert_eq!((both.calls()[0].key, both.calls()[3].key), (0, 1));
    assert_eq!(both.key_named(b"late"), Some(1));
    assert_eq!(both.keys(), 2);
}

#[test]
fn progress_is_reported_while_calls_are_made_up() {
    let mut reported = 0;
    let workload = "steady 10000/s for=60s".parse().unwrap();
    let made = generate(&[workload], 1, MINUTE, Reading::default(), |more| reported += more).unwrap();
    // All but a last piece that is not worth telling.
    assert!(reported <= 600_000 && reported > 500_000, "{reported}");
    assert_eq!(made.calls().len(), 600_000);
}
