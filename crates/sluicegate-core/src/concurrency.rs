//! Concurrency: at most N calls at once, counted by leases.
//!
//! A call acquires a lease before it acts and releases it afterwards. The costs of the live leases
//! add up to at most `count`. A holder that crashes or forgets to release keeps its permits until
//! its lease expires, `ttl` after it was acquired or last renewed.
//!
//! ```text
//! A  ├────────────┤ released                concurrency 2 ttl=30s
//! B     ├─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┤ expired
//! C        x      ├──────                   denied until A releases
//! ```
//!
//! ```text
//! Settings   count, ttl (without one, a lease is held until it is released)
//! State      `Leases`: each with its cost and `until`, the moment at which it expires; their sum
//! Formula    live while now < until      until = now + ttl when acquired or renewed
//!            allow if the sum of the live leases + cost <= count, and add a lease
//! Reports    remaining = count - sum, at least 0      reset_after: until all leases have expired
//!            retry_after: until enough leases have expired for the cost to fit; a release may
//!            come sooner. Without a ttl both are `UNKNOWN`, the longest duration.
//! Never      cost > count.
//! Promise    at no moment do the costs of the live leases exceed count.
//! Rounding   none: everything is whole.
//! Clock      a lease observed as expired, even by a peek, is gone for good: it does not come back
//!            if the clock steps back. After a step back leases live longer, by at most the step:
//!            nothing more is admitted, and no caller is locked out for longer than the step plus
//!            ttl.
//! Change     leases stay held and keep their `until` until they are renewed. If count drops below
//!            what is held, nothing remains until enough leases are released.
//! Cost       acquire, renew and release are O(log n) in the leases of the key, and a key's first
//!            two leases need no allocation. A denial scans the leases that have to expire, up to
//!            `SCAN_MAX`.
//!
//! Example    2 ttl=30s: A at 0 s and B at 10 s are allowed; C at 12 s is denied and may retry in
//!            18 s. A releases at 13 s: C is allowed then.
//! ```

use crate::append_mostly_map::AppendMostlyMap;
use crate::bounds::{OutOfBounds, checked_count, checked_period};
use crate::decision::{Decision, RetryAfter, Standing};
use crate::time::{Span, Time};
use crate::usage::Usage;
use alloc::boxed::Box;
use core::num::NonZeroU64;

/// The wait reported for a lease without a ttl: it ends with a release, at a time that is not
/// known.
pub const UNKNOWN: Span = Span::MAX;

/// The most leases that are scanned to compute a wait. If more than that have to expire, the wait
/// is until all have: never too early, and a denial takes microseconds whatever the count. A waiter
/// is woken before that, at [`Concurrency::recheck_at`].
pub const SCAN_MAX: usize = 1_024;

/// Leases stored inline with the key, without an allocation.
const FEW: usize = 2;

/// The expiry of a lease without a ttl: after all time.
const NEVER: u64 = u64::MAX;

/// The concurrency limit. Pick it when it matters how many calls are in progress, not how often
/// they come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Concurrency {
    count: u64,
    ttl: Option<Span>,
}

/// The leases of one key. `W` is how the store identifies a lease's holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leases<W> {
    /// The sum of all costs, including leases that have expired unobserved.
    sum: u64,
    /// Enough for most keys.
    few: [Option<(LeaseHandle, LeaseRecord<W>)>; FEW],
    /// Boxed, so that a key without more leases stays small.
    more: Option<Box<AppendMostlyMap<LeaseHandle, LeaseRecord<W>>>>,
    next_number: u64,
}

/// Identifies a lease of a key, ordered by expiry. Renewing a lease changes its handle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseHandle {
    /// The expiry in microseconds; the lease is live before it.
    until: u64,
    number: u64,
}

/// What is kept of a lease. A cost is not 0, so that an `Option` of this takes no more memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LeaseRecord<W> {
    cost: NonZeroU64,
    holder: W,
}

impl Concurrency {
    /// Creates a limit of `count` at once, whose leases expire after `ttl`, if there is one.
    ///
    /// # Errors
    /// If the count is 0 or above [`crate::bounds::COUNT_MAX`], or the ttl is 0 or above
    /// [`crate::bounds::PERIOD_MAX`].
    pub fn new(count: u64, ttl: Option<Span>) -> Result<Concurrency, OutOfBounds> {
        let count = checked_count("count", count, 1)?;
        let ttl = ttl.map(|ttl| checked_period("ttl", ttl)).transpose()?;
        Ok(Concurrency { count, ttl })
    }

