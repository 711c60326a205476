//! Leases and their names, without anybody who waits.

use super::semaphore;
use sluicegate::clock::ManualClock;
use sluicegate::semaphore::{LeaseId, Semaphore};
use sluicegate::wait::Denial;
use sluicegate::{Decision, Event, Observer, RetryAfter, Span};
use sluicegate_core::concurrency::UNKNOWN;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn span(seconds: u64) -> Span {
    Span::from_micros(seconds * 1_000_000)
}

#[test]
fn a_lease_is_returned_when_it_is_dropped() {
    let (semaphore, _) = semaphore("concurrency 2");
    let one = semaphore.try_acquire("k", 1).lease();
    let other = semaphore.try_acquire("k", 1).lease();
    let denied = semaphore.try_acquire("k", 1);
    assert_eq!((denied.allowed(), denied.denial()), (false, Some(Denial::TooLong)));
    assert_eq!(denied.decision().retry_after(), Some(RetryAfter::After(UNKNOWN)));
    drop((one, other));
    let stats = semaphore.stats();
    assert_eq!((stats.allowed, stats.denied, stats.released, stats.leases, stats.keys), (2, 1, 2, 0, 0));
    assert_eq!(semaphore.peek("k", 1).remaining(), 2);
}

#[test]
fn a_grant_that_is_dropped_returns_its_lease() {
    let (semaphore, _) = semaphore("concurrency 1");
    drop(semaphore.try_acquire("k", 1));
    assert!(semaphore.try_acquire("k", 1).allowed());
}

/// Trap 3: redisson#7342, where each cycle lost a permit.
#[test]
fn a_thousand_leases_taken_and_returned_leave_all_places_free() {
    for limit in ["concurrency 3", "concurrency 3 ttl=30s"] {
        let (semaphore, _) = semaphore(limit);
        for turn in 0..1_000_u64 {
            let cost = turn % 3 + 1;
            assert!(semaphore.try_acquire("k", cost).lease().unwrap().release());
        }
        let all = semaphore.try_acquire("k", 3);
        assert!(all.allowed(), "{limit}");
        drop(all);
        assert_eq!((semaphore.stats().leases, semaphore.stats().keys), (0, 0));
    }
}

/// Trap 5: limits#151, where such a cost was stored and blocked others.
#[test]
fn a_cost_above_the_count_is_never_admitted_and_never_stored() {
    let (semaphore, _) = semaphore("concurrency 3 ttl=30s");
    for grant in [semaphore.try_acquire("k", 4), semaphore.acquire("k", u64::MAX).blocking()] {
        assert_eq!((grant.allowed(), grant.denial()), (false, Some(Denial::Never)));
        assert_eq!(grant.decision().retry_after(), Some(RetryAfter::Never));
    }
    assert_eq!((semaphore.stats().keys, semaphore.stats().waiting), (0, 0));
    assert!(semaphore.try_acquire("k", 3).allowed());
}

/// Trap 6: denied calls changed state in several others.
#[test]
fn a_denial_changes_nothing() {
    let (semaphore, clock) = semaphore("concurrency 2 ttl=30s");
    let _lease = semaphore.try_acquire("k", 2).lease();
    clock.advance(10 * SECOND);
    let before = semaphore.peek("k", 0);
    for _ in 0..100 {
        assert_eq!(semaphore.try_acquire("k", 1).decision().retry_after(), Some(RetryAfter::After(span(20))));
    }
    assert_eq!(semaphore.peek("k", 0), before);
    assert_eq!(semaphore.stats().leases, 1);
}

#[test]
fn a_cost_of_nothing_is_allowed_and_takes_no_lease() {
    let (semaphore, _) = semaphore("concurrency 1");
    let _lease = semaphore.try_acquire("k", 1).lease();
    let grant = semaphore.try_acquire("k", 0);
    assert!(grant.allowed());
    assert!(grant.lease().is_none());
    assert!(semaphore.acquire("other", 0).blocking().allowed());
    assert_eq!(semaphore.stats().keys, 1);
}

