//! What stands between callers and a dependency: real breakers and bulkheads, on a clock that is set by hand.

use super::LineError;
use sluicegate::breaker::{BreakerRules, State, Trial};
use sluicegate::bulkhead::{BulkheadSpec, Place};
use sluicegate::grammar::{Mistake, name};
use sluicegate::{AdaptiveLimit, Breaker, BuildError, Bulkhead, ManualClock, Outcome};
use std::str::FromStr;

/// The most lines of one protection.
pub const PARTS_MAX: usize = 2;
/// The names of protections.
const NAMES: [&str; 5] = ["none", "bulkhead", "breaker", "aimd", "gradient"];

/// A protection; made by `"breaker 50%/10s + aimd 20".parse()`, or `"none".parse()`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protection {
    breaker: Option<BreakerRules>,
    places: Option<Places>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Places {
    Fixed(BulkheadSpec),
    Adaptive(AdaptiveLimit),
}

impl FromStr for Protection {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Protection, LineError> {
        LineError::check_length("protection", text, "none, or breaker 50%/10s + aimd 20")?;
        protection(text).map_err(|mistake| LineError::new("protection", text, mistake))
    }
}

fn protection(text: &str) -> Result<Protection, Mistake> {
    let mut protection = Protection { breaker: None, places: None };
    for part in text.split('+').map(str::trim) {
        let word = part.split_ascii_whitespace().next().unwrap_or_default();
        let is_taken = match name("protection", word, &NAMES)? {
            "none" if part == "none" && text.trim() == "none" => return Ok(protection),
            "none" => return Err(Mistake::new("none stands alone", "write none, or what there is")),
            "breaker" => protection.breaker.replace(read(part)?).is_some(),
            "bulkhead" => protection.places.replace(Places::Fixed(bulkhead(part)?)).is_some(),
            _ => protection.places.replace(Places::Adaptive(read(part)?)).is_some(),
        };
        if is_taken {
            let problem = "there is one breaker, and one of bulkhead, aimd and gradient";
            return Err(Mistake::new(problem, "try the others in a protection of their own"));
        }
    }
    Ok(protection)
}

fn read<T: FromStr<Err: ToString>>(part: &str) -> Result<T, Mistake> {
    // Both halves of the advice are in the message.
    part.parse().map_err(|error: T::Err| {
        let said = error.to_string();
        let (problem, advice) = said.split_once("; ").unwrap_or((&said, "see sluice overload --help"));
        Mistake::new(problem, advice)
    })
}

fn bulkhead(part: &str) -> Result<BulkheadSpec, Mistake> {
    let spec: BulkheadSpec = read(part)?;
    if spec.queue() > 0 {
        let problem = "who waits in a bulkhead's queue is not simulated";
        return Err(Mistake::new(problem, "leave queue= and wait= out"));
    }
    Ok(spec)
}

/// A protection at work.
pub(super) struct Guards {
    breaker: Option<Breaker>,
    bulkhead: Option<Bulkhead>,
    /// Whether the bulkhead finds its own limit.
    is_adaptive: bool,
}

/// A call that was let through.
#[derive(Default)]
pub(super) struct Passed {
    trial: Option<Trial<'static>>,
    place: Option<Place>,
}

impl Protection {
    pub(super) fn guards(&self, clock: &ManualClock) -> Result<Guards, BuildError> {
        let breaker = self.breaker.map(|rules| Breaker::builder(rules).clock(clock.clone()).build());
        let bulkhead = self.places.as_ref().map(|places| match places {
            Places::Fixed(spec) => Bulkhead::builder(&spec.to_string()).clock(clock.clone()).build(),
            Places::Adaptive(limit) => {
                Bulkhead::builder("bulkhead 1").adaptive(&limit.to_string()).clock(clock.clone()).build()
            }
        });
        let is_adaptive = matches!(self.places, Some(Places::Adaptive(_)));
        Ok(Guards { breaker: breaker.transpose()?, bulkhead: bulkhead.transpose()?, is_adaptive })
    }
}

impl Guards {
    /// Lets a call through, or not, as a guard does: the breaker first; and a call for which a bulkhead then has no place is a failure to it,
    /// unless the bulkhead's limit adapts and sheds calls for the sake of the others.
    pub(super) fn ask(&self) -> Option<Passed> {
        let mut passed = Passed::default();
        if let Some(breaker) = &self.breaker {
            passed.trial = Some(breaker.ask().into_owned().trial().ok()?);
        }
        if let Some(bulkhead) = &self.bulkhead {
            let Some(place) = bulkhead.try_enter() else {
                if let Some(trial) = passed.trial {
                    trial.finish(if self.is_adaptive { Outcome::Ignored } else { Outcome::Failure });
                }
                return None;
            };
            passed.place = Some(place);
        }
        Some(passed)
    }

    /// The limit now, and whether a breaker keeps calls out.
    pub(super) fn look(&self) -> (Option<u32>, bool) {
        let is_open = self
            .breaker
            .as_ref()
            .is_some_and(|breaker| matches!(breaker.state(), State::Open | State::HalfOpen));
        (self.bulkhead.as_ref().map(|bulkhead| bulkhead.stats().limit), is_open)
    }
}

impl Passed {
    /// The call has ended: well, or in a way that says something about what was called.
    pub(super) fn end(self, is_good: bool) {
        if let Some(place) = self.place {
            place.finish(if is_good { Outcome::Success } else { Outcome::Failure });
        }
        if let Some(trial) = self.trial {
            trial.finish(if is_good { Outcome::Success } else { Outcome::Failure });
        }
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
        assert!(
            refused("aimd")
                .contains("aimd needs the limit that it begins with right after it; write aimd 20")
        );
        assert!(
            refused("bulkhead 10 queue=5 wait=1s").contains("is not simulated; leave queue= and wait= out")
        );
        assert!(refused("").contains("unknown protection"));
    }
}
