//! Several limits as one: all of them are charged, or none.
//!
//! ```text
//! Allowed    if each limit allows; then all are charged. Reported are limit, remaining and reset_after of the one
//!            with the least remaining (the first of equals), and the longest delay.
//! Denied     if any denies; none is charged. Reported is the one with the longest retry_after (`never` the longest
//!            of all, the first of equals), all fields its own.
//! ```
//!
//! A [`Part`] is one limit on one key's state with its own cost: a list of limits on one key has equal costs, a
//! call on several keys may not.

use crate::algorithm::{Algorithm, Charge, Verb};
use crate::decision::{Decision, Denial, Outcome, RetryAfter, Standing};
use crate::time::{Span, Time};
use crate::verbs::{NotOffered, Verbs as _};
use alloc::vec::Vec;

/// One limit, one key's state and the cost there.
#[derive(Debug)]
pub struct Part<'a, A: Algorithm> {
    /// The limit.
    pub limit: &'a A,
    /// The key's state under it.
    pub state: &'a mut A::State,
    /// What the call costs there.
    pub cost: u32,
}

/// Checks several limits, perhaps on several keys: allowed and charged everywhere, or nowhere.
///
/// A limit that counts denied calls (`count=all`) has no place here: see [`Algorithm::offers`].
pub fn check_all<A: Algorithm>(parts: &mut [Part<'_, A>], now: Time) -> Decision {
    let delay = match strictest(parts.iter().map(|part| part.limit.peek(part.state, now, part.cost))) {
        Ok(delay) => delay,
        Err(denied) => return denied,
    };
    for part in parts.iter_mut().filter(|part| part.cost > 0) {
        part.limit.charge(part.state, now, part.cost);
    }
    Decision::yes(tightest(parts.iter().map(|part| part.limit.standing(part.state, now))), delay)
}

/// Checks a list of limits on one key: allowed and charged to all, or to none.
pub fn check_list<A: Algorithm>(limits: &[A], states: &mut [A::State], now: Time, cost: u32) -> Decision {
    // The common case needs no second look, and may enter a denied call (`count=all`).
    if let ([limit], [state]) = (limits, &mut *states) {
        return limit.check(state, now, cost);
    }
    let peeked = limits.iter().zip(&*states).map(|(limit, state)| limit.peek(state, now, cost));
    let delay = match strictest(peeked) {
        Ok(delay) => delay,
        Err(denied) => return denied,
    };
    if cost > 0 {
        for (limit, state) in limits.iter().zip(&mut *states) {
            limit.charge(state, now, cost);
        }
    }
    Decision::yes(
        tightest(limits.iter().zip(&*states).map(|(limit, state)| limit.standing(state, now))),
        delay,
    )
}

/// Would [`check_all`] allow these calls? Nothing is charged.
pub fn peek_all<A: Algorithm>(parts: &[Part<'_, A>], now: Time) -> Decision {
    let standing = || tightest(parts.iter().map(|part| part.limit.standing(part.state, now)));
    let all = strictest(parts.iter().map(|part| part.limit.peek(part.state, now, part.cost)));
    all.map_or_else(|denied| denied, |delay| Decision::yes(standing(), delay))
}

/// Charges each part now, to act after the answer's delay: the longest of theirs.
fn reserve_all<A: Algorithm>(
    parts: &mut [Part<'_, A>],
    now: Time,
    max_wait: Span,
) -> (Decision, Option<Vec<Charge>>) {
    let answer = |part: &Part<'_, A>| {
        let standing = part.limit.standing(part.state, now);
        match part.limit.reserve_wait(part.state, now, part.cost, max_wait) {
            Ok(delay) => Decision::yes(standing, delay),
            Err(retry_after) => Decision::no(standing, retry_after),
        }
    };
    let delay = match strictest(parts.iter().map(answer)) {
        Ok(delay) => delay,
        Err(denied) => return (denied, None),
    };
    let mut charges = Vec::with_capacity(parts.len());
    for part in parts.iter_mut() {
        let waited = answer(part).delay() > Span::ZERO;
        if part.cost > 0 {
            part.limit.charge(part.state, now, part.cost);
        }
        charges.push(part.limit.record(part.state, part.cost, waited));
    }
    let standing = tightest(parts.iter().map(|part| part.limit.standing(part.state, now)));
    (Decision::yes(standing, delay), Some(charges))
}

/// The longest delay if all allow, or the answer of the one that says no for longest.
fn strictest(answers: impl Iterator<Item = Decision>) -> Result<Span, Decision> {
    let mut longest_delay = Span::ZERO;
    let mut denied: Option<(RetryAfter, Decision)> = None;
    for (place, answer) in answers.enumerate() {
        match answer.outcome {
            Outcome::Allowed { delay } => longest_delay = longest_delay.max(delay),
            Outcome::Denied(Denial { retry_after, .. }) => {
                if denied.is_none_or(|(longest, _)| retry_after > longest) {
                    let outcome = Outcome::Denied(Denial { retry_after, denied_by: place });
                    denied = Some((retry_after, Decision { outcome, ..answer }));
                }
            }
        }
    }
    denied.map_or(Ok(longest_delay), |(_, decision)| Err(decision))
}

/// The standing with the least remaining, the first of equals.
fn tightest(standings: impl Iterator<Item = Standing>) -> Standing {
    // Without any limit nothing is refused; callers have at least one.
    const UNLIMITED: Standing = Standing {
        limit: crate::bounds::COUNT_MAX,
        remaining: crate::bounds::COUNT_MAX,
        reset_after: Span::ZERO,
    };
    standings
        .reduce(|least, next| if next.remaining < least.remaining { next } else { least })
        .unwrap_or(UNLIMITED)
}

/// One key under a list of limits, with the receipts that are still open: every verb, all or nothing.
#[derive(Clone, Debug)]
pub struct Account<A: Algorithm> {
    states: Vec<A::State>,
    open: Vec<(Receipt, Vec<Charge>)>,
    next: u64,
}

/// Names one reservation of one account, good for one cancel or settle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Receipt(u64);

impl<A: Algorithm> Default for Account<A> {
    fn default() -> Self {
        Account { states: Vec::new(), open: Vec::new(), next: 0 }
    }
}

impl<A: Algorithm> Account<A> {
    fn parts<'a>(&'a mut self, limits: &'a [A], cost: u32) -> Vec<Part<'a, A>> {
        self.states.resize_with(limits.len(), A::State::default);
        limits.iter().zip(&mut self.states).map(|(limit, state)| Part { limit, state, cost }).collect()
    }

    /// May a call of this cost happen now? If so it is charged to every limit.
    pub fn check(&mut self, limits: &[A], now: Time, cost: u32) -> Decision {
        self.states.resize_with(limits.len(), A::State::default);
        check_list(limits, &mut self.states, now, cost)
    }

    /// Would a call of this cost be allowed now? Nothing is charged.
    pub fn peek(&mut self, limits: &[A], now: Time, cost: u32) -> Decision {
        peek_all(&self.parts(limits, cost), now)
    }

    /// Takes `up_to` or as much of it as remains, and says how much that was.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb.
    pub fn take(&mut self, limits: &[A], now: Time, up_to: u32) -> Result<(Decision, u32), NotOffered> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Take))?;
        let taken = up_to.min(self.peek(limits, now, 0).remaining());
        if taken == 0 {
            return Ok((self.peek(limits, now, up_to.min(1)), 0));
        }
        Ok((self.check(limits, now, taken), taken))
    }

    /// Gives `cost` back to every limit, as far as each allows. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb; then none is given anything.
    pub fn refund(&mut self, limits: &[A], now: Time, cost: u32) -> Result<Decision, NotOffered> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Refund))?;
        self.states.resize_with(limits.len(), A::State::default);
        for (place, (limit, state)) in limits.iter().zip(&mut self.states).enumerate() {
            limit.refund(state, now, cost);
            for open in self.open.iter_mut().filter_map(|(_, charges)| charges.get_mut(place)) {
                limit.lower_to(state, open);
            }
        }
        Ok(self.peek(limits, now, 0))
    }

    /// Charges `cost` now, to act after the answer's delay, which is at most `max_wait`. Buckets may borrow.
    ///
    /// # Errors
    /// When one of the limits does not offer this verb.
    pub fn reserve(
        &mut self,
        limits: &[A],
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<(Decision, Option<Receipt>), NotOffered> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Reserve))?;
        let (decision, charges) = reserve_all(&mut self.parts(limits, cost), now, max_wait);
        let receipt = charges.map(|charges| {
            let receipt = Receipt(self.next);
            self.next += 1;
            self.open.push((receipt, charges));
            receipt
        });
        Ok((decision, receipt))
    }

    /// Gives back what still counts of a reservation. Whether that was anything: not if the receipt is used,
    /// unknown or worth nothing any more.
    pub fn cancel(&mut self, limits: &[A], now: Time, receipt: Receipt) -> bool {
        self.close(limits, now, receipt, 0) == Some(true)
    }

    /// Says what a reservation really used: the rest is given back as by a cancel, an excess becomes debt.
    /// `false` if the receipt is used or unknown.
    pub fn settle(&mut self, limits: &[A], now: Time, receipt: Receipt, used: u32) -> bool {
        self.close(limits, now, receipt, used).is_some()
    }

    /// Settles a receipt. Whether anything was given back; `None` if it is not open.
    fn close(&mut self, limits: &[A], now: Time, receipt: Receipt, used: u32) -> Option<bool> {
        let place = self.open.iter().position(|(open, _)| *open == receipt)?;
        let (_, charges) = self.open.swap_remove(place);
        self.states.resize_with(limits.len(), A::State::default);
        let mut gave = false;
        for (place, ((limit, state), charge)) in limits.iter().zip(&mut self.states).zip(&charges).enumerate()
        {
            let Some(cut) = limit.settle_charge(state, now, charge, used) else { continue };
            gave = true;
            for open in self.open.iter_mut().filter_map(|(_, charges)| charges.get_mut(place)) {
                limit.close_gap(&cut, open);
            }
        }
        Some(gave)
    }

    /// When the next window starts or the next unit is there: the latest of the limits.
    pub fn next_window(&mut self, limits: &[A], now: Time) -> Time {
        let parts = self.parts(limits, 0);
        parts.iter().map(|part| part.limit.next_window(part.state, now)).max().unwrap_or(now)
    }

    /// Forgets the key. Its receipts are void.
    pub fn reset(&mut self) {
        self.states.clear();
        self.open.clear();
    }

    /// Whether the key has recovered under every limit, so that a store may forget its state. Open receipts are
    /// then worth nothing, but settling one can still charge an excess.
    pub fn is_idle(&self, limits: &[A], now: Time) -> bool {
        limits.iter().zip(&self.states).all(|(limit, state)| limit.is_idle(state, now))
    }

    /// How many receipts are open.
    pub fn open_receipts(&self) -> usize {
        self.open.len()
    }

    /// Reads the states that an older version of the same list left: each limit what the one at its place left.
    pub fn adopt(&mut self, limits: &[A], old: &[A], now: Time) {
        self.states.truncate(limits.len().min(old.len()));
        for ((limit, old), state) in limits.iter().zip(old).zip(&mut self.states) {
            limit.adopt(old, state, now);
        }
        // What a receipt holds is written in the old numbers.
        self.open.clear();
    }
}
