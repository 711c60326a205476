//! Leases and their ids, without waiters.

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
fn a_dropped_lease_is_released() {
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
fn a_dropped_grant_releases_its_lease() {
    let (semaphore, _) = semaphore("concurrency 1");
    drop(semaphore.try_acquire("k", 1));
    assert!(semaphore.try_acquire("k", 1).allowed());
}

/// Trap 3 (redisson#7342): each cycle lost a permit.
#[test]
fn a_thousand_released_leases_free_all_permits() {
    for limit in ["concurrency 3", "concurrency 3 ttl=30s"] {
        let (semaphore, _) = semaphore(limit);
        for round in 0..1_000_u64 {
            let cost = round % 3 + 1;
            assert!(semaphore.try_acquire("k", cost).lease().unwrap().release());
        }
        let all = semaphore.try_acquire("k", 3);
        assert!(all.allowed(), "{limit}");
        drop(all);
        assert_eq!((semaphore.stats().leases, semaphore.stats().keys), (0, 0));
    }
}

/// Trap 5 (limits#151): such a cost was stored and blocked others.
#[test]
fn a_cost_above_the_limit_is_never_admitted() {
    let (semaphore, _) = semaphore("concurrency 3 ttl=30s");
    for grant in [semaphore.try_acquire("k", 4), semaphore.acquire("k", u64::MAX).blocking()] {
        assert_eq!((grant.allowed(), grant.denial()), (false, Some(Denial::Never)));
        assert_eq!(grant.decision().retry_after(), Some(RetryAfter::Never));
    }
    assert_eq!((semaphore.stats().keys, semaphore.stats().waiting), (0, 0));
    assert!(semaphore.try_acquire("k", 3).allowed());
}

/// Trap 6: denied calls changed state in several other libraries.
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
fn cost_zero_is_allowed_without_a_lease() {
    let (semaphore, _) = semaphore("concurrency 1");
    let _lease = semaphore.try_acquire("k", 1).lease();
    let grant = semaphore.try_acquire("k", 0);
    assert!(grant.allowed());
    assert!(grant.lease().is_none());
    assert!(semaphore.acquire("other", 0).blocking().allowed());
    assert_eq!(semaphore.stats().keys, 1);
}

#[test]
fn an_expired_lease_releases_nothing_when_dropped() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=30s");
    let late = semaphore.try_acquire("k", 1).lease().unwrap();
    assert_eq!(late.until(), Some(semaphore.now().saturating_add(span(30))));
    clock.advance(Duration::from_micros(29_999_999));
    assert!(!semaphore.try_acquire("k", 1).allowed());
    clock.advance(Duration::from_micros(1));
    let other = semaphore.try_acquire("k", 1).lease();
    assert!(other.is_some());
    assert!(!late.renew(), "it has expired");
    drop(late);
    assert!(!semaphore.try_acquire("k", 1).allowed(), "the other lease is still held");
    assert_eq!((semaphore.stats().expired, semaphore.stats().released), (1, 0));
}

