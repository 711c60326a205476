//! Concurrency: so many at once, counted by leases.
//!
//! In plain words: a call takes a lease before it acts and gives it back after it. The costs of the leases that are out come to at most
//! `count`. Whoever never comes back, because it crashed or forgot, holds its places until its lease lapses: `ttl` after it
//! was taken or last renewed.
//!
//! ```text
//! A  ├────────────┤ released                concurrency 2 ttl=30s
//! B     ├─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┤ lapsed
//! C        x      ├──────                   denied while A and B are out, allowed when A has released
//! ```
//!
//! ```text
//! Settings   count, ttl (without one a lease is held until it is released)
//! State      `Leases`: each with its cost and the moment `until` which it is live; their sum
//! Formula    live while now < until      until = now + ttl when it is taken or renewed
//!            allow if the live leases' sum + cost <= count, and then there is one lease more
//! Reports    remaining = count - sum, at least 0      reset_after: until all have lapsed
//!            retry_after: until so many have lapsed that the cost fits; release may make it sooner
//!            Without ttl nobody knows either: both are `UNKNOWN`, the longest length there is.
//! Never      cost > count can never pass.
//! Promise    at no moment do the live leases' costs come to more than count.
//! Rounding   none: everything is whole.
//! Clock      A lease that was seen to have lapsed, at whatever time somebody asked about its key, a peek included, is gone for good: it
//!            does not come back when the clock does. After a step back leases live longer, by the step at the most: it admits nothing more, and
//!            locks nobody out for longer than the step and ttl.
//! Change     leases that are out stay out, and keep their `until` until they are renewed. With fewer places than are
//!            held nothing remains until enough are back.
//! Cost       taking, renewing and releasing are O(log n) in the leases of the key; nothing is allocated for the first two. A denial
//!            looks at as many leases as have to lapse, up to `LOOKED_AT_MAX`.
//!
//! Example    2 ttl=30s: A at 0 s and B at 10 s pass; C at 12 s is told to wait 18 s. A releases at 13 s: C passes then.
//! ```

use crate::bounds::{OutOfBounds, checked_count, checked_period};
use crate::decision::{Decision, RetryAfter, Standing};
use crate::in_order::InOrder;
use crate::time::{Span, Time};
use alloc::boxed::Box;

/// What a wait is told as that ends when somebody releases a lease, and nobody knows when that is.
pub const UNKNOWN: Span = Span::MAX;

/// So many leases are looked at to tell a wait. Where more than that have to lapse, the moment is told at which all have: it is not
/// too early, and a denial takes microseconds whatever the count. Whoever is to be woken looks again before that:
/// [`Concurrency::look_again_at`].
pub const LOOKED_AT_MAX: usize = 4_096;

/// So many leases of a key lie where it lies, and nothing is allocated for them.
const FEW: usize = 2;

/// The moment at which a lease without ttl lapses: after all time.
const NEVER: u64 = u64::MAX;

/// So many at once. Pick it where it matters how many are at work, not how often they come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Concurrency {
    count: u32,
    ttl: Option<Span>,
}

/// The leases of one key. `W` is what the caller knows each of them by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leases<W> {
    /// What all of them cost, those included that have lapsed and were not seen since.
    sum: u64,
    /// Most keys have no more than these.
    few: [Option<(Held, Out<W>)>; FEW],
    /// In a box, so that a key without more is small.
    more: Option<Box<InOrder<Held, Out<W>>>>,
    next_number: u64,
}

/// Names a lease among those of its key, in the order in which they lapse. It is another one when the lease is renewed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Held {
    /// In microseconds; live before it.
    until: u64,
    number: u64,
}

/// A lease that is out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Out<W> {
    cost: u32,
    who: W,
}