#[test]
fn a_lease_lapses_at_its_moment_and_its_drop_returns_nobody_elses() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=30s");
    let late = semaphore.try_acquire("k", 1).lease().unwrap();
    assert_eq!(late.until(), Some(semaphore.now().saturating_add(span(30))));
    clock.advance(Duration::from_micros(29_999_999));
    assert!(!semaphore.try_acquire("k", 1).allowed());
    clock.advance(Duration::from_micros(1));
    let other = semaphore.try_acquire("k", 1).lease();
    assert!(other.is_some());
    assert!(!late.renew(), "it has lapsed");
    drop(late);
    assert!(!semaphore.try_acquire("k", 1).allowed(), "the other's place is still taken");
    assert_eq!((semaphore.stats().expired, semaphore.stats().released), (1, 0));
}

#[test]
fn a_lease_that_is_renewed_lives_on() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=30s");
    let lease = semaphore.try_acquire("k", 1).lease().unwrap();
    for _ in 0..5 {
        clock.advance(20 * SECOND);
        assert!(lease.renew());
        assert_eq!(lease.until(), Some(semaphore.now().saturating_add(span(30))));
        assert!(!semaphore.try_acquire("k", 1).allowed());
    }
    assert_eq!(semaphore.stats().renewed, 5);
    assert!(lease.release() && semaphore.try_acquire("k", 1).allowed());
}

#[test]
fn a_kept_lease_is_returned_by_its_name_once_and_by_no_other() {
    let (semaphore, _) = semaphore("concurrency 2 ttl=30s");
    let id = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let read: LeaseId = id.to_string().parse().unwrap();
    assert_eq!((read, id.to_string().len()), (id.clone(), 51));
    assert_eq!(semaphore.peek("k", 1).remaining(), 1);
    assert!(semaphore.renew("k", &id) && !semaphore.renew("other", &id));
    assert!(!semaphore.release("other", &id) && semaphore.release("k", &id));
    assert!(!semaphore.release("k", &id) && !semaphore.renew("k", &id));
    let again = semaphore.try_acquire("k", 1).lease().unwrap();
    assert!(!semaphore.release("k", &id), "the place is the same, the lease another");
    assert_ne!(again.id(), id);
}

#[test]
fn a_made_up_name_is_nobodys() {
    let (semaphore, _) = semaphore("concurrency 2 ttl=30s");
    let id = semaphore.try_acquire("k", 1).lease().unwrap().keep().to_string();
    for (place, letter) in id.char_indices().skip(3) {
        let mut other = id.clone();
        other.replace_range(place..=place, if letter == '0' { "1" } else { "0" });
        assert!(!semaphore.release("k", &other.parse().unwrap()), "{other}");
    }
    let said = "not a lease; hand back the text that the acquire gave, unchanged";
    for bad in ["", "abc", &id[1..], &id.to_uppercase(), &format!("{id}0"), &"ä".repeat(24)] {
        if bad != id {
            assert_eq!(bad.parse::<LeaseId>().unwrap_err().to_string(), said, "{bad}");
        }
    }
    let (stranger, _) = self::semaphore("concurrency 2 ttl=30s");
    let _held = stranger.try_acquire("k", 1).lease();
    assert!(!stranger.release("k", &id.parse().unwrap()), "another semaphore's");
}

#[test]
fn after_a_reset_old_leases_return_nothing() {
    let (semaphore, _) = semaphore("concurrency 2 ttl=30s");
    let old: Vec<_> = (0..2).filter_map(|_| semaphore.try_acquire("k", 1).lease()).collect();
    semaphore.reset("k");
    assert_eq!((semaphore.stats().leases, semaphore.stats().keys), (0, 0));
    let new: Vec<_> = (0..2).filter_map(|_| semaphore.try_acquire("k", 1).lease()).collect();
    assert!(!old[0].renew());
    drop(old);
    assert!(!semaphore.try_acquire("k", 1).allowed());
    drop(new);
    assert!(semaphore.try_acquire("k", 2).allowed());
}

