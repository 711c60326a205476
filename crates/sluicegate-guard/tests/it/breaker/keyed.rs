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
fn keys_are_apart_from_each_other() {
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
fn there_are_never_more_than_max_keys() {
    for max_keys in [1, 3, 64, 200, 1_000] {
        let (hosts, _) = breakers(max_keys);
        for key in 0..3_000_u32 {
            admitted(&hosts, key).success();
        }
        let stats = hosts.stats();
        assert!(stats.keys <= max_keys && stats.max_keys <= max_keys, "{stats:?}");
        // Not all tables are equally full, and what does not divide is left out.
        assert!(stats.keys * 10 >= max_keys * 9, "{stats:?}");
        // What those who made room had seen is not lost.
        assert_eq!(
            (stats.totals.allowed(), stats.evicted, stats.no_room),
            (3_000, 3_000 - stats.keys as u64, 0)
        );
    }
}

#[test]
fn the_bounds_of_max_keys_are_named() {
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
fn idle_ones_make_room_first_then_the_closed_one_that_was_asked_longest_ago() {
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
fn open_ones_are_kept_however_many_keys_come() {
    let (hosts, clock) = breakers(4);
    open(&hosts, "down");
    hosts.get("maintenance").force(Forced::Open);
    for key in 0..1_000_u32 {
        admitted(&hosts, key).success();
    }
    assert!(!hosts.try_acquire("down").allowed() && !hosts.try_acquire("maintenance").allowed());
    // With its time over it lets one through in any case, and can be spared; what is forced never is.
    clock.advance(5 * SECOND);
    let _probe = admitted(&hosts, "down");
    for key in 0..1_000_u32 {
        admitted(&hosts, key).failure();
    }
    assert_eq!(hosts.state("down"), Some(State::HalfOpen), "its probe is out");
    assert_eq!(hosts.state("maintenance"), Some(State::ForcedOpen));
}

#[test]
fn full_of_open_ones_a_new_key_passes_and_is_not_remembered() {
    let (hosts, clock) = breakers(2);
    open(&hosts, "a");
    open(&hosts, "b");
    for _ in 0..10 {
        admitted(&hosts, "c").failure();
    }
    assert_eq!((hosts.state("c"), hosts.stats().no_room, hosts.stats().keys), (None, 10, 2));
    assert!(!hosts.try_acquire("a").allowed() && !hosts.try_acquire("b").allowed());
    // Nobody asks for "a" and "b" any more. When their time is over, they make room: a set cannot be full for ever.
    clock.advance(5 * SECOND);
    open(&hosts, "c");
    open(&hosts, "d");
    assert_eq!((hosts.state("a"), hosts.state("b"), hosts.stats().evicted), (None, None, 2));
}

#[test]
fn a_key_can_be_forgotten_and_all_can_be_changed() {
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
fn threads_that_meet_at_a_new_key_get_the_same_breaker() {
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
fn a_half_open_one_is_kept_while_a_probe_is_out_though_others_may_pass() {
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
    // It has not ended in time. Nobody looks, so it is not known what that comes to, and it may be forgotten.
    clock.advance(2 * SECOND);
    flood();
    assert_eq!(hosts.state("down"), None);
    drop(probe);
}

#[test]
fn whichever_change_comes_last_holds_for_all_keys() {
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
