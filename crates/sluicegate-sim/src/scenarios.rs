//! The classic scenarios that limits are written for: each a limit, some calls, and what they
//! should meet.
//!
//! Tests run them, and the example `scenarios` shows them.

use sluicegate_core::Time;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// 2026-11-11T12:00:00Z, a Wednesday at noon.
const NOON: u64 = 1_794_398_400 * SECOND;

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What someone wants.
    pub wish: &'static str,
    /// The limit that says it.
    pub limit: &'static str,
    /// What to look at in the outcome.
    pub shows: &'static str,
    /// The calls.
    pub calls: Vec<Call>,
}

/// One call and what it meets.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// When.
    pub at: Time,
    /// Who calls.
    pub key: &'static str,
    /// Whether it is allowed.
    pub allowed: bool,
}

/// `count` calls of one key at one time, the first `allowed` of which pass.
fn burst(at: u64, key: &'static str, count: usize, allowed: usize) -> impl Iterator<Item = Call> {
    let at = Time::saturating_from_micros(at);
    (0..count).map(move |place| Call { at, key, allowed: place < allowed })
}

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            wish: "a user may reply 5 times a minute",
            limit: "sliding-log 5/60s",
            shows: "20 calls at once: five yes, fifteen no; a minute later five more",
            calls: burst(NOON, "user:42", 20, 5).chain(burst(NOON + MINUTE, "user:42", 6, 5)).collect(),
        },
        Scenario {
            wish: "an IP may visit 10 times a minute",
            limit: "sliding-window 10/60s",
            shows: "ten pass; 30 s into the next minute half of them still count, so five pass",
            calls: burst(NOON, "203.0.113.9", 12, 10)
                .chain(burst(NOON + 90 * SECOND, "203.0.113.9", 6, 5))
                .chain(burst(NOON + 90 * SECOND, "203.0.113.10", 2, 2))
                .collect(),
        },
        Scenario {
            wish: "a shopper may order once in 30 minutes",
            limit: "min-interval 30min",
            shows: "the second order passes 30 minutes after the first, not a microsecond sooner",
            calls: burst(NOON, "shopper", 2, 1)
                .chain(burst(NOON + 30 * MINUTE - 1, "shopper", 1, 0))
                .chain(burst(NOON + 30 * MINUTE, "shopper", 1, 1))
                .collect(),
        },
        Scenario {
            wish: "a client gets 50 calls in 10 seconds, evenly",
            limit: "token-bucket 50/10s burst=1",
            shows: "one call each 200 ms, whatever it tries in between",
            calls: (0..50_u64)
                .flat_map(|slot| {
                    let at = NOON + slot * 200_000;
                    burst(at, "client", 1, 1).chain(burst(at + 100_000, "client", 1, 0))
                })
                .collect(),
        },
        Scenario {
            wish: "a player may check in once a calendar day in UTC+8",
            limit: "fixed-window 1/day tz=+08:00",
            shows: "the first call is at noon UTC, and the new day there begins at 16:00 UTC",
            calls: burst(NOON, "player", 2, 1)
                .chain(burst(NOON + 4 * HOUR - 1, "player", 1, 0))
                .chain(burst(NOON + 4 * HOUR, "player", 2, 1))
                .collect(),
        },
        Scenario {
            wish: "a worker takes one job each 100 ms, and ten may wait their turn",
            limit: "pacer 10/s queue=10",
            shows: "eleven simultaneous calls get delays of 0, 100, ... 1000 ms; the twelfth is denied",
            calls: burst(NOON, "worker", 13, 11).collect(),
        },
        Scenario {
            wish: "a tenant gets 1000 units a day, and 100 in a sudden burst",
            limit: "token-bucket 1000/d burst=100",
            shows: "a burst of 100, then one every 86.4 s",
            calls: burst(NOON, "tenant", 101, 100).chain(burst(NOON + 86_400_000, "tenant", 2, 1)).collect(),
        },
    ]
}