    /// Returns the most that may be held at once.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns how long a lease lives without a renewal.
    pub const fn ttl(&self) -> Option<Span> {
        self.ttl
    }

    /// Acquires a lease if its cost fits. A cost of 0 is allowed and acquires none.
    #[inline]
    pub fn acquire<W>(
        &self,
        leases: &mut Leases<W>,
        now: Time,
        cost: u64,
        holder: W,
    ) -> (Decision, Option<LeaseHandle>) {
        leases.expire_all(now);
        let Some(cost) = NonZeroU64::new(cost).filter(|cost| self.fits(leases, cost.get())) else {
            return (self.answer(leases, now, cost), None);
        };
        let handle = leases.insert(self.until(now), cost, holder);
        (Decision::allow(self.standing(leases, now), Span::ZERO), Some(handle))
    }

    /// Extends a live lease by a full ttl from now. Returns its new handle, or `None` if it is no
    /// longer live.
    pub fn renew<W>(&self, leases: &mut Leases<W>, now: Time, handle: LeaseHandle) -> Option<LeaseHandle> {
        leases.expire_all(now);
        let LeaseRecord { cost, holder } = leases.remove(handle)?;
        Some(leases.insert(self.until(now), cost, holder))
    }

    /// Decides whether a lease of this cost would be granted now. Acquires nothing.
    pub fn peek<W>(&self, leases: &mut Leases<W>, now: Time, cost: u64) -> Decision {
        leases.expire_all(now);
        self.answer(leases, now, cost)
    }

    /// Returns what the key's leases use: the permits held.
    pub fn usage<W>(&self, leases: &mut Leases<W>, now: Time) -> Usage {
        leases.expire_all(now);
        let Standing { limit, remaining, reset_after } = self.standing(leases, now);
        Usage::new(limit, leases.sum, remaining, reset_after)
    }

    /// Returns the denial of a call that must not overtake waiters with a total cost of `waiting`,
    /// even if it would fit. The wait is until all of them and this call would fit, or until the
    /// whole count is free.
    pub fn denial_behind<W>(&self, leases: &mut Leases<W>, now: Time, cost: u64, waiting: u64) -> Decision {
        leases.expire_all(now);
        let standing = Standing { remaining: 0, ..self.standing(leases, now) };
        if cost > self.count {
            return Decision::deny(standing, RetryAfter::Never);
        }
        let all = waiting.saturating_add(cost).min(self.count);
        // At least one tick: a caller with a wait of 0 would retry immediately and be denied.
        let wait = self.wait_for(leases, now, all).max(Span::from_micros(1));
        Decision::deny(standing, RetryAfter::After(wait))
    }

    /// Returns `true` if a cost fits, counting all leases as live.
    #[inline]
    pub fn fits<W>(&self, leases: &Leases<W>, cost: u64) -> bool {
        leases.sum.saturating_add(cost) <= self.count
    }

    fn answer<W>(&self, leases: &Leases<W>, now: Time, cost: u64) -> Decision {
        let standing = self.standing(leases, now);
        if cost == 0 || self.fits(leases, cost) {
            return Decision::allow(standing, Span::ZERO);
        }
        let retry_after = if cost > self.count {
            RetryAfter::Never
        } else {
            RetryAfter::After(self.wait_for(leases, now, cost))
        };
        Decision::deny(standing, retry_after)
    }

    /// Returns when to check again for a cost that does not fit now, assuming no releases: once
    /// enough leases have expired for it to fit, or [`SCAN_MAX`] of them. `None` if no expiry is
    /// known.
    pub fn recheck_at<W>(&self, leases: &Leases<W>, cost: u64) -> Option<Time> {
        match self.freeing_lease(leases, cost) {
            Ok(handle) => handle?.until(),
            Err(scanned) => scanned?.until(),
        }
    }

    /// Returns the time until a cost fits, assuming no releases.
    fn wait_for<W>(&self, leases: &Leases<W>, now: Time, cost: u64) -> Span {
        let handle = self.freeing_lease(leases, cost).unwrap_or_else(|_| leases.last());
        handle.map_or(Span::ZERO, |handle| handle.expires_in(now))
    }

