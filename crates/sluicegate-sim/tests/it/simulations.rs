//! Simulations: the core's decisions, measured rightly.

use sluicegate::Limit;
use sluicegate_conformance::random;
use sluicegate_core::{Span, Time};
use sluicegate_sim::simulate::crowd::Crowd;
use sluicegate_sim::simulate::{Outcome, Simulation};
use sluicegate_sim::traffic::workload::generate;
use sluicegate_sim::traffic::{Call, Reading, csv};
use sluicegate_sim::{Replay, Traffic};

/// A traffic from rows of `at_us,key,cost`.
fn traffic(rows: impl IntoIterator<Item = (u64, String, u64)>) -> Traffic {
    let mut text = "at_us,key,cost\n".to_owned();
    for (at, key, cost) in rows {
        text += &format!("{at},{key},{cost}\n");
    }
    csv::read(text.as_bytes(), Reading { strict: true, ..Reading::default() }).unwrap()
}

fn workload(text: &str) -> Traffic {
    generate(&[text.parse().unwrap()], 1, Span::from_micros(60_000_000), Reading::default(), |_| {}).unwrap()
}

fn limits(text: &str) -> Vec<Limit> {
    text.split(" + ").map(|limit| limit.parse().unwrap()).collect()
}

fn run(traffic: &Traffic, text: &str) -> Outcome {
    Simulation::new(traffic, None).run(&limits(text), |_| {}).unwrap()
}

/// What [`Replay`], which `sluice replay` is made of, allows, and when it acts; and the measures by
/// definition.
struct Plain {
    acts: Vec<Vec<Call>>,
    allowed: u64,
    denied: u64,
    longest_denials: u64,
}

fn replay(traffic: &Traffic, limits: &[Limit]) -> Plain {
    let mut replay = Replay::new(limits.to_vec()).unwrap();
    let mut plain =
        Plain { acts: vec![Vec::new(); traffic.keys()], allowed: 0, denied: 0, longest_denials: 0 };
    let mut in_a_row = vec![0; traffic.keys()];
    for call in traffic.calls() {
        let decision = replay.check(call.at, traffic.key(call.key), call.cost);
        let key = call.key as usize;
        if decision.allowed() {
            plain.allowed += 1;
            in_a_row[key] = 0;
            plain.acts[key].push(Call { at: call.at.saturating_add(decision.delay()), ..*call });
        } else {
            plain.denied += 1;
            in_a_row[key] += 1;
            plain.longest_denials = plain.longest_denials.max(in_a_row[key]);
        }
    }
    plain
}

/// Every stretch that ends with an act, counted by looking at all acts.
fn brute_force(acts: &[Vec<Call>], length: Span) -> u64 {
    let count = |acts: &Vec<Call>, end: Time| -> u64 {
        let is_in = |act: &&Call| act.at <= end && end.since(act.at) < length;
        acts.iter().filter(is_in).map(|act| act.cost).sum()
    };
    acts.iter().flat_map(|acts| acts.iter().map(|act| count(acts, act.at))).max().unwrap_or(0)
}

/// Random limits of every kind on random traces, whose clocks step back too.
#[test]
fn decisions_are_those_of_replay_and_measures_those_of_brute_force() {
    for seed in 0..600 {
        let mut random = fastrand::Rng::with_seed(seed);
        let algorithm = Limit::CHECKS[random.usize(..Limit::CHECKS.len())];
        let limits = match random.u8(..4) {
            0 => random::list(&mut random),
            1 => vec![random::limit(&mut random, algorithm)],
            _ => vec![random::small_limit(&mut random, algorithm)],
        };
        let may_step_back = random.bool();
        let calls = random::trace(&mut random, &limits, 150, may_step_back);
        let rows = calls.iter().map(|call| (call.at.as_micros(), format!("k{}", call.key), call.cost));
        let traffic = traffic(rows);
        let outcome = Simulation::new(&traffic, None).run(&limits, |_| {}).unwrap();
        let plain = replay(&traffic, &limits);
        let about = format!("seed {seed}: {}", limits[0]);
        assert_eq!((outcome.allowed, outcome.denied), (plain.allowed, plain.denied), "{about}");
        assert_eq!(outcome.longest_denials.most, plain.longest_denials, "{about}");
        for (limit, worst) in limits.iter().zip(&outcome.worst) {
            assert_eq!(worst.count, brute_force(&plain.acts, limit.period()), "{about}");
            let its_key = std::slice::from_ref(&plain.acts[worst.key as usize]);
            assert_eq!(worst.count, brute_force(its_key, limit.period()), "{about}");
        }
    }
}