impl Concurrency {
    /// At most `count` at once; each lease lapses after `ttl`, if there is one.
    ///
    /// # Errors
    /// When the count is 0 or above [`crate::bounds::COUNT_MAX`], or the ttl is 0 or above [`crate::bounds::PERIOD_MAX`].
    pub fn new(count: u64, ttl: Option<Span>) -> Result<Concurrency, OutOfBounds> {
        let count = checked_count("count", count, 1)?;
        let ttl = ttl.map(|ttl| checked_period("ttl", ttl)).transpose()?;
        Ok(Concurrency { count, ttl })
    }

    /// How many at once.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// How long a lease is live unless it is renewed.
    pub const fn ttl(&self) -> Option<Span> {
        self.ttl
    }

    /// Takes a lease if there is room for its cost. Cost 0 is allowed, changes nothing and takes none.
    #[inline]
    pub fn acquire<W>(
        &self,
        leases: &mut Leases<W>,
        now: Time,
        cost: u32,
        who: W,
    ) -> (Decision, Option<Held>) {
        leases.lapse_all(now);
        if cost == 0 || !self.fits(leases, cost) {
            return (self.answer(leases, now, cost), None);
        }
        let held = leases.insert(self.until(now), cost, who);
        (Decision::yes(self.standing(leases, now), Span::ZERO), Some(held))
    }

    /// Gives a lease that is live a new ttl from now on. Its name from then on; `None` if it is not live any more.
    pub fn renew<W>(&self, leases: &mut Leases<W>, now: Time, held: Held) -> Option<Held> {
        leases.lapse_all(now);
        let Out { cost, who } = leases.remove(held)?;
        Some(leases.insert(self.until(now), cost, who))
    }

    /// Would a lease of this cost be given now? Nothing is taken.
    pub fn peek<W>(&self, leases: &mut Leases<W>, now: Time, cost: u32) -> Decision {
        leases.lapse_all(now);
        self.answer(leases, now, cost)
    }

    /// The answer to somebody who may not take a lease of this cost though there may be room, as others wait for so much before it. The
    /// wait is until so many leases have lapsed that there would be room for all of them, or as many as may be out at once.
    pub fn denial_behind<W>(&self, leases: &mut Leases<W>, now: Time, cost: u32, waiting: u64) -> Decision {
        leases.lapse_all(now);
        let standing = Standing { remaining: 0, ..self.standing(leases, now) };
        if cost > self.count {
            return Decision::no(standing, RetryAfter::Never);
        }
        let all = u32::try_from(waiting.saturating_add(cost.into())).unwrap_or(u32::MAX).min(self.count);
        // At least one tick: whoever is told 0 would come back at once and fail.
        let wait = self.wait_for(leases, now, all).max(Span::from_micros(1));
        Decision::no(standing, RetryAfter::After(wait))
    }

    /// Whether there is room for a cost, if all leases are live.
    #[inline]
    pub fn fits<W>(&self, leases: &Leases<W>, cost: u32) -> bool {
        // Cannot wrap: fewer leases than 2^32 can be out, each of a cost below it.
        leases.sum + u64::from(cost) <= u64::from(self.count)
    }

    fn answer<W>(&self, leases: &Leases<W>, now: Time, cost: u32) -> Decision {
        let standing = self.standing(leases, now);
        if cost == 0 || self.fits(leases, cost) {
            return Decision::yes(standing, Span::ZERO);
        }
        let retry_after = if cost > self.count {
            RetryAfter::Never
        } else {
            RetryAfter::After(self.wait_for(leases, now, cost))
        };
        Decision::no(standing, retry_after)
    }

    /// When it is worth looking whether there is room for a cost for which there is none now, if nothing is released: the moment at which so
    /// many have lapsed that it fits, or [`LOOKED_AT_MAX`] of them. `None` if nobody knows.
    pub fn look_again_at<W>(&self, leases: &Leases<W>, cost: u32) -> Option<Time> {
        match self.frees(leases, cost) {
            Ok(held) => held?.until(),
            Err(looked_at) => looked_at?.until(),
        }
    }

