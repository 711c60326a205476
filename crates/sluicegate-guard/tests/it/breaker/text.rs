//! A breaker's configuration as text: what parses, how it prints, and the error of each invalid
//! line.

use sluicegate_guard::breaker::{BreakerConfig, DURATION_MAX, PROBES_MAX, WINDOW_CALLS_MAX};

const UNITS: &str = "us ms s min h d (or second minute hour day, and for fixed-window also week month year)";
const TAKES: &str = "breaker takes min=N open=DURATION probes=N probe-ttl=DURATION slow=DURATION slow-rate=PERCENT mode=metrics-only";

fn printed(text: &str) -> String {
    text.parse::<BreakerConfig>().unwrap_or_else(|error| panic!("{error}")).to_string()
}

fn error_of(text: &str) -> String {
    text.parse::<BreakerConfig>().unwrap_err().to_string()
}

#[test]
fn equal_configurations_print_the_same() {
    for (written, canonical) in [
        ("breaker 50%/10s", "breaker 50%/10s"),
        ("  breaker \t 050%/10000ms ", "breaker 50%/10s"),
        ("breaker 50%/60s", "breaker 50%/min"),
        ("breaker 50%/1s", "breaker 50%/s"),
        (
            "breaker 50%/10s min=20 open=5s probes=1 probe-ttl=5s slow=2s slow-rate=100% mode=metrics-only",
            "breaker 50%/10s slow=2s mode=metrics-only",
        ),
        (
            "breaker 50%/100calls min=100 open=60s probes=10 slow=60s slow-rate=100%",
            "breaker 50%/100calls open=1min probes=10 slow=1min",
        ),
        ("breaker 1%/1call", "breaker 1%/1calls"),
        ("breaker 50%/100calls min=20", "breaker 50%/100calls min=20"),
        ("breaker 50%/10s probe-ttl=1min open=60s", "breaker 50%/10s open=1min"),
        ("breaker 50%/10s probe-ttl=5s open=60s", "breaker 50%/10s open=1min probe-ttl=5s"),
        ("breaker 50%/10s slow-rate=80% slow=250ms", "breaker 50%/10s slow=250ms slow-rate=80%"),
    ] {
        assert_eq!(printed(written), canonical, "{written}");
        assert_eq!(printed(canonical), canonical, "{canonical} printed again");
        assert_eq!(written.parse::<BreakerConfig>().unwrap(), canonical.parse().unwrap(), "{written}");
    }
    assert_ne!(
        "breaker 50%/10s".parse::<BreakerConfig>().unwrap(),
        "breaker 50%/10s probe-ttl=6s".parse().unwrap()
    );
}

