//! Every bound, crossed.

use super::caller::Caller;
use sluicegate::clock::ManualClock;
use sluicegate::semaphore::{MAX_LEASES_DEFAULT, MAX_LEASES_MAX, Semaphore, SemaphoreBuilder};
use sluicegate::wait::Denial;
use sluicegate::{RetryAfter, Span};
use std::time::Duration;

fn builder(limit: &str) -> (SemaphoreBuilder, ManualClock) {
    let clock = ManualClock::default();
    (Semaphore::builder(limit).clock(clock.clone()), clock)
}

#[test]
fn max_leases_bounds_all_shards_together() {
    for most in [1_usize, 2, 3, 64, 500, 20_000] {
        let (builder, _) = builder("concurrency 1");
        let semaphore = builder.max_leases(most).build().unwrap();
        assert_eq!(semaphore.stats().max_leases, most);
        // The second round, under other keys, finds what the first does not use any more.
        for round in 0..2 {
            let leases: Vec<_> =
                (0..most).filter_map(|key| semaphore.try_acquire((round, key), 1).lease()).collect();
            assert_eq!((leases.len(), semaphore.stats().leases), (most, most));
            let refused = semaphore.try_acquire("one more", 1);
            assert_eq!((refused.allowed(), refused.denial()), (false, Some(Denial::NoRoom)));
            assert_eq!(refused.decision().denied_by(), None, "no limit denied it");
            assert_eq!(semaphore.acquire("one more", 1).blocking().denial(), Some(Denial::NoRoom));
        }
        assert_eq!((semaphore.stats().leases, semaphore.stats().keys), (0, 0));
    }
}

#[test]
fn expired_leases_make_room_before_a_denial() {
    let (builder, clock) = builder("concurrency 1 ttl=30s");
    let semaphore = builder.max_leases(100).build().unwrap();
    for key in 0..100 {
        let _ = semaphore.try_acquire(key, 1).lease().unwrap().keep();
        clock.advance(Duration::from_micros(1));
    }
    let refused = semaphore.try_acquire("another", 1);
    assert_eq!(refused.denial(), Some(Denial::NoRoom));
    let Some(RetryAfter::After(wait)) = refused.decision().retry_after() else { panic!("it will expire") };
    assert_eq!(wait, Span::from_micros(30_000_000 - 100));
    clock.advance(Duration::from_micros(wait.as_micros() - 1));
    assert!(!semaphore.try_acquire("another", 1).allowed());
    clock.advance(Duration::from_micros(1));
    assert!(semaphore.try_acquire("another", 1).lease().unwrap().keep().to_string().len() == 51);
    assert!(!semaphore.try_acquire("yet another", 1).allowed());
}

/// Idle keys are freed as others arrive, without a sweep.
#[test]
fn unreleased_leases_do_not_accumulate() {
    let (builder, clock) = builder("concurrency 1 ttl=1s");
    let semaphore = builder.build().unwrap();
    let mut most = 0;
    for key in 0..50_000 {
        let _ = semaphore.try_acquire(key, 1).lease().unwrap().keep();
        clock.advance(Duration::from_millis(1));
        most = most.max(semaphore.stats().leases);
    }
    // A thousand are live at a time. In shards without new leases, expired ones stay a little
    // longer.
    assert!((1_000..3_000).contains(&most), "{most}");
    assert_eq!(semaphore.stats().expired + u64::try_from(semaphore.stats().leases).unwrap(), 50_000);
}

/// Many leases may expire together under one key. A call under another frees a few at a time, and
/// in the end all.
#[test]
fn mass_expiry_is_handled_without_a_pause() {
    let (builder, clock) = builder("concurrency 1000 ttl=1s");
    let semaphore = builder.build().unwrap();
    for _ in 0..1_000 {
        let _ = semaphore.try_acquire("many", 1).lease().unwrap().keep();
    }
    clock.advance(Duration::from_secs(1));
    let mut held = 1_000;
    for key in 0..64_000 {
        drop(semaphore.try_acquire(key, 1));
        let now = semaphore.stats().leases;
        assert!(now + 2 >= held, "{held}, then {now}");
        held = now;
    }
    assert_eq!((held, semaphore.stats().expired), (0, 1_000));
}