/// Workloads of every shape under lists of limits too.
#[test]
fn workloads_are_measured_as_brute_force_does() {
    let shapes = [
        "steady 40/s for=20s",
        "burst 30/3s for=20s",
        "poisson 50/s keys=4 zipf=1 for=20s",
        "on-off 80/s on=2s off=3s for=20s",
        "ramp 90/s for=20s",
        "edge 25/5s for=40s",
        "poisson 30/s cost=3 for=20s",
    ];
    let tried = [
        "fixed-window 20/5s",
        "sliding-window 20/5s",
        "sliding-log 20/5s",
        "token-bucket 20/5s burst=7",
        "leaky-bucket 20/5s",
        "min-interval 100ms",
        "pacer 20/5s queue=9",
        "token-bucket 9/s burst=30 + fixed-window 40/10s",
    ];
    for shape in shapes {
        let traffic = workload(shape);
        for text in tried {
            let (outcome, plain) = (run(&traffic, text), replay(&traffic, &limits(text)));
            assert_eq!((outcome.allowed, outcome.denied), (plain.allowed, plain.denied), "{shape} {text}");
            for (limit, worst) in limits(text).iter().zip(&outcome.worst) {
                assert_eq!(worst.count, brute_force(&plain.acts, limit.period()), "{shape} {text}");
            }
        }
    }
}

#[test]
fn a_fixed_window_lets_twice_its_count_through_around_an_edge() {
    let traffic = workload("edge 12/60s for=10min");
    let worst = |text| run(&traffic, text).worst[0].count;
    assert_eq!(worst("fixed-window 12/60s"), 24);
    assert_eq!(worst("sliding-log 12/60s"), 12);
}

#[test]
fn a_pacer_counts_when_its_calls_act() {
    let outcome = run(&workload("burst 11/20s for=20s"), "pacer 10/s queue=10");
    assert_eq!(outcome.allowed, 11);
    assert_eq!(outcome.worst[0].count, 10, "they leave 100 ms apart");
    assert_eq!(outcome.longest_wait.most, Span::from_micros(1_000_000), "the last waits for its turn");
}

#[test]
fn waits_and_what_no_wait_helps_are_reported() {
    let rows = [(0, "a", 1), (1_000_000, "a", 1), (1_000_000, "b", 9)];
    let traffic = traffic(rows.map(|(at, key, cost)| (at, key.to_owned(), cost)));
    let outcome = run(&traffic, "fixed-window 1/60s");
    assert_eq!((outcome.allowed, outcome.denied, outcome.never), (1, 2, 1));
    assert_eq!(outcome.longest_wait.most, Span::from_micros(59_000_000));
    assert_eq!(traffic.key(outcome.longest_wait.key), b"a");
    let a = outcome.keys[traffic.key_named(b"a").unwrap() as usize];
    assert_eq!((a.denied, a.first_denied.as_micros(), a.last_denied.as_micros()), (1, 1_000_000, 1_000_000));
}