    /// How long until there is room for a cost if nothing is released.
    fn wait_for<W>(&self, leases: &Leases<W>, now: Time, cost: u32) -> Span {
        let held = self.frees(leases, cost).unwrap_or_else(|_| leases.last());
        held.map_or(Span::ZERO, |held| held.lapses_in(now))
    }

    /// The lease with which enough have lapsed for a cost; `None` if it fits now.
    ///
    /// # Errors
    /// When it was not among those that were looked at: the last one of these.
    fn frees<W>(&self, leases: &Leases<W>, cost: u32) -> Result<Option<Held>, Option<Held>> {
        let mut missing = (leases.sum + u64::from(cost)).saturating_sub(u64::from(self.count));
        if missing == 0 {
            return Ok(None);
        }
        let mut looked_at = None;
        for (held, cost) in leases.in_order().take(LOOKED_AT_MAX) {
            missing = missing.saturating_sub(cost.into());
            looked_at = Some(held);
            if missing == 0 {
                return Ok(looked_at);
            }
        }
        Err(looked_at)
    }

    #[inline]
    fn standing<W>(&self, leases: &Leases<W>, now: Time) -> Standing {
        let remaining = u64::from(self.count).saturating_sub(leases.sum);
        Standing {
            limit: self.count,
            // Never cut: at most the count.
            remaining: u32::try_from(remaining).unwrap_or(self.count),
            reset_after: leases.last().map_or(Span::ZERO, |held| held.lapses_in(now)),
        }
    }

    #[inline]
    fn until(&self, now: Time) -> u64 {
        // Cannot wrap: a moment is below 2^58, and a ttl is ten years at the most.
        self.ttl.map_or(NEVER, |ttl| now.as_micros() + ttl.as_micros())
    }
}

impl Held {
    /// The moment at which it lapses unless it is renewed; none without ttl.
    pub const fn until(&self) -> Option<Time> {
        if self.until == NEVER { None } else { Some(Time::saturating_from_micros(self.until)) }
    }

    #[inline]
    const fn is_live(&self, now: Time) -> bool {
        now.as_micros() < self.until
    }

    #[inline]
    const fn lapses_in(&self, now: Time) -> Span {
        if self.until == NEVER {
            UNKNOWN
        } else {
            Span::from_micros(self.until.saturating_sub(now.as_micros()))
        }
    }
}

impl<W> Default for Leases<W> {
    fn default() -> Self {
        Leases { sum: 0, few: [const { None }; FEW], more: None, next_number: 0 }
    }
}

impl<W> Leases<W> {
    /// Puts in a lease that is out until then: of a key whose leases are kept elsewhere.
    pub fn hold(&mut self, until: Time, cost: u32, who: W) -> Held {
        self.insert(until.as_micros(), cost, who)
    }

    /// Returns a lease. Whether it was live; `false` if it has lapsed, was returned before, or is none of these.
    pub fn release(&mut self, now: Time, held: Held) -> bool {
        self.remove(held).is_some() && held.is_live(now)
    }

    /// Takes out the lease that lapses first, if it has lapsed, and says whose it was and what it cost. All verbs let lapse what has
    /// lapsed; whoever wants to know of each asks here before.
    #[inline]
    pub fn lapse(&mut self, now: Time) -> Option<(W, u32)> {
        let held = self.soonest().filter(|held| !held.is_live(now))?;
        self.remove(held).map(|Out { cost, who }| (who, cost))
    }

    /// When the next lease lapses; `None` if none ever does.
    pub fn lapses_at(&self) -> Option<Time> {
        self.soonest()?.until()
    }

    /// Forgets all of them: whose they were.
    pub fn reset(&mut self) -> impl Iterator<Item = W> + use<W> {
        // The numbers go on, so that no lease to come has the name of one that was forgotten.
        let fresh = Leases { next_number: self.next_number, ..Leases::default() };
        let Leases { few, more, .. } = core::mem::replace(self, fresh);
        let more = more.into_iter().flat_map(|mut more| more.drain());
        few.into_iter().flatten().chain(more).map(|(_, out)| out.who)
    }

