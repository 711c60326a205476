//! A replay on a shared store: the same decisions from its scripts, at the trace's times.

use crate::Problem;
use sluicegate::backend::{Answer, StoreFailure};
use sluicegate::{Limit, Time};
use sluicegate_redis::{RedisCall, RedisLimiter, RedisStore, check_each};
use sluicegate_sim::replay::{Decisions, ReplayError};
use sluicegate_sim::trace::{Trace, TraceError};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Calls per pipeline; the store decides them one after another.
const BATCH: usize = 512;
/// No caller waits for a single decision of a replay, so the deadline is long.
const DEADLINE: Duration = Duration::from_secs(30);
/// What the names of keys begin with, before a part that no other replay has.
const KEY_PREFIX: &str = "sluice-replay:";

/// A call that waits to be sent.
struct Row {
    at: Time,
    key: Box<[u8]>,
    cost: u64,
}

/// Replays a trace on the store at an address. The inner result is that of a replay in memory.
pub(super) fn run(
    url: &str,
    limits: &[Limit],
    input: impl Read,
    output: impl Write,
) -> Result<Result<(), ReplayError>, Problem> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let prefix = format!("{KEY_PREFIX}{:x}:", std::process::id()) + &format!("{:x}:", nanos());
    let store = RedisStore::builder(url).key_prefix(&prefix).deadline(DEADLINE).connect();
    let store = runtime.block_on(store).map_err(|error| error.to_string())?;
    let mut shared = Shared { runtime, store, limits, limiter: None, keys: HashSet::new() };
    let replayed = shared.replay(input, output);
    // Also after a failure; what cannot be removed is gone within a day.
    let removed = shared.remove_keys();
    let replayed = replayed?;
    removed.map(|()| replayed)
}

/// Apart from other replays, even of a process with the same number elsewhere.
fn nanos() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

struct Shared<'a> {
    runtime: Runtime,
    store: RedisStore,
    limits: &'a [Limit],
    /// Made with the first call, whose time is when the limiter starts.
    limiter: Option<RedisLimiter>,
    keys: HashSet<Box<[u8]>>,
}

impl Shared<'_> {
    fn replay(&mut self, input: impl Read, output: impl Write) -> Result<Result<(), ReplayError>, Problem> {
        let mut trace = match Trace::open(input) {
            Ok(trace) => trace,
            Err(error) => return Ok(Err(ReplayError::Trace(error))),
        };
        let mut decisions = Decisions::new(output);
        let mut calls = 0_u64;
        loop {
            let (rows, end) = next_rows(&mut trace);
            for answer in self.decide(&rows)? {
                let added = match answer {
                    Ok(answer) => decisions.add(&answer.decision()),
                    // After the rows before it.
                    Err(failure) => {
                        let finished = decisions.finish().err().map(|error| format!("; {error}"));
                        return Err(format!("call {}: {failure}{}", calls + 1, finished.unwrap_or_default()));
                    }
                };
                if let Err(error) = added {
                    return Ok(Err(error));
                }
                calls += 1;
            }
            match end {
                None => {}
                Some(end) => {
                    let finished = decisions.finish();
                    return Ok(end.map_err(ReplayError::Trace).and(finished));
                }
            }
        }
    }

    fn decide(&mut self, rows: &[Row]) -> Result<Vec<Result<Answer, StoreFailure>>, Problem> {
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        if self.limiter.is_none() {
            let builder = RedisLimiter::builder(self.limits).in_store(&self.store, "replay").start(first.at);
            self.limiter = Some(builder.build().map_err(|error| error.to_string())?);
        }
        let Some(limiter) = &self.limiter else { return Ok(Vec::new()) };
        for row in rows.iter().filter(|row| !self.keys.contains(&row.key)).collect::<Vec<_>>() {
            self.keys.insert(row.key.clone());
        }
        let calls: Vec<RedisCall<'_>> =
            rows.iter().map(|row| limiter.call(&row.key, row.cost).at(row.at)).collect();
        Ok(self.runtime.block_on(check_each(&calls)))
    }

    fn remove_keys(&self) -> Result<(), Problem> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        let keys: Vec<&[u8]> = self.keys.iter().map(AsRef::as_ref).collect();
        for keys in keys.chunks(BATCH) {
            let removed = self.runtime.block_on(limiter.reset_each(keys));
            removed.map_err(|failure| {
                format!("the replay's keys were not all removed; they expire: {failure}")
            })?;
        }
        Ok(())
    }
}

/// Up to a batch of calls, and how the trace ended if it did.
fn next_rows(trace: &mut Trace<impl Read>) -> (Vec<Row>, Option<Result<(), TraceError>>) {
    let mut rows = Vec::with_capacity(BATCH);
    while rows.len() < BATCH {
        match trace.next_call() {
            Ok(Some(call)) => rows.push(Row { at: call.at, key: call.key.into(), cost: call.cost }),
            Ok(None) => return (rows, Some(Ok(()))),
            Err(error) => return (rows, Some(Err(error))),
        }
    }
    (rows, None)
}
