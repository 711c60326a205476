//! What stands between callers and a dependency: a real guard, on a clock that is set by hand.

use super::LineError;
use sluicegate::internal::grammar::{SyntaxError, name};
use sluicegate_guard::breaker::{BreakerConfig, State};
use sluicegate_guard::bulkhead::BulkheadConfig;
use sluicegate_guard::guard::Failure;
use sluicegate_guard::{AdaptiveLimit, BuildError, Guard, ManualClock};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::str::FromStr;
use std::task::{Context, Poll, Waker};

/// The names of protections.
const NAMES: [&str; 5] = ["none", "bulkhead", "breaker", "aimd", "gradient"];

/// A protection; made by `"breaker 50%/10s + aimd 20".parse()`, or `"none".parse()`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protection {
    breaker: Option<BreakerConfig>,
    places: Option<Places>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Places {
    Fixed(BulkheadConfig),
    Adaptive(AdaptiveLimit),
}

impl FromStr for Protection {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Protection, LineError> {
        LineError::check_length("protection", text, "none, or breaker 50%/10s + aimd 20")?;
        protection(text).map_err(|mistake| LineError::new("protection", text, mistake))
    }
}

fn protection(text: &str) -> Result<Protection, SyntaxError> {
    let mut protection = Protection { breaker: None, places: None };
    for part in text.split('+').map(str::trim) {
        let word = part.split_ascii_whitespace().next().unwrap_or_default();
        let is_taken = match name("protection", word, &NAMES)? {
            "none" if part == "none" && text.trim() == "none" => return Ok(protection),
            "none" => return Err(SyntaxError::new("none stands alone", "write none, or what there is")),
            "breaker" => protection.breaker.replace(read(part)?).is_some(),
            "bulkhead" => protection.places.replace(Places::Fixed(bulkhead(part)?)).is_some(),
            _ => protection.places.replace(Places::Adaptive(read(part)?)).is_some(),
        };
        if is_taken {
            let problem = "there is one breaker, and one of bulkhead, aimd and gradient";
            return Err(SyntaxError::new(problem, "try the others in a protection of their own"));
        }
    }
    Ok(protection)
}

fn read<T: FromStr<Err: ToString>>(part: &str) -> Result<T, SyntaxError> {
    // Both halves of the advice are in the message.
    part.parse().map_err(|error: T::Err| {
        let said = error.to_string();
        let (problem, advice) = said.split_once("; ").unwrap_or((&said, "see sluice overload --help"));
        SyntaxError::new(problem, advice)
    })
}

fn bulkhead(part: &str) -> Result<BulkheadConfig, SyntaxError> {
    let spec: BulkheadConfig = read(part)?;
    if spec.queue() > 0 {
        let problem = "waiting in the queue of a bulkhead is not simulated";
        return Err(SyntaxError::new(problem, "leave queue= and wait= out"));
    }
    Ok(spec)
}

impl Protection {
    /// A guard that is made of it.
    pub(super) fn guard(&self, clock: &ManualClock) -> Result<Protected, BuildError> {
        let mut builder = Guard::builder("simulated").clock(clock.clone());
        if let Some(rules) = self.breaker {
            builder = builder.breaker(rules);
        }
        builder = match &self.places {
            None => builder,
            Some(Places::Fixed(spec)) => builder.bulkhead(*spec),
            Some(Places::Adaptive(limit)) => builder.bulkhead(limit.to_string()),
        };
        Ok(Protected(builder.build()?))
    }
}

/// A protection at work.
pub(super) struct Protected(Guard);

/// An admitted call, in flight until its result is reported.
pub(super) struct Passed {
    call: Pin<Box<dyn Future<Output = Result<(), Failure<()>>>>>,
    end: Rc<Cell<Option<Result<(), ()>>>>,
}

impl Protected {
    /// Lets a call through, or not.
    pub(super) fn ask(&self) -> Option<Passed> {
        let end = Rc::new(Cell::new(None));
        let result = Rc::clone(&end);
        let call = self.0.call(move || {
            let result = Rc::clone(&result);
            poll_fn(move |_| result.get().map_or(Poll::Pending, Poll::Ready))
        });
        let mut passed = Passed { call: Box::pin(call), end };
        // There is no queue, so the call is in flight now, or was denied.
        passed.look().is_pending().then_some(passed)
    }

    /// The limit now, and whether a breaker keeps calls out.
    pub(super) fn look(&self) -> (Option<u32>, bool) {
        let is_open =
            self.0.breaker().is_some_and(|breaker| matches!(breaker.state(), State::Open | State::HalfOpen));
        (self.0.bulkhead().map(|bulkhead| bulkhead.stats().limit), is_open)
    }
}

impl Passed {
    /// The call has ended: well, or in a way that says something about what was called.
    pub(super) fn end(mut self, is_good: bool) {
        self.end.set(Some(if is_good { Ok(()) } else { Err(()) }));
        let _ = self.look();
    }

    fn look(&mut self) -> Poll<Result<(), Failure<()>>> {
        self.call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protection_is_one_or_two_lines() {
        for text in
            ["none", "bulkhead 10", "breaker 50%/10s", "aimd 20", "gradient 20", "breaker 50%/10s + aimd 20"]
        {
            assert!(text.parse::<Protection>().is_ok(), "{text}");
        }
        let refused = |text: &str| text.parse::<Protection>().unwrap_err().to_string();
        assert_eq!(
            refused("none + aimd 20"),
            r#"protection "none + aimd 20": none stands alone; write none, or what there is"#
        );
        assert!(refused("aimd 20 + gradient 20").contains("there is one breaker, and one of bulkhead,"));
        assert!(refused("braker 50%/10s").contains("did you mean breaker?"));
        assert!(refused("aimd").contains("aimd needs its initial limit right after it; write aimd 20"));
        assert!(
            refused("bulkhead 10 queue=5 wait=1s").contains("is not simulated; leave queue= and wait= out")
        );
        assert!(refused("").contains("unknown protection"));
    }
}