    /// What they cost, if all are live.
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// How many there are, those included that have lapsed and were not seen since.
    pub fn len(&self) -> usize {
        self.few.iter().flatten().count() + self.more.as_ref().map_or(0, |more| more.len())
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.few.iter().all(Option::is_none) && self.more.as_ref().is_none_or(|more| more.is_empty())
    }

    #[inline]
    fn insert(&mut self, until: u64, cost: u32, who: W) -> Held {
        let held = Held { until, number: self.next_number };
        self.next_number += 1;
        self.sum += u64::from(cost);
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some((held, Out { cost, who })),
            None => {
                self.more.get_or_insert_default().insert(held, Out { cost, who });
            }
        }
        held
    }

    #[inline]
    fn remove(&mut self, held: Held) -> Option<Out<W>> {
        let of_few = self.few.iter_mut().find_map(|place| place.take_if(|(few, _)| *few == held));
        let out = match of_few {
            Some((_, out)) => out,
            None => self.more.as_mut()?.remove(&held)?,
        };
        // Cannot wrap: what is taken out was added when it was put in.
        self.sum -= u64::from(out.cost);
        Some(out)
    }

    #[inline]
    fn lapse_all(&mut self, now: Time) {
        while self.lapse(now).is_some() {}
    }

    #[inline]
    fn soonest(&self) -> Option<Held> {
        let few = self.few.iter().flatten().map(|(held, _)| *held);
        let more = self.more.as_ref().and_then(|more| more.first()).map(|(held, _)| *held);
        few.chain(more).min()
    }

    #[inline]
    fn last(&self) -> Option<Held> {
        let few = self.few.iter().flatten().map(|(held, _)| *held);
        let more = self.more.as_ref().and_then(|more| more.last()).map(|(held, _)| *held);
        few.chain(more).max()
    }

    /// All of them with their costs, in the order in which they lapse.
    fn in_order(&self) -> impl Iterator<Item = (Held, u32)> {
        let mut few = self.few.each_ref().map(|place| place.as_ref().map(|(held, out)| (*held, out.cost)));
        few.sort_unstable();
        let mut few = few.into_iter().flatten().peekable();
        let more = self.more.iter().flat_map(|more| more.iter());
        let mut more = more.map(|(held, out)| (*held, out.cost)).peekable();
        core::iter::from_fn(move || match (few.peek(), more.peek()) {
            (Some(one), Some(other)) if other < one => more.next(),
            (Some(_), _) => few.next(),
            (None, _) => more.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    const S: u64 = 1_000_000;

    fn at(seconds: u64) -> Time {
        Time::saturating_from_micros(seconds * S)
    }

    fn span(seconds: u64) -> Span {
        Span::from_micros(seconds * S)
    }

    fn limit(count: u64, ttl: u64) -> Concurrency {
        Concurrency::new(count, (ttl > 0).then(|| span(ttl))).unwrap()
    }

    fn told(decision: Decision) -> (bool, u32, Option<RetryAfter>, Span) {
        (decision.allowed(), decision.remaining(), decision.retry_after(), decision.reset_after())
    }

    #[test]
    fn the_example_of_the_header_is_true() {
        let (two, mut leases) = (limit(2, 30), Leases::default());
        let (_, a) = two.acquire(&mut leases, at(0), 1, 'a');
        let (decision, _) = two.acquire(&mut leases, at(10), 1, 'b');
        assert_eq!(told(decision), (true, 0, None, span(30)));
        let (denial, none) = two.acquire(&mut leases, at(12), 1, 'c');
        assert_eq!(told(denial), (false, 0, Some(RetryAfter::After(span(18))), span(28)));
        assert_eq!(none, None);
        assert!(leases.release(at(13), a.unwrap()));
        assert!(two.acquire(&mut leases, at(13), 1, 'c').0.allowed());
        assert_eq!(leases.reset().collect::<Vec<_>>(), ['c', 'b']);
        assert!(leases.is_empty() && leases.sum() == 0);
    }

    #[test]
    fn a_lease_is_live_until_the_very_moment_it_lapses() {
        let (one, mut leases) = (limit(1, 30), Leases::default());
        let (_, held) = one.acquire(&mut leases, at(0), 1, ());
        let just_before = Time::saturating_from_micros(30 * S - 1);
        assert_eq!(
            told(one.peek(&mut leases, just_before, 1)),
            (false, 0, Some(RetryAfter::After(Span::from_micros(1))), Span::from_micros(1))
        );
        assert_eq!(one.renew(&mut leases.clone(), at(30), held.unwrap()), None);
        assert!(one.renew(&mut leases.clone(), just_before, held.unwrap()).is_some());
        assert!(!leases.clone().release(at(30), held.unwrap()));
        assert!(one.acquire(&mut leases, at(30), 1, ()).0.allowed());
    }

    #[test]
    fn a_lease_is_returned_once() {
        let (ten, mut leases) = (limit(10, 30), Leases::default());
        let (_, held) = ten.acquire(&mut leases, at(0), 4, ());
        let other = ten.acquire(&mut leases, at(0), 1, ()).1.unwrap();
        assert!(leases.release(at(1), held.unwrap()) && !leases.release(at(1), held.unwrap()));
        let renewed = ten.renew(&mut leases, at(1), other).unwrap();
        assert!(!leases.release(at(1), other), "a renewed lease has another name");
        assert!(leases.release(at(1), renewed) && leases.is_empty() && leases.sum() == 0);
    }

    #[test]
    fn after_a_reset_no_lease_has_the_name_of_an_old_one() {
        let (one, mut leases) = (limit(1, 30), Leases::default());
        let old = one.acquire(&mut leases, at(0), 1, ()).1.unwrap();
        assert_eq!(leases.reset().count(), 1);
        let new = one.acquire(&mut leases, at(0), 1, ()).1.unwrap();
        assert!(!leases.release(at(0), old) && one.renew(&mut leases, at(0), old).is_none());
        assert!(leases.release(at(0), new));
    }

    #[test]
    fn without_ttl_nobody_knows_when_it_is_back() {
        let (one, mut leases) = (limit(1, 0), Leases::default());
        let (decision, held) = one.acquire(&mut leases, at(0), 1, ());
        assert_eq!(told(decision), (true, 0, None, UNKNOWN));
        assert_eq!((held.unwrap().until(), leases.lapses_at()), (None, None));
        assert_eq!(
            told(one.peek(&mut leases, Time::MAX, 1)),
            (false, 0, Some(RetryAfter::After(UNKNOWN)), UNKNOWN)
        );
        assert_eq!(one.look_again_at(&leases, 1), None);
        assert!(one.renew(&mut leases, Time::MAX, held.unwrap()).is_some());
    }

    #[test]
    fn a_cost_above_the_count_never_fits_and_one_of_nothing_always_does() {
        let (three, mut leases) = (limit(3, 30), Leases::default());
        assert_eq!(three.acquire(&mut leases, at(0), 4, ()).0.retry_after(), Some(RetryAfter::Never));
        assert_eq!(three.acquire(&mut leases, at(0), u32::MAX, ()).1, None);
        assert!(three.acquire(&mut leases, at(0), 3, ()).0.allowed());
        let (nothing, no_lease) = three.acquire(&mut leases, at(0), 0, ());
        assert!(nothing.allowed() && no_lease.is_none() && leases.len() == 1);
    }

    #[test]
    fn fewer_places_than_are_held_leave_nothing_until_enough_are_back() {
        let (many, few, mut leases) = (limit(5, 30), limit(2, 10), Leases::default());
        let held: Vec<Held> =
            (0..5).filter_map(|second| many.acquire(&mut leases, at(second), 1, second).1).collect();
        assert_eq!(
            told(few.peek(&mut leases, at(5), 1)),
            (false, 0, Some(RetryAfter::After(span(28))), span(29)),
            "four of the five have to lapse"
        );
        for held in held.iter().take(4) {
            assert!(leases.release(at(5), *held));
        }
        assert!(few.acquire(&mut leases, at(5), 1, 9).0.allowed());
    }

    #[test]
    fn a_clock_that_steps_back_admits_nothing_more_and_brings_nothing_back() {
        let (two, mut leases) = (limit(2, 30), Leases::default());
        let (_, first) = two.acquire(&mut leases, at(100), 2, ());
        assert_eq!(
            told(two.peek(&mut leases, at(40), 1)),
            (false, 0, Some(RetryAfter::After(span(90))), span(90)),
            "the step and ttl"
        );
        assert_eq!(told(two.peek(&mut leases, at(130), 2)), (true, 2, None, Span::ZERO));
        assert!(!leases.release(at(100), first.unwrap()), "it was seen to have lapsed");
        assert!(two.acquire(&mut leases, at(100), 2, ()).0.allowed());
    }

    #[test]
    fn where_very_many_have_to_lapse_the_last_one_is_told() {
        let most = u64::try_from(LOOKED_AT_MAX).unwrap();
        let (many, mut leases) = (limit(2 * most, 10_000), Leases::default());
        for second in 0..2 * most {
            assert!(many.acquire(&mut leases, at(second), 1, ()).0.allowed());
        }
        let wait = |leases: &mut Leases<()>, cost: u64| {
            many.peek(leases, at(2 * most), u32::try_from(cost).unwrap()).retry_after()
        };
        let lapses = |nth: u64| Some(RetryAfter::After(span(nth - 1 + 10_000 - 2 * most)));
        assert_eq!(wait(&mut leases, most), lapses(most));
        assert_eq!(wait(&mut leases, most + 1), lapses(2 * most));
        let again = |cost: u64| many.look_again_at(&leases, u32::try_from(cost).unwrap());
        assert_eq!(again(most - 1), Some(at(most - 2 + 10_000)));
        assert_eq!([most, most + 1, 2 * most].map(again), [Some(at(most - 1 + 10_000)); 3]);
    }

    #[test]
    fn behind_others_a_call_waits_for_them_too() {
        let (three, mut leases) = (limit(3, 30), Leases::default());
        for second in 0..3 {
            assert!(three.acquire(&mut leases, at(second), 1, ()).0.allowed());
        }
        let wait = |leases: &mut Leases<()>, cost, waiting| {
            three.denial_behind(leases, at(10), cost, waiting).retry_after()
        };
        assert_eq!(wait(&mut leases, 1, 1), Some(RetryAfter::After(span(21))));
        assert_eq!(wait(&mut leases, 1, 1_000), Some(RetryAfter::After(span(22))));
        assert_eq!(wait(&mut leases, 4, 1), Some(RetryAfter::Never));
        assert_eq!(wait(&mut Leases::default(), 1, 1), Some(RetryAfter::After(Span::from_micros(1))));
    }

    #[test]
    fn leases_at_the_end_of_time_are_live() {
        let (one, mut leases) = (limit(1, 30), Leases::default());
        assert!(one.acquire(&mut leases, Time::MAX, 1, ()).0.allowed());
        assert_eq!(told(one.peek(&mut leases, Time::MAX, 1)).2, Some(RetryAfter::After(span(30))));
    }

    #[test]
    fn each_refusal_says_the_value_the_bound_and_what_to_do() {
        let said = |count, ttl| Concurrency::new(count, ttl).unwrap_err().to_string();
        assert_eq!(
            said(0, None),
            "count 0 is below the least, 1; that would deny every call, use at least 1"
        );
        assert_eq!(
            said(1_000_000_001, None),
            "count 1000000001 is above the most, 1000000000; use a smaller number"
        );
        assert_eq!(said(1, Some(Span::ZERO)), "ttl 0s is below the least, 1us; use at least 1us");
        assert_eq!(
            said(1, Some(span(86_400 * 3_651))),
            "ttl 3651d is above the most, 3650d; use at most 3650d"
        );
    }
}
