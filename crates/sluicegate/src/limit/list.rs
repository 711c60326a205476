//! Limits that must all agree.

use super::Limit;
use std::fmt;

/// Why limits do not go together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListError {
    /// There is none.
    Empty,
    /// This one counts denied calls, and a list charges all or none.
    CountsDenied(String),
    /// This one is `smooth`, which lets the next caller pay: what remains of it says nothing beside the others'.
    Smooth(String),
    /// This one is `concurrency`, which gives leases and decides no checks: not in a list, and not alone.
    GivesLeases(String),
}

impl ListError {
    /// An error unless the limits decide checks and go together.
    ///
    /// # Errors
    /// When there is none, one that has no place in a list, or one that gives leases.
    pub fn check(limits: &[Limit]) -> Result<(), ListError> {
        if limits.is_empty() {
            return Err(ListError::Empty);
        }
        if let Some(limit) = limits.iter().find(|limit| limit.concurrency().is_some()) {
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
