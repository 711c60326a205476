//! What HTTP says of a limit: the fields `RateLimit-Policy`, `RateLimit` and `Retry-After`, as text and numbers.
//!
//! The first two follow draft-ietf-httpapi-ratelimit-headers-11. Both are lists whose items are names with parameters:
//!
//! ```text
//! RateLimit-Policy: "api#1";q=10;w=1;sluice-burst=50, "api#2";q=1000;w=86400
//! RateLimit: "api#2";r=12;t=3600
//! ```
//!
//! The only policy of a name has that name; of several, each has its number behind a `#`. Whoever answers over HTTP,
//! the server or a layer, writes them with this, so that both say the same.

use crate::limit::Limit;
use sluicegate_core::RetryAfter;
use std::fmt;

/// The name of the field that tells the limits.
pub const RATELIMIT_POLICY: &str = "ratelimit-policy";
/// The name of the field that tells how a key stands.
pub const RATELIMIT: &str = "ratelimit";
/// The type of the problem (RFC 9457) that a denial is, from the draft of the fields.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// What `Retry-After` says when a shared store did not answer, in seconds: it is tried about so often.
pub const STORE_RETRY_S: u64 = 1;

const SECOND_US: u64 = 1_000_000;

/// A limit as the draft tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    quota: u64,
    /// The draft knows no fractions of a second; a window with one is not told.
    window_s: Option<u64>,
    at_once: u64,
}

impl Policy {
    /// How a limit is told.
    pub fn of(limit: &Limit) -> Policy {
        let period = limit.period().as_micros();
        // So many at once have no window.
        let is_told = period > 0 && period.is_multiple_of(SECOND_US);
        Policy {
            quota: limit.count(),
            window_s: is_told.then_some(period / SECOND_US),
            at_once: limit.at_once(),
        }
    }

    /// A quota of which nothing else is known.
    pub const fn of_quota(quota: u64) -> Policy {
        Policy { quota, window_s: None, at_once: quota }
    }

    /// How much an idle key could take at once.
    pub const fn at_once(&self) -> u64 {
        self.at_once
    }
}

impl fmt::Display for Policy {
    /// Its parameters: `;q=10;w=1;sluice-burst=50`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ";q={}", self.quota)?;
        if let Some(window) = self.window_s {
            write!(f, ";w={window}")?;
        }
        if self.at_once != self.quota {
            write!(f, ";sluice-burst={}", self.at_once)?;
        }
        Ok(())
    }
}

/// What the policy at a place of so many is called. Without a place it is the name that all of them share.
pub fn policy_name(name: &str, place: Option<usize>, policies: usize) -> String {
    match place {
        Some(place) if policies > 1 => format!("{name}#{}", place + 1),
        _ => name.to_owned(),
    }
}

/// Which of a call's policies its decision speaks of: the one that said no, else the one whose limit the decision tells, if
/// there is but one.
pub fn policy_about(policies: &[Policy], denied_by: Option<usize>, limit: u64) -> Option<usize> {
    if policies.len() < 2 {
        return Some(0);
    }
    if denied_by.is_some() {
        return denied_by;
    }
    let is_of = |policy: &Policy| policy.at_once == limit;
    let place = policies.iter().position(is_of)?;
    (!policies[place + 1..].iter().any(is_of)).then_some(place)
}

/// A name as a string of structured fields (RFC 9651): letters, digits and signs of ASCII. Whatever else is in it, and what
/// would need an escape, is left out.
pub fn quoted(name: &str) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\')).collect();
    format!("\"{plain}\"")
}

/// What `Retry-After` says of a denial: whole seconds, rounded up and never 0, so that whoever obeys comes late enough.
/// `None` when no wait helps.
pub fn retry_after_s(retry_after: RetryAfter) -> Option<u64> {
    match retry_after {
        RetryAfter::After(wait) => Some(wait.as_secs_up().max(1)),
        RetryAfter::Never => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::Span;

    fn policies(limits: &[&str]) -> Vec<Policy> {
        limits.iter().map(|limit| Policy::of(&limit.parse().unwrap())).collect()
    }

    #[test]
    fn a_limit_is_told_with_its_burst_and_window() {
        let told: Vec<String> = policies(&[
            "token-bucket 10/s burst=50",
            "fixed-window 1000/d",
            "sliding-log 5/1500ms",
            "concurrency 10",
        ])
        .iter()
        .map(Policy::to_string)
        .collect();
        assert_eq!(told, [";q=10;w=1;sluice-burst=50", ";q=1000;w=86400", ";q=5", ";q=10"]);
    }

    #[test]
    fn a_decision_speaks_of_the_policy_that_said_no_or_that_it_can_be_told_by() {
        let two = policies(&["sliding-log 5/60s", "sliding-log 100/d"]);
        assert_eq!(policy_about(&two, Some(1), 5), Some(1));
        assert_eq!(policy_about(&two, None, 100), Some(1));
        assert_eq!(policy_about(&policies(&["sliding-log 5/60s", "sliding-log 5/d"]), None, 5), None);
        assert_eq!(policy_about(&two[..1], None, 7), Some(0));
    }

    #[test]
    fn whoever_obeys_retry_after_comes_late_enough() {
        let told = |micros| retry_after_s(RetryAfter::After(Span::from_micros(micros)));
        assert_eq!([0, 1, 999_999, 1_000_000, 1_000_001].map(told), [1, 1, 1, 1, 2].map(Some));
        assert_eq!(retry_after_s(RetryAfter::Never), None);
    }

    #[test]
    fn a_name_cannot_break_out_of_its_quotes() {
        assert_eq!(quoted("a\"b\\c\r\nd é"), "\"abcd\"");
        assert_eq!(policy_name("api", Some(1), 2), "api#2");
        assert_eq!(policy_name("api", Some(0), 1), "api");
    }
}
