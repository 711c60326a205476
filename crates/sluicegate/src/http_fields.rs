//! The HTTP fields of a limit: `RateLimit-Policy`, `RateLimit` and `Retry-After`, as text and
//! numbers.
//!
//! The first two follow draft-ietf-httpapi-ratelimit-headers-11. Both are lists of names with
//! parameters:
//!
//! ```text
//! RateLimit-Policy: "api#1";q=10;w=1;sluice-burst=50, "api#2";q=1000;w=86400
//! RateLimit: "api#1";r=49;t=1, "api#2";r=12;t=3600
//! ```
//!
//! A rule's only policy has the rule's name; if there are several, each is numbered after a `#`.
//! The server and the tower layers both use this module, so that they write the same fields.

use crate::limit::Limit;
use sluicegate_core::RetryAfter;
use std::fmt;

/// The name of the field that lists the limits.
pub const RATELIMIT_POLICY: &str = "ratelimit-policy";
/// The name of the field that reports a key's state.
pub const RATELIMIT: &str = "ratelimit";
/// The problem type (RFC 9457) of a denial, from the draft of the fields.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The value of `Retry-After`, in seconds, when a shared store gave no answer: about as often is
/// the store tried again.
pub const STORE_RETRY_S: u64 = 1;

const SECOND_US: u64 = 1_000_000;

/// A limit in the terms of the draft.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    quota: u64,
    /// The draft has no fractions of a second; a window with one is omitted.
    window_s: Option<u64>,
    burst: u64,
}

impl Policy {
    /// The policy of a limit.
    pub fn of(limit: &Limit) -> Policy {
        let period = limit.period().as_micros();
        // A `concurrency` limit has no window.
        let has_whole_seconds = period > 0 && period.is_multiple_of(SECOND_US);
        Policy {
            quota: limit.count(),
            window_s: has_whole_seconds.then_some(period / SECOND_US),
            burst: limit.at_once(),
        }
    }

    /// A policy of which only the quota is known.
    pub const fn of_quota(quota: u64) -> Policy {
        Policy { quota, window_s: None, burst: quota }
    }

    /// The highest cost admitted at once for an idle key.
    pub const fn burst(&self) -> u64 {
        self.burst
    }
}

impl fmt::Display for Policy {
    /// Writes its parameters: `;q=10;w=1;sluice-burst=50`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ";q={}", self.quota)?;
        if let Some(window) = self.window_s {
            write!(f, ";w={window}")?;
        }
        if self.burst != self.quota {
            write!(f, ";sluice-burst={}", self.burst)?;
        }
        Ok(())
    }
}

/// The name of one of several policies. Without an index, the name that they share.
pub fn policy_name(name: &str, index: Option<usize>, policies: usize) -> String {
    match index {
        Some(index) if policies > 1 => format!("{name}#{}", index + 1),
        _ => name.to_owned(),
    }
}

/// The policy that a decision refers to: the one that denied, else the only one whose burst is the
/// decision's limit.
pub fn policy_about(policies: &[Policy], denied_by: Option<usize>, limit: u64) -> Option<usize> {
    if policies.len() < 2 {
        return Some(0);
    }
    if denied_by.is_some() {
        return denied_by;
    }
    let is_of = |policy: &Policy| policy.burst == limit;
    let index = policies.iter().position(is_of)?;
    (!policies[index + 1..].iter().any(is_of)).then_some(index)
}

/// A name as a string of structured fields (RFC 9651): visible ASCII characters. All others, and
/// those that would need an escape, are left out.
pub fn quoted(name: &str) -> String {
    let plain: String = name.chars().filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\')).collect();
    format!("\"{plain}\"")
}

/// The value of `Retry-After` for a denial: whole seconds, rounded up and never 0, so that a client
/// that obeys it does not retry too early. `None` if no wait helps.
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
    fn a_policy_has_a_burst_and_a_window() {
        let written: Vec<String> = policies(&[
            "token-bucket 10/s burst=50",
            "fixed-window 1000/d",
            "sliding-log 5/1500ms",
            "concurrency 10",
        ])
        .iter()
        .map(Policy::to_string)
        .collect();
        assert_eq!(written, [";q=10;w=1;sluice-burst=50", ";q=1000;w=86400", ";q=5", ";q=10"]);
    }

    #[test]
    fn a_decision_names_the_policy_that_denied_or_matches() {
        let two = policies(&["sliding-log 5/60s", "sliding-log 100/d"]);
        assert_eq!(policy_about(&two, Some(1), 5), Some(1));
        assert_eq!(policy_about(&two, None, 100), Some(1));
        assert_eq!(policy_about(&policies(&["sliding-log 5/60s", "sliding-log 5/d"]), None, 5), None);
        assert_eq!(policy_about(&two[..1], None, 7), Some(0));
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        let seconds = |micros| retry_after_s(RetryAfter::After(Span::from_micros(micros)));
        assert_eq!([0, 1, 999_999, 1_000_000, 1_000_001].map(seconds), [1, 1, 1, 1, 2].map(Some));
        assert_eq!(retry_after_s(RetryAfter::Never), None);
    }

    #[test]
    fn a_name_cannot_escape_its_quotes() {
        assert_eq!(quoted("a\"b\\c\r\nd é"), "\"abcd\"");
        assert_eq!(policy_name("api", Some(1), 2), "api#2");
        assert_eq!(policy_name("api", Some(0), 1), "api");
    }
}