    /// Returns the lease whose expiry makes a cost fit; `None` if it fits now.
    ///
    /// # Errors
    /// If it was not among the leases scanned: the last one scanned.
    fn freeing_lease<W>(
        &self,
        leases: &Leases<W>,
        cost: u64,
    ) -> Result<Option<LeaseHandle>, Option<LeaseHandle>> {
        let mut missing = leases.sum.saturating_add(cost).saturating_sub(self.count);
        if missing == 0 {
            return Ok(None);
        }
        let mut scanned = None;
        for (handle, cost) in leases.in_order().take(SCAN_MAX) {
            missing = missing.saturating_sub(cost);
            scanned = Some(handle);
            if missing == 0 {
                return Ok(scanned);
            }
        }
        Err(scanned)
    }

    #[inline]
    fn standing<W>(&self, leases: &Leases<W>, now: Time) -> Standing {
        Standing {
            limit: self.count,
            remaining: self.count.saturating_sub(leases.sum),
            reset_after: leases.last().map_or(Span::ZERO, |handle| handle.expires_in(now)),
        }
    }

    #[inline]
    fn until(&self, now: Time) -> u64 {
        // Cannot wrap: a moment is below 2^58, and a ttl is at most ten years.
        self.ttl.map_or(NEVER, |ttl| now.as_micros() + ttl.as_micros())
    }
}

impl LeaseHandle {
    /// Returns the moment at which the lease expires without a renewal; `None` without a ttl.
    pub const fn until(&self) -> Option<Time> {
        if self.until == NEVER { None } else { Some(Time::saturating_from_micros(self.until)) }
    }

    #[inline]
    const fn is_live(&self, now: Time) -> bool {
        now.as_micros() < self.until
    }

    #[inline]
    const fn expires_in(&self, now: Time) -> Span {
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
    /// Adds a lease that is live until then, for a key whose leases are kept elsewhere.
    pub fn restore(&mut self, until: Time, cost: NonZeroU64, holder: W) -> LeaseHandle {
        self.insert(until.as_micros(), cost, holder)
    }

    /// Releases a lease. Returns `true` if it was live, `false` if it has expired, was released
    /// before or is not known.
    pub fn release(&mut self, now: Time, handle: LeaseHandle) -> bool {
        self.remove(handle).is_some() && handle.is_live(now)
    }

    /// Removes the lease that expires first, if it has expired, and returns its holder and cost.
    /// Every verb drops expired leases; a store that must know each of them calls this first.
    #[inline]
    pub fn expire_next(&mut self, now: Time) -> Option<(W, u64)> {
        let handle = self.soonest().filter(|handle| !handle.is_live(now))?;
        self.remove(handle).map(|LeaseRecord { cost, holder }| (holder, cost.get()))
    }

    /// Returns when the next lease expires; `None` if none does.
    pub fn next_expiry(&self) -> Option<Time> {
        self.soonest()?.until()
    }

    /// Removes all leases. Returns their holders.
    pub fn reset(&mut self) -> impl Iterator<Item = W> + use<W> {
        // The numbers go on, so that no later lease has the handle of one that was removed.
        let fresh = Leases { next_number: self.next_number, ..Leases::default() };
        let Leases { few, more, .. } = core::mem::replace(self, fresh);
        let more = more.into_iter().flat_map(|mut more| more.drain());
        few.into_iter().flatten().chain(more).map(|(_, entry)| entry.holder)
    }

    /// Returns the sum of the costs, counting all leases as live.
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the number of leases, including those that have expired unobserved.
    pub fn len(&self) -> usize {
        self.few.iter().flatten().count() + self.more.as_ref().map_or(0, |more| more.len())
    }

    /// Returns `true` if there are no leases.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.few.iter().all(Option::is_none) && self.more.as_ref().is_none_or(|more| more.is_empty())
    }