#[test]
fn expired_leases_do_not_count_for_their_key() {
    let (builder, clock) = builder("concurrency 1000 ttl=1s");
    let semaphore = builder.build().unwrap();
    for _ in 0..1_000 {
        let _ = semaphore.try_acquire("many", 1).lease().unwrap().keep();
    }
    clock.advance(Duration::from_secs(1));
    assert!(semaphore.try_acquire("many", 1_000).allowed());
}

#[test]
fn waiters_reserve_capacity_for_their_leases() {
    let (builder, _) = builder("concurrency 1");
    let semaphore = builder.max_leases(2).build().unwrap();
    let lease = semaphore.try_acquire("k", 1).lease();
    let mut waiting = Caller::new(semaphore.acquire("k", 1));
    assert_eq!(semaphore.try_acquire("other", 1).denial(), Some(Denial::NoRoom));
    assert_eq!(Caller::new(semaphore.acquire("k", 1)).denial(), Some(Denial::NoRoom));
    drop(lease);
    assert!(waiting.poll() && waiting.allowed());
    let other = semaphore.try_acquire("other", 1).lease();
    assert!(other.is_some());
    drop(waiting);
    assert!(semaphore.try_acquire("k", 1).allowed());
}

#[test]
fn the_number_of_waiters_is_bounded() {
    let (builder, _) = builder("concurrency 1");
    let semaphore = builder.max_queue(2).max_waiters(3).build().unwrap();
    let _leases = [semaphore.try_acquire("a", 1).lease(), semaphore.try_acquire("b", 1).lease()];
    let waiters: Vec<Caller> = (0..2).map(|_| Caller::new(semaphore.acquire("a", 1))).collect();
    assert_eq!(Caller::new(semaphore.acquire("a", 1)).denial(), Some(Denial::QueueFull));
    let third = Caller::new(semaphore.acquire("b", 1));
    assert_eq!(Caller::new(semaphore.acquire("b", 1)).denial(), Some(Denial::QueueFull));
    assert_eq!(semaphore.stats().waiting, 3);
    drop(waiters);
    assert!(Caller::new(semaphore.acquire("a", 1)).denial().is_none());
    drop(third);
    assert_eq!(semaphore.stats().waiting, 0);
}

#[test]
fn settings_out_of_bounds_are_rejected() {
    assert_eq!((MAX_LEASES_DEFAULT, MAX_LEASES_MAX), (100_000, 100_000_000));
    let said = |builder: SemaphoreBuilder| builder.build().unwrap_err().to_string();
    let concurrency = || Semaphore::builder("concurrency 1");
    assert_eq!(said(concurrency().max_leases(0)), "max_leases is 0; use 1 to 100000000");
    assert_eq!(said(concurrency().max_leases(100_000_001)), "max_leases is 100000001; use 1 to 100000000");
    assert_eq!(said(concurrency().max_queue(100_000_001)), "max_queue is 100000001; use 0 to 100000000");
    assert_eq!(said(concurrency().max_waiters(100_000_001)), "max_waiters is 100000001; use 0 to 100000000");
    assert_eq!(
        said(Semaphore::builder("token-bucket 5/s")),
        "token-bucket 5/s: a semaphore takes one concurrency limit; write concurrency 10 ttl=30s, or build a limiter from it"
    );
    assert_eq!(
        said(Semaphore::builder(["concurrency 1", "concurrency 2"])),
        "concurrency 1 + concurrency 2: a semaphore takes one concurrency limit; write concurrency 10 ttl=30s, or build a limiter from it"
    );
    assert_eq!(
        said(Semaphore::builder(Vec::<&str>::new())),
        "there is no limit; give at least one, such as sliding-log 5/60s"
    );
}