#[test]
fn a_renewed_lease_stays_live() {
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
fn a_kept_lease_is_released_once_by_its_id() {
    let (semaphore, _) = semaphore("concurrency 2 ttl=30s");
    let id = semaphore.try_acquire("k", 1).lease().unwrap().keep();
    let read: LeaseId = id.to_string().parse().unwrap();
    assert_eq!((read, id.to_string().len()), (id.clone(), 51));
    assert_eq!(semaphore.peek("k", 1).remaining(), 1);
    assert!(semaphore.renew("k", &id) && !semaphore.renew("other", &id));
    assert!(!semaphore.release("other", &id) && semaphore.release("k", &id));
    assert!(!semaphore.release("k", &id) && !semaphore.renew("k", &id));
    let again = semaphore.try_acquire("k", 1).lease().unwrap();
    assert!(!semaphore.release("k", &id), "the index is the same, the lease is not");
    assert_ne!(again.id(), id);
}

#[test]
fn a_forged_id_does_nothing() {
    let (semaphore, _) = semaphore("concurrency 2 ttl=30s");
    let id = semaphore.try_acquire("k", 1).lease().unwrap().keep().to_string();
    for (index, letter) in id.char_indices().skip(3) {
        let mut other = id.clone();
        other.replace_range(index..=index, if letter == '0' { "1" } else { "0" });
        assert!(!semaphore.release("k", &other.parse().unwrap()), "{other}");
    }
    let said = "not a lease id; pass the text from the acquire unchanged";
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
fn leases_from_before_a_reset_release_nothing() {
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

/// Trap 10: Guava and Go do not replan when the limit changes.
#[test]
fn below_what_is_held_nothing_remains() {
    let (semaphore, clock) = semaphore("concurrency 4 ttl=30s");
    let mut leases: Vec<_> = (0..4).filter_map(|_| semaphore.try_acquire("k", 1).lease()).collect();
    semaphore.change("concurrency 2 ttl=10s").unwrap();
    assert_eq!(semaphore.limit().to_string(), "concurrency 2 ttl=10s");
    let denied = semaphore.try_acquire("k", 1).decision();
    assert_eq!((denied.limit(), denied.remaining()), (2, 0));
    leases.truncate(2);
    assert!(!semaphore.try_acquire("k", 1).allowed());
    clock.advance(20 * SECOND);
    assert!(leases[0].renew(), "it kept its 30 s, and gets 10 s now");
    assert_eq!(leases[0].until(), Some(semaphore.now().saturating_add(span(10))));
    drop(leases.pop());
    assert!(semaphore.try_acquire("k", 1).allowed());
    semaphore.change("concurrency 3").unwrap();
    assert_eq!(semaphore.peek("k", 1).remaining(), 2);
    let said = semaphore.change("sliding-log 5/60s").unwrap_err().to_string();
    assert_eq!(
        said,
        "sliding-log 5/min: a semaphore takes one concurrency limit; write concurrency 10 ttl=30s, or build a limiter from it"
    );
}

/// Trap 7 (golang/go#56287): a clock that went back granted tokens.
#[test]
fn a_step_back_neither_grants_nor_revives_leases() {
    let (semaphore, clock) = semaphore("concurrency 1 ttl=30s");
    let start = semaphore.now();
    let lease = semaphore.try_acquire("k", 1).lease().unwrap();
    clock.set(start.saturating_sub(span(100)));
    let denied = semaphore.try_acquire("k", 1).decision();
    assert_eq!(denied.retry_after(), Some(RetryAfter::After(span(130))), "the step and the ttl");
    clock.set(start.saturating_add(span(30)));
    assert!(semaphore.peek("k", 1).allowed());
    clock.set(start);
    assert!(!lease.renew() && semaphore.try_acquire("k", 1).allowed());
}

/// Trap 13 (axum#2634): a clone had a limit of its own.
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
struct Recorder(Mutex<(Vec<bool>, Vec<Event>)>);

impl Observer for Recorder {
    fn decided(&self, decision: &Decision) {
        self.0.lock().unwrap().0.push(decision.allowed());
    }

    fn event(&self, event: &Event) {
        self.0.lock().unwrap().1.push(event.clone());
    }
}

#[test]
fn an_observer_sees_decisions_and_expired_leases() {
    let (clock, recorded) = (ManualClock::default(), Arc::new(Recorder::default()));
    let builder = Semaphore::builder("concurrency 3 ttl=30s").clock(clock.clone());
    let semaphore = builder.observer(Arc::clone(&recorded)).build().unwrap();
    semaphore.try_acquire("k", 3).lease().unwrap().keep();
    assert!(!semaphore.acquire_within("k", 1, Duration::ZERO).blocking().allowed());
    clock.advance(30 * SECOND);
    assert!(semaphore.acquire("k", 1).blocking().allowed());
    let recorded = recorded.0.lock().unwrap();
    assert_eq!(recorded.0, [true, false, true]);
    assert!(matches!(recorded.1[..], [Event::LeaseExpired { cost: 3, .. }]), "{:?}", recorded.1);
}