#[test]
fn bars_add_up_to_all_that_is_offered_and_allowed() {
    let traffic = workload("poisson 300/s keys=30 zipf=1 cost=2");
    let simulation = Simulation::new(&traffic, None);
    let outcome = simulation.run(&limits("token-bucket 4/s burst=9"), |_| {}).unwrap();
    let cost: u64 = traffic.calls().iter().map(|call| call.cost).sum();
    assert_eq!(simulation.offered().iter().sum::<u64>(), cost);
    assert_eq!(outcome.allowed_bars.iter().sum::<u64>(), outcome.allowed_cost);
    assert_eq!(outcome.denied_bars.iter().sum::<u64>(), outcome.denied);
    assert!(outcome.denied > 0 && outcome.allowed > 0);
    assert!(simulation.timeline().len() <= 121);
}

#[test]
fn the_curves_of_the_focus_reach_the_worst_and_show_what_is_left() {
    let traffic = workload("edge 12/60s for=4min");
    let outcome = run(&traffic, "fixed-window 12/60s");
    let focus = &outcome.focus;
    assert_eq!(focus.window.iter().copied().max(), Some(24));
    assert_eq!(focus.window[0], 0);
    assert_eq!((focus.room_max, focus.room.first().copied()), (12, Some(12)));
    assert_eq!(focus.room.iter().copied().min(), Some(0));
    assert_eq!(focus.marks.len(), traffic.calls().len());
    assert_eq!(focus.marks.iter().filter(|mark| mark.1).count() as u64, outcome.allowed);
}

#[test]
fn progress_is_reported_until_all_is_done() {
    let traffic = workload("steady 5000/s");
    let mut reported = 0;
    let _ = Simulation::new(&traffic, None)
        .run(&limits("sliding-window 9/s"), |calls| reported += calls)
        .unwrap();
    assert_eq!(reported, traffic.calls().len() as u64);
}

/// 200 keys, key n with n calls: the busiest tenth has 181 to 200, and two keys are above the 99th
/// percentile of 198.
#[test]
fn the_crowd_is_divided_by_what_it_offers() {
    let rows = (1..=200_u64).flat_map(|key| (0..key).map(move |call| (call, format!("k{key}"), 1)));
    let traffic = traffic(rows);
    let simulation = Simulation::new(&traffic, None);
    assert_eq!(traffic.key(simulation.focus()), b"k200");
    let outcome = simulation.run(&limits("fixed-window 50/60s"), |_| {}).unwrap();
    let crowd = Crowd::new(&simulation);
    let deciles = crowd.deciles(simulation.keys(), &outcome);
    assert_eq!(deciles.iter().map(|decile| decile.keys).collect::<Vec<_>>(), [20; 10]);
    let busiest: u64 = (181..=200).sum();
    let all: u64 = (1..=200).sum();
    assert_eq!((deciles[0].offered, deciles[0].allowed), (busiest, 20 * 50));
    assert_eq!((deciles[9].offered, deciles[9].allowed), (210, 210), "the quiet ones are not touched");
    assert_eq!(deciles.iter().map(|decile| decile.offered).sum::<u64>(), all);
    let above = crowd.above_p99(simulation.keys(), &outcome).unwrap();
    assert_eq!((above.calls, above.keys, above.denied), (198, 2, 149 + 150));
    let affected = crowd.most_affected(&outcome, 3);
    let names: Vec<&[u8]> = affected.iter().map(|place| traffic.key(*place)).collect();
    assert_eq!(names, [b"k200", b"k199", b"k198"]);
}

#[test]
fn a_small_crowd_has_no_tenths_and_no_percentile() {
    let traffic = traffic((0..9).map(|key| (0, format!("k{key}"), 1)));
    let simulation = Simulation::new(&traffic, None);
    let outcome = simulation.run(&limits("fixed-window 1/60s"), |_| {}).unwrap();
    let crowd = Crowd::new(&simulation);
    assert!(crowd.deciles(simulation.keys(), &outcome).is_empty());
    assert_eq!(crowd.above_p99(simulation.keys(), &outcome), None);
    assert!(crowd.most_affected(&outcome, 5).is_empty(), "no key was denied");
}

