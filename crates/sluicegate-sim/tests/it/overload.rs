//! Overload: what is known exactly, what must add up, and what protections are for.

use sluicegate_core::Span;
use sluicegate_sim::Traffic;
use sluicegate_sim::overload::{Outcome, Scenario};
use sluicegate_sim::traffic::Reading;
use sluicegate_sim::traffic::workload::generate;

fn traffic(workload: &str) -> Traffic {
    generate(&[workload.parse().unwrap()], 1, Span::ZERO, Reading::default(), |_| {}).unwrap()
}

fn run(workload: &str, callers: &str, dependency: &str, protection: &str) -> Outcome {
    let traffic = traffic(workload);
    let (dependency, callers) = (dependency.parse().unwrap(), callers.parse().unwrap());
    let scenario = Scenario { traffic: &traffic, dependency, callers, seed: 1 };
    let outcome = scenario.run(&protection.parse().unwrap()).unwrap();
    let totals = outcome.totals;
    let all = totals.good + totals.denied + totals.failed + totals.timed_out;
    assert_eq!(all, totals.offered, "every call ends in one way: {totals:?}");
    assert_eq!(totals.offered, traffic.calls().len() as u64);
    assert_eq!(outcome.bins.iter().map(|bin| bin.good).sum::<u64>(), totals.good, "in pieces as in all");
    assert_eq!(outcome.bins.iter().map(|bin| bin.offered).sum::<u64>(), totals.offered);
    assert!(totals.wasted <= totals.worked && totals.tries >= totals.offered);
    outcome
}

fn millis(millis: u64) -> Span {
    Span::from_micros(millis * 1_000)
}

#[test]
fn a_dependency_with_time_to_spare_needs_no_protection() {
    let outcome = run("steady 5/s for=20s", "timeout=1s", "workers=1 takes=100ms random=0%", "none").totals;
    assert_eq!((outcome.good, outcome.tries), (100, 100));
    assert_eq!((outcome.p50, outcome.p99, outcome.wasted), (millis(100), millis(100), Span::ZERO));
    assert_eq!(outcome.worked, millis(10_000));
}

#[test]
fn without_protection_a_queue_that_was_once_too_long_answers_no_call_in_time() {
    // Call number k comes at 50 k ms, its turn at 100 k ms: it takes 100 + 50 k ms, which is a
    // second for number 18.
    let outcome = run("steady 20/s for=20s", "timeout=1s", "workers=1 takes=100ms random=0%", "none").totals;
    assert_eq!((outcome.good, outcome.timed_out), (19, 381));
    assert_eq!(outcome.worked, millis(40_000), "it worked all the time,");
    assert_eq!(outcome.wasted, millis(38_100), "without a caller");
    assert_eq!(outcome.p99, millis(1_000));
}

#[test]
fn a_bulkhead_refuses_what_could_not_be_answered_in_time() {
    let outcome =
        run("steady 20/s for=20s", "timeout=1s", "workers=1 takes=100ms random=0%", "bulkhead 5").totals;
    // Ten a second is all that it can do, and the first five are in at once.
    assert_eq!((outcome.good, outcome.timed_out, outcome.failed), (204, 0, 0));
    assert_eq!((outcome.wasted, outcome.limit), (Span::ZERO, Some((5, 5))));
    assert!(outcome.p99 <= millis(500));
}

#[test]
fn the_same_seed_gives_the_same_numbers_and_another_does_not() {
    let traffic = traffic("poisson 100/s for=20s");
    let of_seed = |seed| {
        let dependency = "workers=5 takes=50ms fail=5s..10s:50%".parse().unwrap();
        let callers = "timeout=500ms retries=1".parse().unwrap();
        let scenario = Scenario { traffic: &traffic, dependency, callers, seed };
        let outcome = scenario.run(&"breaker 50%/2s + gradient 10 min=2".parse().unwrap()).unwrap();
        (outcome.totals, outcome.bins)
    };
    assert_eq!(of_seed(1), of_seed(1));
    assert_ne!(of_seed(1), of_seed(2));
}

