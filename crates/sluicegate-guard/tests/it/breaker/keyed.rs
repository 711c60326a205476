//! A breaker for each key: apart from each other, bounded, and those that are open are kept.

use super::SECOND;
use sluicegate_guard::breaker::{
    Admitted, Forced, KeyedBreakers, MAX_BREAKERS_DEFAULT, MAX_BREAKERS_MAX, State,
};
use sluicegate_guard::{BuildError, ManualClock};

fn breakers(max_keys: usize) -> (KeyedBreakers, ManualClock) {
    let clock = ManualClock::default();
    let builder = KeyedBreakers::builder("breaker 50%/10s min=2 open=5s").clock(clock.clone());
    (builder.max_keys(max_keys).build().unwrap(), clock)
}

fn admitted(breakers: &KeyedBreakers, key: impl sluicegate_guard::Key) -> Admitted<'static> {
    breakers.try_acquire(key).admitted().unwrap_or_else(|denied| panic!("{denied}"))
}

fn open(breakers: &KeyedBreakers, key: &str) {
    for _ in 0..2 {
        admitted(breakers, key).failure();
    }
    assert_eq!(breakers.state(key), Some(State::Open));
}

#[test]
fn keys_have_separate_breakers() {
    let (hosts, clock) = breakers(100);
    open(&hosts, "a");
    assert!(!hosts.try_acquire("a").allowed());
    admitted(&hosts, "b").success();
    assert_eq!((hosts.state("b"), hosts.state("c")), (Some(State::Closed), None));
    clock.advance(5 * SECOND);
    hosts.get("a").try_acquire().admitted().unwrap().success();
    assert_eq!(hosts.state("a"), Some(State::Closed));
    let stats = hosts.stats();
    assert_eq!(
        (stats.keys, stats.max_keys, stats.open, stats.totals.allowed(), stats.totals.denied),
        (2, 100, 0, 4, 1)
    );
    assert_eq!((stats.totals.successes, stats.totals.failures, stats.totals.opened), (2, 2, 1));
}

#[test]
fn max_keys_is_never_exceeded() {
    for max_keys in [1, 3, 64, 200, 1_000] {
        let (hosts, _) = breakers(max_keys);
        for key in 0..3_000_u32 {
            admitted(&hosts, key).success();
        }
        let stats = hosts.stats();
        assert!(stats.keys <= max_keys && stats.max_keys <= max_keys, "{stats:?}");
        // Not all tables are equally full, and what does not divide is left out.
        assert!(stats.keys * 10 >= max_keys * 9, "{stats:?}");
        // The totals of evicted breakers are kept.
        assert_eq!(
            (stats.totals.allowed(), stats.evicted, stats.no_room),
            (3_000, 3_000 - stats.keys as u64, 0)
        );
    }
}

#[test]
fn errors_name_the_bounds_of_max_keys() {
    for (max_keys, fits) in [(0, false), (1, true), (MAX_BREAKERS_MAX, true), (MAX_BREAKERS_MAX + 1, false)] {
        let built = KeyedBreakers::builder("breaker 50%/10s").max_keys(max_keys).build();
        assert_eq!(built.is_ok(), fits, "{max_keys}");
        if let Err(error) = built {
            assert!(matches!(error, BuildError::OutOfBounds { .. }));
            assert_eq!(error.to_string(), format!("max_keys is {max_keys}; use 1 to {MAX_BREAKERS_MAX}"));
        }
    }
    assert_eq!(KeyedBreakers::new("breaker 50%/10s").unwrap().stats().max_keys, MAX_BREAKERS_DEFAULT);
    assert!(matches!(KeyedBreakers::new("breaker"), Err(BuildError::Limit(_))));
}

#[test]
fn eviction_takes_idle_then_least_recently_used_closed() {
    let (hosts, clock) = breakers(3);
    admitted(&hosts, "old").success();
    clock.advance(20 * SECOND);
    admitted(&hosts, "busy").success();
    admitted(&hosts, "busier").success();
    // "old" has no call in its window any more. "busy" was made before "busier".
    admitted(&hosts, "new").success();
    assert_eq!(hosts.state("old"), None);
    assert_eq!(hosts.stats().evicted, 0, "nothing was lost");
    admitted(&hosts, "busy").success();
    admitted(&hosts, "newer").success();
    assert_eq!((hosts.state("busier"), hosts.stats().evicted), (None, 1));
    assert!(["busy", "new", "newer"].into_iter().all(|key| hosts.state(key).is_some()));
}