/// What the curves say, by definition: for each piece of time, at its beginning and at each act or
/// call within it.
#[test]
fn the_curves_of_the_focus_are_those_of_brute_force() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let algorithm = Limit::CHECKS[random.usize(..Limit::CHECKS.len())];
        let limits = vec![random::small_limit(&mut random, algorithm)];
        let calls = random::trace(&mut random, &limits, 60, false);
        let traffic = traffic(calls.iter().map(|call| (call.at.as_micros(), "k".to_owned(), call.cost)));
        let simulation = Simulation::new(&traffic, None);
        let focus = simulation.run(&limits, |_| {}).unwrap().focus;
        let acts = &replay(&traffic, &limits).acts[0];
        let count = |end: Time| -> u64 {
            let is_in = |act: &&Call| act.at <= end && end.since(act.at) < limits[0].period();
            acts.iter().filter(is_in).map(|act| act.cost).sum()
        };
        let begin_of = |piece: usize| {
            focus.start.saturating_add(Span::from_micros(focus.width.as_micros() * piece as u64))
        };
        for (piece, said) in focus.window.iter().enumerate() {
            let (begin, end) = (begin_of(piece), begin_of(piece + 1));
            let within = acts.iter().map(|act| act.at).filter(|at| (begin..end).contains(at));
            // At the beginning of a piece, what acts in that very microsecond is within it.
            let most = within.chain([begin]).map(count).max();
            assert_eq!(Some(*said), most, "seed {seed}: {} at piece {piece}", limits[0]);
        }
        let mut again = Replay::new(limits.clone()).unwrap();
        // A cost of 0 changes nothing, and tells what is left. The first call is when the limiter
        // starts.
        let _ = again.check(traffic.calls()[0].at, b"k", 0);
        let mut calls = traffic.calls().iter().peekable();
        for (piece, said) in focus.room.iter().enumerate().skip(1) {
            let (begin, end) = (begin_of(piece), begin_of(piece + 1));
            while let Some(call) = calls.next_if(|call| call.at < begin) {
                let _ = again.check(call.at, b"k", call.cost);
            }
            let mut least = again.check(begin, b"k", 0).remaining();
            while let Some(call) = calls.next_if(|call| call.at < end) {
                least = least.min(again.check(call.at, b"k", call.cost).remaining());
            }
            assert_eq!((*said), least, "seed {seed}: {} at piece {piece}", limits[0]);
        }
    }
}

#[test]
fn of_several_limits_the_strictest_says_what_an_idle_key_can_take() {
    let outcome = run(&workload("steady 2/s for=60s"), "token-bucket 10/s burst=50 + fixed-window 70/day");
    assert_eq!((outcome.focus.room_max, outcome.focus.room[0]), (50, 49));
    assert_eq!(outcome.focus.room.last(), Some(&0), "the day's are used up");
}

#[test]
fn the_peak_of_denials_is_counted_over_all_keys() {
    let rows =
        [(0, "a"), (0, "b"), (10, "a"), (20, "b"), (59_999_999, "a"), (61_000_000, "a"), (61_000_000, "a")];
    let outcome = run(&traffic(rows.map(|(at, key)| (at, key.to_owned(), 1))), "fixed-window 1/60s");
    assert_eq!((outcome.denied, outcome.peak.most, outcome.peak.at.as_micros()), (4, 3, 59_999_999));
}

#[test]
fn the_peak_is_not_before_the_denials_that_it_counts() {
    let rows =
        [(100_000_000, "a", 5), (100_000_000, "a", 1), (100_000_000, "a", 1), (0, "b", 5), (0, "b", 1)];
    let outcome = run(&traffic(rows.map(|(at, key, cost)| (at, key.to_owned(), cost))), "sliding-log 5/60s");
    assert_eq!((outcome.peak.most, outcome.peak.at.as_micros()), (3, 100_000_000));
}
