//! Which limits go together in a list.

use super::{LIMITS_MAX, Limit};
use std::fmt;

/// Why limits do not go together in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListError {
    /// The list is empty.
    Empty,
    /// The list has this many limits, more than [`LIMITS_MAX`].
    TooMany(usize),
    /// This limit counts denied calls, and a list charges all of its limits or none.
    CountsDenied(String),
    /// This limit is `smooth`, under which the next caller pays: its `remaining` cannot be compared
    /// with that of other limits.
    Smooth(String),
    /// This limit is `concurrency`, which grants leases and decides no checks, in a list or alone.
    GivesLeases(String),
}

impl ListError {
    /// Checks that the limits decide checks and go together.
    ///
    /// # Errors
    /// If there are none or too many, or one that cannot be in a list, or one that grants leases.
    pub fn check(limits: &[Limit]) -> Result<(), ListError> {
        if limits.is_empty() {
            return Err(ListError::Empty);
        }
        if limits.len() > LIMITS_MAX {
            return Err(ListError::TooMany(limits.len()));
        }
        if let Some(limit) = limits.iter().find(|limit| limit.as_concurrency().is_some()) {
            return Err(ListError::GivesLeases(limit.to_string()));
        }
        match limits.iter().find(|limit| limits.len() > 1 && !limit.fits_in_a_list()) {
            Some(limit) if limit.algorithm() == "smooth" => Err(ListError::Smooth(limit.to_string())),
            Some(limit) => Err(ListError::CountsDenied(limit.to_string())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListError::Empty => {
                f.write_str("there is no limit; give at least one, such as sliding-log 5/60s")
            }
            ListError::TooMany(limits) => {
                write!(f, "a list of {limits} limits is above the maximum, {LIMITS_MAX}; leave some out")
            }
            ListError::CountsDenied(limit) => write!(
                f,
                "{limit}: count=all does not go with other limits; leave count=all out, or use it alone"
            ),
            ListError::Smooth(limit) => write!(
                f,
                "{limit}: smooth does not go with other limits; use it alone, or token-bucket, leaky-bucket or pacer in its place"
            ),
            ListError::GivesLeases(limit) => write!(
                f,
                "{limit}: concurrency gives leases, which checks cannot return; make a Semaphore of it, alone (over the network: RL.ACQUIRE)"
            ),
        }
    }
}

impl std::error::Error for ListError {}