#[test]
fn open_breakers_are_never_evicted() {
    let (hosts, clock) = breakers(4);
    open(&hosts, "down");
    hosts.get("maintenance").force(Forced::Open);
    for key in 0..1_000_u32 {
        admitted(&hosts, key).success();
    }
    assert!(!hosts.try_acquire("down").allowed() && !hosts.try_acquire("maintenance").allowed());
    // Once `open` has elapsed it would admit a probe anyway, so it may be evicted; a forced one may
    // not.
    clock.advance(5 * SECOND);
    let _probe = admitted(&hosts, "down");
    for key in 0..1_000_u32 {
        admitted(&hosts, key).failure();
    }
    assert_eq!(hosts.state("down"), Some(State::HalfOpen), "its probe is out");
    assert_eq!(hosts.state("maintenance"), Some(State::ForcedOpen));
}

#[test]
fn without_a_victim_a_new_key_is_admitted_and_not_stored() {
    let (hosts, clock) = breakers(2);
    open(&hosts, "a");
    open(&hosts, "b");
    for _ in 0..10 {
        admitted(&hosts, "c").failure();
    }
    assert_eq!((hosts.state("c"), hosts.stats().no_room, hosts.stats().keys), (None, 10, 2));
    assert!(!hosts.try_acquire("a").allowed() && !hosts.try_acquire("b").allowed());
    // "a" and "b" are no longer used. Once `open` has elapsed they are evicted: a set cannot stay
    // full.
    clock.advance(5 * SECOND);
    open(&hosts, "c");
    open(&hosts, "d");
    assert_eq!((hosts.state("a"), hosts.state("b"), hosts.stats().evicted), (None, None, 2));
}

#[test]
fn a_key_can_be_removed_and_all_can_be_changed() {
    let (hosts, _) = breakers(100);
    open(&hosts, "a");
    admitted(&hosts, "b").success();
    hosts.remove("a");
    hosts.remove("never seen");
    assert_eq!(hosts.state("a"), None);
    admitted(&hosts, "a").success();
    assert_eq!(hosts.stats().totals.failures, 2);
    hosts.change("breaker 50%/3calls").unwrap();
    assert!(hosts.change("breaker 50%/3call open=").is_err());
    let texts =
        [hosts.config(), hosts.get("b").config(), hosts.get("new").config()].map(|rules| rules.to_string());
    assert!(texts.iter().all(|text| text == "breaker 50%/3calls"), "{texts:?}");
}

#[test]
fn threads_racing_for_a_new_key_get_the_same_breaker() {
    let (hosts, _) = breakers(1_000);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for key in 0..100_u32 {
                    admitted(&hosts, key).success();
                }
            });
        }
    });
    let stats = hosts.stats();
    assert_eq!((stats.keys, stats.totals.successes, stats.evicted), (100, 800, 0));
}

/// Several probes may be out: while one is, to forget its breaker would let everybody through.
#[test]
fn a_half_open_breaker_with_a_probe_in_flight_is_not_evicted() {
    let clock = ManualClock::default();
    let rules = "breaker 50%/10s min=2 open=5s probes=3 probe-ttl=2s";
    let hosts = KeyedBreakers::builder(rules).clock(clock.clone()).max_keys(2).build().unwrap();
    open(&hosts, "down");
    hosts.get("maintenance").force(Forced::Open);
    clock.advance(5 * SECOND);
    let probe = admitted(&hosts, "down");
    let flood = || (0..100_u32).for_each(|key| admitted(&hosts, key).failure());
    flood();
    assert_eq!(hosts.state("down"), Some(State::HalfOpen));
    // The probe has expired. It is not looked at, so the result is unknown, and it may be evicted.
    clock.advance(2 * SECOND);
    flood();
    assert_eq!(hosts.state("down"), None);
    drop(probe);
}

#[test]
fn the_last_change_applies_to_all_keys() {
    let (hosts, _) = breakers(1_000);
    let rules: Vec<String> = (1..=50).map(|rate| format!("breaker {rate}%/10s")).collect();
    std::thread::scope(|scope| {
        for half in rules.chunks(25) {
            let hosts = &hosts;
            scope.spawn(move || half.iter().for_each(|rules| hosts.change(rules.as_str()).unwrap()));
        }
        for key in 0..300_u32 {
            hosts.get(key);
        }
    });
    let latest = hosts.config();
    assert!((0..300_u32).all(|key| hosts.get(key).config() == latest));
}
