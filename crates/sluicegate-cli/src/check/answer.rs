//! A decision of the server, in words.

use super::reply::Reply;
use crate::Problem;
use serde::Serialize;
use sluicegate::Span;
use sluicegate_sim::human::{TIE, about, count, printable};

/// The seven items of a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after: Retry,
    reset_after_ms: u64,
    delay_ms: u64,
    denied_by: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Retry {
    AfterMs(u64),
    Never,
    NotNeeded,
}

impl Answer {
    /// `None` if it is not a decision.
    pub(super) fn read(reply: &Reply) -> Option<Answer> {
        let Reply::List(items) = reply else { return None };
        let [Reply::Number(allowed), numbers @ .., denied_by] = &items[..] else { return None };
        let [
            Reply::Number(limit),
            Reply::Number(remaining),
            Reply::Number(retry_after),
            Reply::Number(reset_after),
            Reply::Number(delay),
        ] = numbers
        else {
            return None;
        };
        Some(Answer {
            allowed: match allowed {
                0 => false,
                1 => true,
                _ => return None,
            },
            limit: u64::try_from(*limit).ok()?,
            remaining: u64::try_from(*remaining).ok()?,
            retry_after: match retry_after {
                -2 => Retry::Never,
                -1 => Retry::NotNeeded,
                millis => Retry::AfterMs(u64::try_from(*millis).ok()?),
            },
            reset_after_ms: u64::try_from(*reset_after).ok()?,
            delay_ms: u64::try_from(*delay).ok()?,
            denied_by: match denied_by {
                Reply::Nothing => None,
                Reply::Text(limit) => Some(limit.clone()),
                _ => return None,
            },
        })
    }

    /// One line for people.
    pub(super) fn words(&self, peek: bool) -> String {
        let would = if peek { "would be " } else { "" };
        let line = match (&self.denied_by, self.allowed) {
            (None, true) => format!("{would}allowed{}: {}", self.delay(), self.room()),
            // A shadow rule.
            (Some(limit), true) => {
                format!("{would}allowed by a shadow rule, denied by {}: {}", printable(limit), self.again())
            }
            (Some(limit), false) if limit == "blocked" => format!("{would}denied: the key is blocked"),
            (Some(limit), false) => format!("{would}denied by {}: {}", printable(limit), self.again()),
            (None, false) => {
                format!("{would}denied, because the server has no room for a new key: {}", self.again())
            }
        };
        line.replace(TIE, " ")
    }

    fn room(&self) -> String {
        let room = format!("{} of {} remaining", count(self.remaining), count(self.limit));
        match self.reset_after_ms {
            0 => room,
            millis => format!("{room}, resets in {}", length(millis)),
        }
    }

    fn delay(&self) -> String {
        match self.delay_ms {
            0 => String::new(),
            millis => format!(" after {}", length(millis)),
        }
    }

    fn again(&self) -> String {
        match self.retry_after {
            Retry::AfterMs(millis) => format!("retry in {}", length(millis)),
            Retry::Never => format!("retrying will not help, a call may cost at most {}", count(self.limit)),
            Retry::NotNeeded => self.room(),
        }
    }

    /// One line for programs, with the field names of HTTP.
    pub(super) fn json(&self) -> Result<String, Problem> {
        #[derive(Serialize)]
        struct Fields<'a> {
            allowed: bool,
            limit: u64,
            remaining: u64,
            retry_after_ms: Option<u64>,
            never: bool,
            reset_after_ms: u64,
            delay_ms: u64,
            denied_by: Option<&'a str>,
        }
        let fields = Fields {
            allowed: self.allowed,
            limit: self.limit,
            remaining: self.remaining,
            retry_after_ms: match self.retry_after {
                Retry::AfterMs(millis) => Some(millis),
                Retry::Never | Retry::NotNeeded => None,
            },
            never: self.retry_after == Retry::Never,
            reset_after_ms: self.reset_after_ms,
            delay_ms: self.delay_ms,
            denied_by: self.denied_by.as_deref(),
        };
        serde_json::to_string(&fields).map_err(|error| format!("cannot write JSON: {error}"))
    }
}

/// Rounded up, like every reported value: a caller that retries then is not too early.
fn length(millis: u64) -> String {
    about(Span::from_micros(millis.saturating_mul(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(numbers: [i64; 6], denied_by: Option<&str>) -> Answer {
        let mut items: Vec<Reply> = numbers.into_iter().map(Reply::Number).collect();
        items.push(denied_by.map_or(Reply::Nothing, |limit| Reply::Text(limit.into())));
        Answer::read(&Reply::List(items)).unwrap()
    }

    #[test]
    fn decisions_are_put_in_words() {
        let log = Some("sliding-log 5/60s");
        for (numbers, denied_by, words) in [
            ([1, 5, 4, -1, 60_000, 0], None, "allowed: 4 of 5 remaining, resets in 1 min"),
            ([1, 5, 5, -1, 0, 0], None, "allowed: 5 of 5 remaining"),
            ([1, 20, 19, -1, 200, 100], None, "allowed after 100 ms: 19 of 20 remaining, resets in 200 ms"),
            ([0, 5, 0, 42_000, 60_000, 0], log, "denied by sliding-log 5/60s: retry in 42 s"),
            ([0, 5, 0, 41_901, 60_000, 0], log, "denied by sliding-log 5/60s: retry in 42 s"),
            (
                [0, 5, 5, -2, 0, 0],
                log,
                "denied by sliding-log 5/60s: retrying will not help, a call may cost at most 5",
            ),
            ([0, 0, 0, -2, 0, 0], Some("blocked"), "denied: the key is blocked"),
            (
                [0, 5, 0, 1000, 1000, 0],
                None,
                "denied, because the server has no room for a new key: retry in 1 s",
            ),
            (
                [1, 5, 0, 42_000, 60_000, 0],
                log,
                "allowed by a shadow rule, denied by sliding-log 5/60s: retry in 42 s",
            ),
        ] {
            assert_eq!(answer(numbers, denied_by).words(false), words);
        }
        assert_eq!(answer([1, 5, 5, -1, 0, 0], None).words(true), "would be allowed: 5 of 5 remaining");
    }

    #[test]
    fn other_replies_are_not_decisions() {
        let number = Reply::Number(0);
        for reply in [
            Reply::Nothing,
            Reply::List(vec![]),
            Reply::List(vec![number.clone(); 7]),
            Reply::List(vec![number.clone(); 5]),
            Reply::List([vec![Reply::Number(2)], vec![number.clone(); 5], vec![Reply::Nothing]].concat()),
            Reply::List([vec![number.clone()], vec![Reply::Number(-3); 5], vec![Reply::Nothing]].concat()),
        ] {
            assert_eq!(Answer::read(&reply), None, "{reply:?}");
        }
    }
}