    #[inline]
    fn insert(&mut self, until: u64, cost: NonZeroU64, holder: W) -> LeaseHandle {
        let handle = LeaseHandle { until, number: self.next_number };
        self.next_number += 1;
        self.sum += cost.get();
        match self.few.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some((handle, LeaseRecord { cost, holder })),
            None => {
                self.more.get_or_insert_default().insert(handle, LeaseRecord { cost, holder });
            }
        }
        handle
    }

    #[inline]
    fn remove(&mut self, handle: LeaseHandle) -> Option<LeaseRecord<W>> {
        let in_few = self.few.iter_mut().find_map(|slot| slot.take_if(|(few, _)| *few == handle));
        let entry = match in_few {
            Some((_, entry)) => entry,
            None => self.more.as_mut()?.remove(&handle)?,
        };
        // Cannot wrap: the cost was added on insertion.
        self.sum -= entry.cost.get();
        Some(entry)
    }

    #[inline]
    fn expire_all(&mut self, now: Time) {
        while self.expire_next(now).is_some() {}
    }

    #[inline]
    fn soonest(&self) -> Option<LeaseHandle> {
        let few = self.few.iter().flatten().map(|(handle, _)| *handle);
        let more = self.more.as_ref().and_then(|more| more.first()).map(|(handle, _)| *handle);
        few.chain(more).min()
    }

    #[inline]
    fn last(&self) -> Option<LeaseHandle> {
        let few = self.few.iter().flatten().map(|(handle, _)| *handle);
        let more = self.more.as_ref().and_then(|more| more.last()).map(|(handle, _)| *handle);
        few.chain(more).max()
    }

    /// Iterates over all leases and their costs in the order of expiry.
    fn in_order(&self) -> impl Iterator<Item = (LeaseHandle, u64)> {
        let mut few =
            self.few.each_ref().map(|slot| slot.as_ref().map(|(handle, entry)| (*handle, entry.cost.get())));
        few.sort_unstable();
        let mut few = few.into_iter().flatten().peekable();
        let more = self.more.iter().flat_map(|more| more.iter());
        let mut more = more.map(|(handle, entry)| (*handle, entry.cost.get())).peekable();
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

    fn fields(decision: Decision) -> (bool, u64, Option<RetryAfter>, Span) {
        (decision.allowed(), decision.remaining(), decision.retry_after(), decision.reset_after())
    }

    #[test]
    fn the_example_in_the_header() {
        let (two, mut leases) = (limit(2, 30), Leases::default());
        let (_, a) = two.acquire(&mut leases, at(0), 1, 'a');
        let (decision, _) = two.acquire(&mut leases, at(10), 1, 'b');
        assert_eq!(fields(decision), (true, 0, None, span(30)));
        let (denial, none) = two.acquire(&mut leases, at(12), 1, 'c');
        assert_eq!(fields(denial), (false, 0, Some(RetryAfter::After(span(18))), span(28)));
        assert_eq!(none, None);
        assert!(leases.release(at(13), a.unwrap()));
        assert!(two.acquire(&mut leases, at(13), 1, 'c').0.allowed());
        assert_eq!(leases.reset().collect::<Vec<_>>(), ['c', 'b']);
        assert!(leases.is_empty() && leases.sum() == 0);
    }

    #[test]
    fn a_lease_is_live_until_the_moment_it_expires() {
        let (one, mut leases) = (limit(1, 30), Leases::default());
        let (_, held) = one.acquire(&mut leases, at(0), 1, ());
        let just_before = Time::saturating_from_micros(30 * S - 1);
        assert_eq!(
            fields(one.peek(&mut leases, just_before, 1)),
            (false, 0, Some(RetryAfter::After(Span::from_micros(1))), Span::from_micros(1))
        );
        assert_eq!(one.renew(&mut leases.clone(), at(30), held.unwrap()), None);
        assert!(one.renew(&mut leases.clone(), just_before, held.unwrap()).is_some());
        assert!(!leases.clone().release(at(30), held.unwrap()));
        assert!(one.acquire(&mut leases, at(30), 1, ()).0.allowed());
    }

    #[test]
    fn a_lease_is_released_once() {
        let (ten, mut leases) = (limit(10, 30), Leases::default());
        let (_, held) = ten.acquire(&mut leases, at(0), 4, ());
        let other = ten.acquire(&mut leases, at(0), 1, ()).1.unwrap();
        assert!(leases.release(at(1), held.unwrap()) && !leases.release(at(1), held.unwrap()));
        let renewed = ten.renew(&mut leases, at(1), other).unwrap();
        assert!(!leases.release(at(1), other), "a renewed lease has a new handle");
        assert!(leases.release(at(1), renewed) && leases.is_empty() && leases.sum() == 0);
    }

    #[test]
    fn after_a_reset_no_lease_has_an_old_handle() {
        let (one, mut leases) = (limit(1, 30), Leases::default());
        let old = one.acquire(&mut leases, at(0), 1, ()).1.unwrap();
        assert_eq!(leases.reset().count(), 1);
        let new = one.acquire(&mut leases, at(0), 1, ()).1.unwrap();
        assert!(!leases.release(at(0), old) && one.renew(&mut leases, at(0), old).is_none());
        assert!(leases.release(at(0), new));
    }

    #[test]
    fn without_a_ttl_the_wait_is_unknown() {
        let (one, mut leases) = (limit(1, 0), Leases::default());
        let (decision, held) = one.acquire(&mut leases, at(0), 1, ());
        assert_eq!(fields(decision), (true, 0, None, UNKNOWN));
        assert_eq!((held.unwrap().until(), leases.next_expiry()), (None, None));
        assert_eq!(
            fields(one.peek(&mut leases, Time::MAX, 1)),
            (false, 0, Some(RetryAfter::After(UNKNOWN)), UNKNOWN)
        );
        assert_eq!(one.recheck_at(&leases, 1), None);
        assert!(one.renew(&mut leases, Time::MAX, held.unwrap()).is_some());
    }

    #[test]
    fn a_cost_above_the_count_never_fits_and_zero_always_does() {
        let (three, mut leases) = (limit(3, 30), Leases::default());
        assert_eq!(three.acquire(&mut leases, at(0), 4, ()).0.retry_after(), Some(RetryAfter::Never));
        assert_eq!(three.acquire(&mut leases, at(0), u64::MAX, ()).1, None);
        assert!(three.acquire(&mut leases, at(0), 3, ()).0.allowed());
        let (nothing, no_lease) = three.acquire(&mut leases, at(0), 0, ());
        assert!(nothing.allowed() && no_lease.is_none() && leases.len() == 1);
    }

    #[test]
    fn below_what_is_held_nothing_remains_until_enough_is_released() {
        let (many, few, mut leases) = (limit(5, 30), limit(2, 10), Leases::default());
        let held: Vec<LeaseHandle> =
            (0..5).filter_map(|second| many.acquire(&mut leases, at(second), 1, second).1).collect();
        assert_eq!(
            fields(few.peek(&mut leases, at(5), 1)),
            (false, 0, Some(RetryAfter::After(span(28))), span(29)),
            "four of the five have to expire"
        );
        for held in held.iter().take(4) {
            assert!(leases.release(at(5), *held));
        }
        assert!(few.acquire(&mut leases, at(5), 1, 9).0.allowed());
    }

    #[test]
    fn a_step_back_admits_nothing_more_and_revives_no_lease() {
        let (two, mut leases) = (limit(2, 30), Leases::default());
        let (_, first) = two.acquire(&mut leases, at(100), 2, ());
        assert_eq!(
            fields(two.peek(&mut leases, at(40), 1)),
            (false, 0, Some(RetryAfter::After(span(90))), span(90)),
            "the step plus the ttl"
        );
        assert_eq!(fields(two.peek(&mut leases, at(130), 2)), (true, 2, None, Span::ZERO));
        assert!(!leases.release(at(100), first.unwrap()), "it was observed as expired");
        assert!(two.acquire(&mut leases, at(100), 2, ()).0.allowed());
    }

    #[test]
    fn beyond_the_scan_the_wait_is_until_the_last_expiry() {
        let most = u64::try_from(SCAN_MAX).unwrap();
        let (many, mut leases) = (limit(2 * most, 10_000), Leases::default());
        for second in 0..2 * most {
            assert!(many.acquire(&mut leases, at(second), 1, ()).0.allowed());
        }
        let wait = |leases: &mut Leases<()>, cost: u64| many.peek(leases, at(2 * most), cost).retry_after();
        let expiry = |nth: u64| Some(RetryAfter::After(span(nth - 1 + 10_000 - 2 * most)));
        assert_eq!(wait(&mut leases, most), expiry(most));
        assert_eq!(wait(&mut leases, most + 1), expiry(2 * most));
        let again = |cost: u64| many.recheck_at(&leases, cost);
        assert_eq!(again(most - 1), Some(at(most - 2 + 10_000)));
        assert_eq!([most, most + 1, 2 * most].map(again), [Some(at(most - 1 + 10_000)); 3]);
    }

    #[test]
    fn behind_waiters_a_call_waits_for_them_too() {
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
        assert_eq!(fields(one.peek(&mut leases, Time::MAX, 1)).2, Some(RetryAfter::After(span(30))));
    }

    #[test]
    fn errors_name_the_value_the_bound_and_the_remedy() {
        let message = |count, ttl| Concurrency::new(count, ttl).unwrap_err().to_string();
        assert_eq!(
            message(0, None),
            "count 0 is below the minimum, 1; that would deny every call, use at least 1"
        );
        assert_eq!(
            message(1_000_000_000_001, None),
            "count 1000000000001 is above the maximum, 1000000000000; use a smaller number"
        );
        assert_eq!(message(1, Some(Span::ZERO)), "ttl 0s is below the minimum, 1us; use at least 1us");
        assert_eq!(
            message(1, Some(span(86_400 * 3_651))),
            "ttl 3651d is above the maximum, 3650d; use at most 3650d"
        );
    }
}