const WORKLOAD: &str = "poisson 150/s for=90s";
const SLOW: &str = "workers=10 takes=50ms slow=20s..40s:x10";
const FAILING: &str = "workers=10 takes=50ms fail=20s..40s:100%";

#[test]
fn callers_who_try_again_at_once_make_a_bad_time_last() {
    let patient = run(WORKLOAD, "timeout=1s", SLOW, "none");
    let naive = run(WORKLOAD, "timeout=1s retries=2", SLOW, "none");
    let good_at_the_end = |outcome: &Outcome| outcome.bins[80..].iter().map(|bin| bin.good).sum::<u64>();
    assert!(naive.totals.tries > 2 * naive.totals.offered, "{:?}", naive.totals);
    assert!(good_at_the_end(&naive) == 0, "forty seconds after it is over, no caller has an answer");
    assert!(naive.totals.good < patient.totals.good);
}

#[test]
fn every_protection_is_better_than_none_when_a_dependency_slows_down() {
    let none = run(WORKLOAD, "timeout=1s retries=2", SLOW, "none").totals;
    for protection in [
        "bulkhead 20",
        "aimd 20 min=5",
        "gradient 20 min=5",
        "breaker 50%/10s",
        "breaker 50%/10s + aimd 20 min=5",
    ] {
        let with = run(WORKLOAD, "timeout=1s retries=2", SLOW, protection).totals;
        assert!(with.good > 2 * none.good, "{protection}: {with:?} and {none:?}");
        assert!(with.wasted < none.wasted, "{protection}: {with:?} and {none:?}");
    }
}

#[test]
fn a_breaker_spares_callers_the_wait_for_errors_and_opens_again_when_it_is_over() {
    let outcome = run(WORKLOAD, "timeout=1s", FAILING, "breaker 50%/10s");
    let is_open = |second: usize| outcome.bins[second].is_open;
    assert!(is_open(30) && !is_open(10) && !is_open(55), "open while it fails, and only then");
    assert!(outcome.totals.failed * 2 < outcome.totals.denied, "{:?}", outcome.totals);
    assert!(outcome.bins[50..].iter().all(|bin| bin.good == bin.offered));
}

#[test]
fn an_adaptive_limit_finds_what_the_dependency_can_do() {
    // 10 workers, more calls than they can do: the right limit is 10 and a little for those who
    // wait.
    let outcome = run("poisson 400/s for=60s", "timeout=1s", "workers=10 takes=50ms", "gradient 50 min=2");
    let last = outcome.bins.last().and_then(|bin| bin.limit).unwrap();
    assert!((10..=40).contains(&last), "{last}");
    let slow = run(WORKLOAD, "timeout=1s", SLOW, "aimd 50 min=2 timeout=300ms");
    let limit = |second: usize| slow.bins[second].limit.unwrap();
    assert!(limit(39) < limit(19), "{} and {}", limit(39), limit(19));
}

#[test]
fn a_full_backlog_refuses_at_once() {
    let outcome =
        run("steady 20/s for=20s", "timeout=1s", "workers=1 takes=100ms random=0% backlog=4", "none").totals;
    assert_eq!(outcome.good, 204);
    assert!(outcome.failed > 190 && outcome.timed_out == 0, "{outcome:?}");
}

#[test]
fn mistakes_in_lines_say_what_to_write() {
    let callers =
        |text: &str| text.parse::<sluicegate_sim::overload::Callers>().map_err(|error| error.to_string());
    assert_eq!(
        callers("timeout=1s retries=2 backoff=50ms").unwrap().to_string(),
        "timeout=1s retries=2 backoff=50ms"
    );
    assert_eq!(
        callers("retries=11").unwrap_err(),
        r#"callers "retries=11": retries=11 is above the maximum, 10; use fewer, 2 is many"#
    );
    assert!(callers("timeout=0s").unwrap_err().contains("timeout=0s is not from 1us to 1h"));
    assert!(callers("retry=1").unwrap_err().contains("callers take timeout=DURATION retries=N"));
    assert!(callers(&"x".repeat(300)).unwrap_err().contains("its 300 bytes are above the maximum, 256"));
}
