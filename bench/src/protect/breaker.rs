//! A call through a breaker that lets it pass, and one that it denies.
//!
//! The same work: `recloser` has a window of calls, `failsafe` one of time (with a moving average
//! in place of exact counts). Denials of `failsafe` are those of any of its policies; one that
//! opens at the first failure spares it ten seconds of failing.

use super::{cpu_nanos, cpu_nanos_of_two, table};
use crate::measure::{Contender, interleaved};
use failsafe::backoff::constant;
use failsafe::failure_policy::{consecutive_failures, success_rate_over_time_window};
use failsafe::{CircuitBreaker as _, Config};
use recloser::Recloser;
use sluicegate_guard::Breaker;
use std::hint::black_box;
use std::time::Duration;

const CALLS: u64 = 200_000;

const ASK: &str = "`ask` and `success`";
const CALL: &str = "`call`";
const RECLOSER: &str = "recloser, `call`";
const FAILSAFE: &str = "failsafe, `call`";
const FAILSAFE_ASK: &str = "failsafe, `is_call_permitted` and `on_success`";

/// What is called.
fn works() -> Result<u64, ()> {
    Ok(black_box(1))
}

fn fails_now_and_then(number: u64) -> Result<u64, ()> {
    if number.is_multiple_of(10) { Err(()) } else { works() }
}

pub fn run(rounds: usize) {
    let hour = Duration::from_secs(3600);
    let calls = Breaker::new("breaker 50%/100calls").expect("a breaker");
    let time = Breaker::new("breaker 50%/10s").expect("a breaker");
    let recloser = Recloser::custom().error_rate(0.5).closed_len(100).build();
    let policy = success_rate_over_time_window(0.5, 20, Duration::from_secs(10), constant(hour));
    let failsafe = Config::new().failure_policy(policy).build();

    let ask = |breaker: &Breaker| {
        for _ in 0..CALLS {
            if let Ok(admitted) = black_box(breaker).try_acquire().admitted() {
                let _ = works();
                admitted.success();
            }
        }
    };
    let call = |breaker: &Breaker| {
        for _ in 0..CALLS {
            assert!(black_box(breaker).call(works).is_ok());
        }
    };
    let call_recloser = || {
        for _ in 0..CALLS {
            assert!(black_box(&recloser).call(works).is_ok());
        }
    };
    let call_failsafe = || {
        for _ in 0..CALLS {
            assert!(black_box(&failsafe).call(works).is_ok());
        }
    };
    let ask_failsafe = || {
        for _ in 0..CALLS {
            assert!(black_box(&failsafe).is_call_permitted());
            let _ = works();
            failsafe.on_success();
        }
    };

    let contenders: Vec<Contender<'_>> = vec![
        (ASK.to_owned(), Box::new(|| cpu_nanos(CALLS, || ask(&calls)))),
        (CALL.to_owned(), Box::new(|| cpu_nanos(CALLS, || call(&calls)))),
        (RECLOSER.to_owned(), Box::new(|| cpu_nanos(CALLS, call_recloser))),
    ];
    let figures = interleaved(contenders, rounds);
    table("A successful call, a window of 100 calls", &figures, &[ASK, CALL], &[RECLOSER]);

    let ten_ours = || {
        for number in 0..CALLS {
            let result = black_box(&calls).call(|| fails_now_and_then(number));
            assert!(result.is_ok() == (number % 10 != 0));
        }
    };
    let ten_recloser = || {
        for number in 0..CALLS {
            let result = black_box(&recloser).call(|| fails_now_and_then(number));
            assert!(result.is_ok() == (number % 10 != 0));
        }
    };
    let contenders: Vec<Contender<'_>> = vec![
        (CALL.to_owned(), Box::new(|| cpu_nanos(CALLS, ten_ours))),
        (RECLOSER.to_owned(), Box::new(|| cpu_nanos(CALLS, ten_recloser))),
    ];
    let figures = interleaved(contenders, rounds);
    table("The same, where every tenth call fails", &figures, &[CALL], &[RECLOSER]);
    // All that failed are out of the windows.
    call(&calls);
    call_recloser();

    let contenders: Vec<Contender<'_>> = vec![
        (ASK.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, || ask(&calls)))),
        (CALL.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, || call(&calls)))),
        (RECLOSER.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, call_recloser))),
    ];
    let figures = interleaved(contenders, rounds);
    let what = "A successful call, a window of 100 calls, two threads at once";
    table(what, &figures, &[ASK, CALL], &[RECLOSER]);

    let contenders: Vec<Contender<'_>> = vec![
        (ASK.to_owned(), Box::new(|| cpu_nanos(CALLS, || ask(&time)))),
        (CALL.to_owned(), Box::new(|| cpu_nanos(CALLS, || call(&time)))),
        (FAILSAFE.to_owned(), Box::new(|| cpu_nanos(CALLS, call_failsafe))),
        (FAILSAFE_ASK.to_owned(), Box::new(|| cpu_nanos(CALLS, ask_failsafe))),
    ];
    let figures = interleaved(contenders, rounds);
    table("A successful call, a window of 10 seconds", &figures, &[ASK, CALL], &[FAILSAFE, FAILSAFE_ASK]);

    let contenders: Vec<Contender<'_>> = vec![
        (ASK.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, || ask(&time)))),
        (CALL.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, || call(&time)))),
        (FAILSAFE.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, call_failsafe))),
        (FAILSAFE_ASK.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, ask_failsafe))),
    ];
    let figures = interleaved(contenders, rounds);
    table("The same, two threads at once", &figures, &[ASK, CALL], &[FAILSAFE, FAILSAFE_ASK]);

    denied(rounds);
}

fn denied(rounds: usize) {
    let fails = || Err::<u64, ()>(());
    let hour = Duration::from_secs(3600);
    let ours = Breaker::new("breaker 50%/1calls open=1h").expect("a breaker");
    let recloser = Recloser::custom().error_rate(0.5).closed_len(1).open_wait(hour).build();
    let failsafe = Config::new().failure_policy(consecutive_failures(1, constant(hour))).build();
    for _ in 0..3 {
        assert!(ours.call(fails).is_err() && recloser.call(fails).is_err() && failsafe.call(fails).is_err());
    }
    let denied_ours = || {
        for _ in 0..CALLS {
            assert!(black_box(&ours).call(works).is_err());
        }
    };
    let denied_recloser = || {
        for _ in 0..CALLS {
            assert!(black_box(&recloser).call(works).is_err());
        }
    };
    let denied_failsafe = || {
        for _ in 0..CALLS {
            assert!(black_box(&failsafe).call(works).is_err());
        }
    };
    let contenders: Vec<Contender<'_>> = vec![
        (CALL.to_owned(), Box::new(|| cpu_nanos(CALLS, denied_ours))),
        (RECLOSER.to_owned(), Box::new(|| cpu_nanos(CALLS, denied_recloser))),
        (FAILSAFE.to_owned(), Box::new(|| cpu_nanos(CALLS, denied_failsafe))),
    ];
    table("A denied call", &interleaved(contenders, rounds), &[CALL], &[RECLOSER, FAILSAFE]);

    let contenders: Vec<Contender<'_>> = vec![
        (CALL.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, denied_ours))),
        (RECLOSER.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, denied_recloser))),
        (FAILSAFE.to_owned(), Box::new(|| cpu_nanos_of_two(CALLS, denied_failsafe))),
    ];
    let figures = interleaved(contenders, rounds);
    table("The same, two threads at once", &figures, &[CALL], &[RECLOSER, FAILSAFE]);
}
