//! Who meets whom: a script of ours, the script people use for the same, and where we want to be.

use super::ours;
use super::script::Script;
use crate::server::Outcome;
use crate::server::ours::RULE;
use crate::server::requests::CALL_ID;

const GCRA: &str = include_str!("../../lua/gcra.lua");
const INCR_EXPIRE: &str = include_str!("../../lua/incr_expire.lua");
const ZSET: &str = include_str!("../../lua/zset.lua");

/// Entries that each key's log holds.
pub const ENTRIES: u64 = 100;

/// Two scripts for the same limit.
pub struct Contest {
    pub name: &'static str,
    pub rival_name: &'static str,
    pub ours: Pair,
    pub rival: Pair,
    /// The most that ours may take of what the rival takes, if there is such a bar.
    pub bar: Option<f64>,
    pub keys: Keys,
}

/// What a script is asked, and what it was asked before to bring its keys to where they are.
pub struct Pair {
    pub check: Script,
    pub fill: Script,
}

/// Which keys are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// All the resident ones, drawn uniformly. Each was filled by this many calls.
    Drawn { filled_by: u64 },
    /// So few, in turn, that each holds [`ENTRIES`] of the last second: for each that comes one
    /// leaves.
    Steady,
}

const ONCE: Keys = Keys::Drawn { filled_by: 1 };

/// The contests for processor time.
pub fn for_cpu() -> Outcome<Vec<Contest>> {
    let contest =
        |name, rival_name, ours, rival, bar, keys| Contest { name, rival_name, ours, rival, bar, keys };
    let contests = vec![
        contest(
            "token bucket, allowed",
            "gcra.lua",
            ours_filled(RULE, 100)?,
            gcra("10001", "1000", "100"),
            Some(1.0),
            ONCE,
        ),
        contest(
            "token bucket, denied",
            "gcra.lua",
            ours_filled("token-bucket 1/day", 1)?,
            gcra("1", "1", "1"),
            None,
            ONCE,
        ),
        contest(
            "fixed window, allowed",
            "incr_expire.lua",
            ours_filled("fixed-window 1000000/day", 1)?,
            Pair::same(Script::rival(INCR_EXPIRE, &["86400"])),
            Some(1.1),
            ONCE,
        ),
        contest(
            "fixed window, denied",
            "incr_expire.lua",
            ours_filled("fixed-window 1/day", 1)?,
            Pair::same(Script::rival(INCR_EXPIRE, &["86400"])),
            None,
            ONCE,
        ),
        contest(
            "sliding log of 100 entries, one added, one ages out",
            "zset.lua",
            ours_filled("sliding-log 1000/s", 1)?,
            Pair::same(Script::rival(ZSET, &["1000", "1000000", CALL_ID])),
            Some(0.7),
            Keys::Steady,
        ),
        contest(
            "sliding log of 100 entries, denied",
            "zset.lua",
            ours_filled("sliding-log 100/day", 1)?,
            Pair::same(Script::rival(ZSET, &["100", "86400000000", CALL_ID])),
            None,
            Keys::Drawn { filled_by: ENTRIES },
        ),
    ];
    Ok(contests)
}

/// The contests for memory: bytes per key after this many calls.
pub fn for_memory() -> Outcome<Vec<(Contest, u64)>> {
    let contest = |name, rival_name, ours: &str, rival, bar| {
        let ours = ours_filled(ours, 1)?;
        Ok::<Contest, String>(Contest { name, rival_name, ours, rival: Pair::same(rival), bar, keys: ONCE })
    };
    let log = "sliding-log 100/day";
    let zset = |member| Script::rival(ZSET, &["100", "86400000000", member]);
    Ok(vec![
        (
            contest(
                "token bucket",
                "gcra.lua",
                RULE,
                Script::rival(GCRA, &["10001", "1000", "86400", "1"]),
                None,
            )?,
            1,
        ),
        (
            contest(
                "fixed window",
                "incr_expire.lua",
                "fixed-window 1000000/day",
                Script::rival(INCR_EXPIRE, &["86400"]),
                None,
            )?,
            1,
        ),
        (contest("sliding log, 1 entry", "zset.lua", log, zset(CALL_ID), None)?, 1),
        (
            contest(
                "sliding log, 100 entries",
                "zset.lua, members of 36 bytes",
                log,
                zset(CALL_ID),
                Some(0.4),
            )?,
            ENTRIES,
        ),
        (contest("sliding log, 100 entries", "zset.lua, the time as member", log, zset(""), None)?, ENTRIES),
    ])
}

fn ours_filled(limit: &str, fill: u64) -> Outcome<Pair> {
    Ok(Pair { check: ours::check(limit, 1)?, fill: ours::check(limit, fill)? })
}

fn gcra(burst: &str, count: &str, fill: &str) -> Pair {
    let cost = |cost| Script::rival(GCRA, &[burst, count, "86400", cost]);
    Pair { check: cost("1"), fill: cost(fill) }
}

impl Pair {
    fn same(script: Script) -> Pair {
        Pair { check: script.clone(), fill: script }
    }
}
