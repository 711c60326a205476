//! Which limits go together in a list.

use super::{LIMITS_MAX, Limit, LimitError};
use crate::grammar::SyntaxError;

impl Limit {
    /// Checks that the limits decide checks and go together.
    ///
    /// # Errors
    /// If there are none or too many, or one that cannot be in a list, or one that grants leases.
    pub fn check_list(limits: &[Limit]) -> Result<(), LimitError> {
        if limits.is_empty() {
            return Err(LimitError::no_limit());
        }
        if limits.len() > LIMITS_MAX {
            let problem = format!("a list of {} limits is above the maximum, {LIMITS_MAX}", limits.len());
            return Err(LimitError::new("", SyntaxError::new(problem, "leave some out")));
        }
        if let Some(limit) = limits.iter().find(|limit| limit.as_concurrency().is_some()) {
            return Err(limit.grants_leases());
        }
        let Some(limit) = limits.iter().find(|limit| limits.len() > 1 && !limit.fits_in_a_list()) else {
            return Ok(());
        };
        let (problem, advice) = if limit.algorithm() == "smooth" {
            (
                "smooth does not go with other limits",
                "use it alone, or token-bucket, leaky-bucket or pacer in its place",
            )
        } else {
            ("count=all does not go with other limits", "leave count=all out, or use it alone")
        };
        Err(LimitError::new(&limit.to_string(), SyntaxError::new(problem, advice)))
    }

    /// Why a `concurrency` limit decides no checks.
    pub(crate) fn grants_leases(&self) -> LimitError {
        let problem = "concurrency grants leases, which checks cannot return";
        let advice = "make a Semaphore of it, alone (over the network: RL.ACQUIRE)";
        LimitError::new(&self.to_string(), SyntaxError::new(problem, advice))
    }
}

impl LimitError {
    /// The list is empty.
    pub(crate) fn no_limit() -> LimitError {
        let advice = "give at least one, such as sliding-log 5/60s";
        LimitError::new("", SyntaxError::new("there is no limit", advice))
    }
}
