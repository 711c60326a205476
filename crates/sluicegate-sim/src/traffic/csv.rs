//! A trace as traffic: CSV with the header `at_us,key,cost`.
//!
//! The rows stay in their order, also where the times go back: a trace says in which order a
//! limiter met the calls, and that its clock stepped back is part of what it says.

use super::{BrokenLine, Call, Clock, Collector, Reading, Traffic, TrafficError};
use crate::trace::{Trace, TraceError};
use std::io::Read;

/// Reads all calls of a trace.
///
/// # Errors
/// When the input cannot be read, the header is not `at_us,key,cost`, no row is a call, there are
/// too many, or, if every row has to be a call, one is not.
pub fn read(input: impl Read, reading: Reading) -> Result<Traffic, TrafficError> {
    let mut collector = Collector::new(Clock::Utc, reading);
    let mut trace = Trace::open(input).map_err(fatal)?;
    loop {
        let error = match trace.next_call() {
            Ok(None) => {
                collector.guess_clock();
                return collector.finish("write a row for each call below the header");
            }
            Ok(Some(call)) => {
                let key = collector.key(call.key)?;
                collector.push(Call { at: call.at, key, cost: call.cost })?;
                continue;
            }
            Err(error) => error,
        };
        collector.broken(broken(error)?)?;
        trace.pass_over().map_err(fatal)?;
    }
}

/// The malformed row, unless reading the input failed.
fn broken(error: TraceError) -> Result<BrokenLine, TrafficError> {
    match error {
        TraceError::Io(error) => Err(TrafficError::Io(error)),
        TraceError::Bad { line, problem, advice } => {
            Ok(BrokenLine { line, problem, advice: advice.to_owned() })
        }
    }
}

fn fatal(error: TraceError) -> TrafficError {
    broken(error).map_or_else(|error| error, TrafficError::Line)
}