#[test]
fn each_error_names_the_word() {
    let rows = [
        ("breakr 50%/10s", r#"unknown word "breakr"; did you mean breaker?"#.to_owned()),
        ("breaker", "breaker needs its measure right after it; write breaker 50%/10s".to_owned()),
        ("breaker min=5", "breaker needs its measure right after it; write breaker 50%/10s".to_owned()),
        ("breaker 50%", r#""50%" is not PERCENT/WINDOW; write the rate and the window without a space, such as 50%/10s or 50%/100calls"#.to_owned()),
        ("breaker 50/10s", r#"failure rate "50" has no %; write 50%"#.to_owned()),
        ("breaker 0.5/10s", r#"failure rate "0.5" has no %; write 50%"#.to_owned()),
        ("breaker 0.05/10s", r#"failure rate "0.05" has no %; write 5%"#.to_owned()),
        ("breaker 0/10s", r#"failure rate "0" has no %; write 50%"#.to_owned()),
        ("breaker half/10s", r#"failure rate "half" has no %; write 50%"#.to_owned()),
        ("breaker 5.5%/10s", r#"failure rate "5.5" is not a whole number; write a whole percentage, such as 50%"#.to_owned()),
        ("breaker 0%/10s", "failure rate 0 is below the minimum, 1; 0% would open it at once, use 1% to 100%".to_owned()),
        ("breaker 101%/10s", "failure rate 101 is above the maximum, 100; use 1% to 100%".to_owned()),
        ("breaker 50%/", "the window after / is missing; write a time such as 10s, or calls such as 100calls, up to 100000".to_owned()),
        ("breaker 50%/100", r#"window "100" has no unit; write a time such as 10s, or calls such as 100calls, up to 100000"#.to_owned()),
        ("breaker 50%/10x", format!(r#"unknown unit "x"; use {UNITS}"#)),
        ("breaker 50%/month", r#""month" is a calendar unit of fixed-window; use 30d, or fixed-window"#.to_owned()),
        ("breaker 50%/calls", r#"window of calls "" is not a whole number; write a number up to 1000000000000, such as 500, 1_000 or 2k"#.to_owned()),
        ("breaker 50%/0calls", "window of calls 0 is below the minimum, 1; use at least 1 call".to_owned()),
        ("breaker 50%/100001calls", "window of calls 100001 is above the maximum, 100000; use a window of time, such as 10s".to_owned()),
        ("breaker 50%/99999999999calls", "window of calls 4294967295 is above the maximum, 100000; use a window of time, such as 10s".to_owned()),
        ("breaker 50%/999us", "window 999us is below the minimum, 1ms; use at least 1ms".to_owned()),
        ("breaker 50%/86400000001us", "window 86400000001us is above the maximum, 1d; use at most 1d".to_owned()),
        ("breaker 50%/10s min=0", "min 0 is below the minimum, 1; use at least 1, to open at the first failure".to_owned()),
        ("breaker 50%/10s min=1000000001", "min 1000000001 is above the maximum, 1000000000; use a smaller number".to_owned()),
        ("breaker 50%/10calls min=11", "min 11 is above the maximum, 10; the window holds no more calls, use fewer".to_owned()),
        ("breaker 50%/10s open=0s", "open 0s is below the minimum, 1us; use at least 1us".to_owned()),
        ("breaker 50%/10s open=2d", "open 2d is above the maximum, 1d; use at most 1d".to_owned()),
        ("breaker 50%/10s open=5", format!(r#""5" has no unit; add one of {UNITS}"#)),
        ("breaker 50%/10s probes=0", "probes 0 is below the minimum, 1; without a probe it would stay open forever, use at least 1".to_owned()),
        ("breaker 50%/10s probes=1001", "probes 1001 is above the maximum, 1000; use fewer".to_owned()),
        ("breaker 50%/10s probe-ttl=0s", "probe-ttl 0s is below the minimum, 1us; use at least 1us".to_owned()),
        ("breaker 50%/10s slow=0s", "slow 0s is below the minimum, 1us; use at least 1us".to_owned()),
        ("breaker 50%/10s slow=1s slow-rate=0%", "slow-rate 0 is below the minimum, 1; 0% would open it at once, use 1% to 100%".to_owned()),
        ("breaker 50%/10s slow=1s slow-rate=80", r#"slow-rate "80" has no %; write 80%"#.to_owned()),
        ("breaker 50%/10s slow-rate=80%", "slow-rate= has no effect without slow=; add slow=, such as slow=2s, or omit slow-rate=".to_owned()),
        ("breaker 50%/10s mode=off", r#"unknown mode="off"; use mode=metrics-only, or omit it"#.to_owned()),
        ("breaker 50%/10s burst=5", format!(r#"unknown option "burst"; {TAKES}"#)),
        ("breaker 50%/10s min", format!(r#""min" is not an option; {TAKES}"#)),
        ("breaker 50%/10s min=", format!(r#""min=" has no value; {TAKES}"#)),
        ("breaker 50%/10s min=2 min=3", r#""min" is given twice; keep one of them"#.to_owned()),
    ];
    for (text, expected) in rows {
        assert_eq!(error_of(text), format!("{text}: {expected}"));
    }
    assert_eq!(error_of(""), "the breaker is empty; write one, such as breaker 50%/10s");
    assert!(
        error_of(&"x".repeat(257)).ends_with(
            "a breaker of 257 bytes is above the maximum, 256; write one, such as breaker 50%/10s"
        )
    );
    assert!(!error_of("breaker\n50%/10\u{202e}s").contains(['\n', '\u{202e}']));
}

#[test]
fn the_bounds_themselves_are_valid() {
    assert_eq!((WINDOW_CALLS_MAX, PROBES_MAX, DURATION_MAX.to_string().as_str()), (100_000, 1_000, "1d"));
    for text in [
        "breaker 1%/1ms min=1 open=1us probes=1 probe-ttl=1us slow=1us slow-rate=1%",
        "breaker 100%/1d min=1000000000 open=1d probes=1000 probe-ttl=1d slow=1d slow-rate=100%",
        "breaker 100%/100000calls min=100000",
        "breaker 1%/1calls min=1",
    ] {
        let rules: BreakerConfig = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(printed(&rules.to_string()), rules.to_string());
    }
}

/// Whatever comes in, one line comes out, and what is read is printed so that it is read again.
#[test]
fn any_words_parse_or_fail_with_one_line() {
    let words = [
        "breaker",
        "50%/10s",
        "50%/100calls",
        "min=",
        "min=5",
        "open=1s",
        "probes=3",
        "probe-ttl=2s",
        "slow=1s",
        "slow-rate=50%",
        "mode=metrics-only",
        "%",
        "/",
        "=",
        "0%/0s",
        "\u{0}",
        "é%/1s",
        "1%/é",
        "min=é",
        "100%/1d",
    ];
    let mut state = 7_u64;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound).unwrap()
    };
    let mut read = 0;
    for _ in 0..20_000 {
        let mut text = if below(4) > 0 { "breaker 50%/10s".to_owned() } else { String::new() };
        for _ in 0..below(5) {
            text += " ";
            text += words[below(words.len() as u64)];
        }
        match text.parse::<BreakerConfig>() {
            Ok(rules) => {
                read += 1;
                assert_eq!(rules.to_string().parse::<BreakerConfig>().unwrap(), rules, "{text}");
            }
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{text}"),
        }
    }
    assert!(read > 2_000, "{read}");
}
