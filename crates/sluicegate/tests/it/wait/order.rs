//! The order of waiters, and priorities.

use super::caller::Caller;
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use sluicegate::wait::Priority;
use std::time::Duration;

fn limiter(limit: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limit).clock(clock.clone()).build().unwrap(), clock)
}

/// The indices of the calls that are done.
fn served(callers: &mut [Caller<'_>]) -> Vec<usize> {
    callers.iter_mut().enumerate().filter_map(|(index, caller)| caller.poll().map(|_| index)).collect()
}

#[test]
fn small_costs_do_not_overtake_a_large_one() {
    let (limiter, clock) = limiter("token-bucket 1/s burst=5");
    assert!(limiter.check_cost("k", 5).allowed());
    let mut callers = vec![Caller::new(limiter.acquire("k", 5))];
    callers.extend((0..3).map(|_| Caller::new(limiter.acquire("k", 1))));
    clock.advance(Duration::from_secs(4));
    assert!(served(&mut callers).is_empty());
    clock.advance(Duration::from_secs(1));
    assert_eq!(served(&mut callers), [0]);
    clock.advance(Duration::from_secs(2));
    assert_eq!(served(&mut callers), [0, 1, 2]);
    // None was woken early, or twice.
    assert_eq!(callers.iter().map(Caller::woken).collect::<Vec<_>>(), [1, 1, 1, 0]);
}

#[test]
fn keys_have_independent_queues() {
    let (limiter, clock) = limiter("min-interval 1h");
    assert!(limiter.check("slow").allowed());
    let mut slow = Caller::new(limiter.acquire("slow", 1));
    assert!(Caller::new(limiter.acquire("other", 1)).acquired().unwrap().allowed());
    assert!(slow.poll().is_none());
    assert_eq!(limiter.stats().waiting, 1);
    clock.advance(Duration::from_secs(3_600));
    assert!(slow.poll().unwrap().allowed());
    assert_eq!(limiter.stats().waiting, 0);
}

#[test]
fn higher_priorities_go_first_in_order() {
    let (limiter, clock) = limiter("min-interval 1s");
    assert!(limiter.check("k").allowed());
    let priorities =
        [Priority::Low, Priority::Normal, Priority::High, Priority::Normal, Priority::Low, Priority::High];
    let mut callers: Vec<Caller<'_>> =
        priorities.map(|priority| Caller::new(limiter.acquire("k", 1).priority(priority))).into();
    let mut order = Vec::new();
    for _ in priorities {
        clock.advance(Duration::from_secs(1));
        let new: Vec<usize> =
            served(&mut callers).into_iter().filter(|index| !order.contains(index)).collect();
        order.extend(new);
    }
    assert_eq!(order, [2, 5, 1, 3, 0, 4]);
}

#[test]
fn a_waiter_overtaken_past_its_deadline_is_denied() {
    let (limiter, _clock) = limiter("min-interval 1s");
    assert!(limiter.check("k").allowed());
    let within = |seconds| limiter.acquire_within("k", 1, Duration::from_secs(seconds));
    let mut patient = Caller::new(within(2));
    let mut hasty = Caller::new(within(1).priority(Priority::Low));
    // It would be the second.
    assert!(!hasty.acquired().unwrap().allowed());
    let mut second = Caller::new(within(2).priority(Priority::Low));
    assert!(patient.waits() && second.waits());
    let first = Caller::new(limiter.acquire("k", 1).priority(Priority::High));
    assert!(first.waits() && patient.poll().is_none());
    assert_eq!(second.woken(), 1);
    assert_eq!(second.poll().unwrap().denial(), Some(sluicegate::wait::Denial::TooLong));
    assert!(hasty.poll().is_some());
}
