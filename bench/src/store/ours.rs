//! Our scripts, as the library sends them.

use super::script::Script;
use crate::server::Outcome;
use crate::server::requests::KEY;
use sluicegate::Limit;
use sluicegate_redis::bench;

/// The check of a limit at a cost.
pub fn check(limit: &str, cost: u64) -> Outcome<Script> {
    let parsed: Limit = limit.parse().map_err(|error| format!("{limit}: {error}"))?;
    let sent = bench::check(&parsed, KEY.as_bytes(), cost);
    let bench::Sent { script, key, arguments } = sent.ok_or_else(|| format!("{limit} has no script"))?;
    Ok(Script { text: script, keys: vec![key], arguments })
}
