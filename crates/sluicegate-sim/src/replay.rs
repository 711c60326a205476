//! Limits over a trace: every key's state is kept, nothing is ever forgotten, and time is the
//! trace's own.

use crate::trace::{Trace, TraceError};
use sluicegate::Limit;
use sluicegate::LimitError;
use sluicegate_core::all_of::check_list;
use sluicegate_core::{AnyLimit, AnyState, Decision, RetryAfter, Time};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};

/// The header of the decisions.
pub const HEADER: &str = "allowed,limit,remaining,retry_after_us,reset_after_us,delay_us";

/// Output is flushed in pieces of about this size.
const FLUSH_AT: usize = 64 * 1024;
/// No decision is longer in bytes.
const ROW_LEN_MAX: usize = 128;

/// One or several limits, all or nothing, and the state of every key that has called.
pub struct Replay {
    limits: Vec<Limit>,
    /// Made with the first call, whose time is when the limiter starts.
    made: Vec<AnyLimit>,
    /// A state for each limit.
    keys: HashMap<Key, SmallVec<[AnyState; 1]>, foldhash::fast::RandomState>,
}

/// Up to 24 bytes, as most keys are, lie in the table itself.
type Key = SmallVec<[u8; 24]>;

impl Replay {
    /// Limits that must all agree.
    ///
    /// # Errors
    /// When there is none, or one that has no place in a list.
    pub fn new(limits: Vec<Limit>) -> Result<Replay, LimitError> {
        Limit::check_list(&limits)?;
        Ok(Replay { limits, made: Vec::new(), keys: HashMap::default() })
    }

    /// Decides one call. The first one's time is when the limiter starts.
    pub fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Decision {
        if self.made.is_empty() {
            // All of them: what gives leases was refused when this was made.
            self.made = self.limits.iter().filter_map(|limit| limit.made_at(at)).collect();
        }
        if let Some(states) = self.keys.get_mut(key) {
            return check_list(&self.made, states, at, cost);
        }
        let mut states: SmallVec<[AnyState; 1]> = self.made.iter().map(|_| AnyState::default()).collect();
        let decision = check_list(&self.made, &mut states, at, cost);
        self.keys.insert(Key::from_slice(key), states);
        decision
    }

    /// How many keys have called.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("limits", &self.limits)
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

/// Why a replay stopped before the end. What was decided before has been written.
#[derive(Debug)]
pub enum ReplayError {
    /// The trace is bad.
    Trace(TraceError),
    /// The decisions could not be written.
    Write(io::Error),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Trace(error) => error.fmt(f),
            ReplayError::Write(error) => {
                write!(f, "the decisions cannot be written: {error}; check the output")
            }
        }
    }
}

impl std::error::Error for ReplayError {}

/// Replays a trace and writes a decision for each of its calls. How many there were.
///
/// # Errors
/// At the first row that is not a call, after the decisions of the rows before it; or when writing
/// fails.
pub fn run(mut replay: Replay, input: impl Read, output: impl Write) -> Result<u64, ReplayError> {
    let mut trace = Trace::open(input).map_err(ReplayError::Trace)?;
    let mut decisions = Decisions::new(output);
    let mut calls = 0;
    let end = loop {
        match trace.next_call() {
            Ok(Some(call)) => decisions.add(&replay.check(call.at, call.key, call.cost))?,
            Ok(None) => break Ok(calls),
            Err(error) => break Err(ReplayError::Trace(error)),
        }
        calls += 1;
    };
    decisions.finish()?;
    end
}

/// Where decisions go, a row each.
pub struct Decisions<W> {
    output: W,
    written: Vec<u8>,
}

impl<W: Write> Decisions<W> {
    /// Begins with the header.
    pub fn new(output: W) -> Decisions<W> {
        let mut written = Vec::with_capacity(FLUSH_AT + ROW_LEN_MAX);
        written.extend_from_slice(HEADER.as_bytes());
        written.push(b'\n');
        Decisions { output, written }
    }

    /// Writes a row.
    ///
    /// # Errors
    /// When writing fails.
    pub fn add(&mut self, decision: &Decision) -> Result<(), ReplayError> {
        write_row(&mut self.written, decision);
        if self.written.len() >= FLUSH_AT {
            self.output.write_all(&self.written).map_err(ReplayError::Write)?;
            self.written.clear();
        }
        Ok(())
    }

    /// Hands on what is left.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<(), ReplayError> {
        self.output.write_all(&self.written).and_then(|()| self.output.flush()).map_err(ReplayError::Write)
    }
}

/// `1,5,4,,60000000,0`: as [`HEADER`] says; `retry_after_us` is empty when allowed and `never` when
/// never.
fn write_row(out: &mut Vec<u8>, decision: &Decision) {
    let mut digits = itoa::Buffer::new();
    let mut field = |out: &mut Vec<u8>, number: u64| {
        out.push(b',');
        out.extend_from_slice(digits.format(number).as_bytes());
    };
    out.push(if decision.allowed() { b'1' } else { b'0' });
    field(out, decision.limit());
    field(out, decision.remaining());
    match decision.retry_after() {
        None => out.push(b','),
        Some(RetryAfter::After(wait)) => field(out, wait.as_micros()),
        Some(RetryAfter::Never) => out.extend_from_slice(b",never"),
    }
    field(out, decision.reset_after().as_micros());
    field(out, decision.delay().as_micros());
    out.push(b'\n');
}
