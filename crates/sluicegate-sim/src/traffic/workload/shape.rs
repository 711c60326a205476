//! When the calls of a workload come, in microseconds from its beginning.

use super::{LASTS_MAX, Shape};
use rand::Rng;
use rand_distr::{Distribution as _, Exp};
use sluicegate_core::{Rate, Span, Time};

/// A workload without `for=` lasts for this many of its periods.
const PERIODS: u64 = 10;

impl Shape {
    /// How long a workload lasts that does not say so: long enough for its own rhythm to be seen.
    pub(super) fn usual_length(self) -> Span {
        let rhythm = match self {
            Shape::Steady(rate)
            | Shape::Burst(rate)
            | Shape::Poisson(rate)
            | Shape::Ramp { to: rate, .. }
            | Shape::Edge { rate, .. } => rate.period().as_micros(),
            Shape::OnOff { on, off, .. } => on.as_micros().saturating_add(off.as_micros()),
        };
        Span::from_micros(rhythm.saturating_mul(PERIODS)).min(LASTS_MAX)
    }

    /// Tells each time in order, counted from `begin`, up to but not including `lasts`.
    pub(super) fn times<E>(
        self,
        begin: Time,
        lasts: Span,
        random: &mut impl Rng,
        tell: &mut impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = lasts.as_micros();
        match self {
            Shape::Steady(rate) => steady(rate, 0, end, tell),
            Shape::Burst(rate) => {
                for begin in step_by(rate.period(), end) {
                    (0..rate.count()).try_for_each(|_| tell(begin))?;
                }
                Ok(())
            }
            Shape::Poisson(rate) => poisson(rate, end, random, tell),
            Shape::OnOff { rate, on, off } => {
                let cycle = Span::from_micros(on.as_micros().saturating_add(off.as_micros()));
                for begin in step_by(cycle, end) {
                    steady(rate, begin, begin.saturating_add(on.as_micros()).min(end), tell)?;
                }
                Ok(())
            }
            Shape::Ramp { from, to } => ramp(from.map_or(0.0, per_micro), per_micro(to), end, tell),
            Shape::Edge { rate, spread } => {
                // Every other edge: silent in between, so that a window has all of its count left
                // both times.
                let period = rate.period().as_micros();
                let (count, spread) = (rate.count(), spread.as_micros());
                // Windows are aligned to the epoch, wherever the workload begins.
                let first = (begin.as_micros() + spread).next_multiple_of(period) - begin.as_micros();
                for more in step_by(Span::from_micros(period.saturating_mul(2)), end) {
                    let edge = first.saturating_add(more);
                    for time in (0..2 * count).map(|call| edge - spread + share(spread, call, count)) {
                        if time >= end {
                            break;
                        }
                        tell(time)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// 0, one step, two steps ... below `end`.
fn step_by(step: Span, end: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(0), move |begin: &u64| begin.checked_add(step.as_micros()))
        .take_while(move |begin| *begin < end)
}

/// `length * part / parts`, rounded down.
fn share(length: u64, part: u64, parts: u64) -> u64 {
    let product = u128::from(length) * u128::from(part) / u128::from(parts);
    u64::try_from(product).unwrap_or(u64::MAX)
}

fn steady<E>(rate: Rate, begin: u64, end: u64, tell: &mut impl FnMut(u64) -> Result<(), E>) -> Result<(), E> {
    for call in 0.. {
        let time = begin.saturating_add(share(rate.period().as_micros(), call, rate.count()));
        if time >= end {
            break;
        }
        tell(time)?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts and periods are below 2^53")]
fn per_micro(rate: Rate) -> f64 {
    rate.count() as f64 / rate.period().as_micros() as f64
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times below the end, which is below 2^53 microseconds"
)]
fn poisson<E>(
    rate: Rate,
    end: u64,
    random: &mut impl Rng,
    tell: &mut impl FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    // Cannot fail: a rate is above 0. Nothing would then come at all.
    let Ok(gap) = Exp::new(per_micro(rate)) else { return Ok(()) };
    let mut time = gap.sample(random);
    while time < end as f64 {
        tell(time as u64)?;
        time += gap.sample(random);
    }
    Ok(())
}

/// The rate goes evenly from `from` to `to`. By time t there have been `from * t + slope * t^2 / 2`
/// calls; solved for t.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times below the end, which is below 2^53 microseconds"
)]
fn ramp<E>(from: f64, to: f64, end: u64, tell: &mut impl FnMut(u64) -> Result<(), E>) -> Result<(), E> {
    let slope = (to - from) / end as f64;
    for call in 0..=u32::MAX {
        let call = f64::from(call);
        // Below 0 when the rate has gone down to nothing and there are no more.
        let under_root = from * from + 2.0 * slope * call;
        // The first comes at once, also when the rate begins at nothing.
        let time = if call > 0.0 { (2.0 * call / (from + under_root.max(0.0).sqrt())).round() } else { 0.0 };
        if under_root < 0.0 || time >= end as f64 {
            break;
        }
        tell(time as u64)?;
    }
    Ok(())
}