/// Trap 10: Guava and Go do not plan anew when the numbers change.
#[test]
fn with_fewer_places_than_are_held_nothing_remains_until_enough_are_back() {
    let (semaphore, clock) = semaphore("concurrency 4 ttl=30s");
    let mut leases: Vec<_> = (0..4).filter_map(|_| semaphore.try_acquire("k", 1).lease()).collect();
    semaphore.change("concurrency 2 ttl=10s").unwrap();
    assert_eq!(semaphore.limit().to_string(), "concurrency 2 ttl=10s");
    let denied = semaphore.try_acquire("k", 1).decision();
    assert_eq!((denied.limit(), denied.remaining()), (2, 0));
    leases.truncate(2);
    assert!(!semaphore.try_acquire("k", 1).allowed());
    clock.advance(20 * SECOND);
    assert!(leases[0].renew(), "it has kept its 30 s, and gets 10 s now");
    assert_eq!(leases[0].until(), Some(semaphore.now().saturating_add(span(10))));
    drop(leases.pop());
    assert!(semaphore.try_acquire("k", 1).allowed());
    semaphore.change("concurrency 3").unwrap();
    assert_eq!(semaphore.peek("k", 1).remaining(), 2);
    let said = semaphore.change("sliding-log 5/60s").unwrap_err().to_string();
    assert_eq!(
        said,
        "sliding-log 5/min: a semaphore takes concurrency; write concurrency 10, or make a Limiter of it"
    );
}

/// Trap 7: golang/go#56287, where a clock that went back gave out tokens.
#[test]
fn a_clock_that_goes_back_gives_nothing_out_and_brings_nothing_back() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=30s");
    let start = semaphore.now();
    let lease = semaphore.try_acquire("k", 1).lease().unwrap();
    clock.set(start.saturating_sub(span(100)));
    let denied = semaphore.try_acquire("k", 1).decision();
    assert_eq!(denied.retry_after(), Some(RetryAfter::After(span(130))), "the step and ttl");
    clock.set(start.saturating_add(span(30)));
    assert!(semaphore.peek("k", 1).allowed());
    clock.set(start);
    assert!(!lease.renew() && semaphore.try_acquire("k", 1).allowed());
}

/// Trap 13: axum#2634, where a clone had a limit of its own.
#[test]
fn clones_are_the_same_semaphore() {
    let (semaphore, _) = semaphore("concurrency 1");
    let clone = semaphore.clone();
    let lease = semaphore.try_acquire("k", 1).lease();
    assert!(!clone.try_acquire("k", 1).allowed());
    drop((semaphore, lease));
    assert!(clone.try_acquire("k", 1).allowed());
}

#[test]
fn a_lease_outlives_its_semaphore() {
    let (semaphore, _) = semaphore("concurrency 1 ttl=30s");
    let lease = semaphore.try_acquire("k", 1).lease().unwrap();
    drop(semaphore);
    assert!(lease.renew() && lease.release());
}

#[derive(Default)]
struct Told(Mutex<(Vec<bool>, Vec<Event>)>);

impl Observer for Told {
    fn decided(&self, decision: &Decision) {
        self.0.lock().unwrap().0.push(decision.allowed());
    }

    fn event(&self, event: &Event) {
        self.0.lock().unwrap().1.push(event.clone());
    }
}

#[test]
fn an_observer_is_told_of_decisions_and_of_leases_that_lapse() {
    let (clock, told) = (ManualClock::default(), Arc::new(Told::default()));
    let builder = Semaphore::builder("concurrency 3 ttl=30s").clock(clock.clone());
    let semaphore = builder.observer(Arc::clone(&told)).build().unwrap();
    semaphore.try_acquire("k", 3).lease().unwrap().keep();
    assert!(!semaphore.acquire_within("k", 1, Duration::ZERO).blocking().allowed());
    clock.advance(30 * SECOND);
    assert!(semaphore.acquire("k", 1).blocking().allowed());
    let told = told.0.lock().unwrap();
    assert_eq!(told.0, [true, false, true]);
    assert!(matches!(told.1[..], [Event::LeaseExpired { cost: 3, .. }]), "{:?}", told.1);
}
