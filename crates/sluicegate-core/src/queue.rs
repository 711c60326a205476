//! The waiters of one key as a pure data structure: which call is next, and when it will be
//! admitted.
//!
//! A waiter is not charged while it is in the queue. The head is admitted at the first moment at
//! which its cost would be allowed without a delay; only then is it charged, and the next waiter
//! becomes the head. So a waiter that leaves does not affect any state, a large cost is not
//! overtaken by small ones, and no waiter has to be woken before it is admitted.
//!
//! ```text
//! Admission   the first moment at which the limits allow the cost with delay 0. It is found by
//!             peeking and peeking again after the wait. Limits only recover as time passes, so
//!             once or twice is enough.
//! Projection  the states after all waiters have been admitted, and the moment of the last
//!             admission. A new waiter learns its own admission from it, so a deadline that cannot
//!             be met is known at once.
//! Order       by priority, then first in, first out.
//! Cost        enqueue, dequeue and remove are O(log n). After a waiter has left the middle of the
//!             queue, the next projection is O(n).
//! ```
//!
//! Example: `min-interval 1s`, used at 0 s. A is enqueued at 0.2 s (admission at 1 s), then B (2 s)
//! and C (3 s). A leaves: B is admitted at 1 s and C at 2 s, as if A had never been enqueued.

use crate::algorithm::{Algorithm, Waiting};
use crate::all_of::peek_list;
use crate::decision::store::StoreDecision as _;
use crate::decision::{Decision, RetryAfter};
use crate::time::{Span, Time};
use crate::verbs::Verbs as _;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The order among waiters. Within one priority it is first in, first out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[non_exhaustive]
pub enum Priority {
    /// Before all others: a person is waiting for the result.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all others, for background work. It starves while others keep arriving.
    Low,
}

/// The number of priorities.
const PRIORITIES: usize = 3;

/// Bounds the search for an admission. Lists of limits need two or three steps; only a calendar
/// without a next window needs more.
const STEPS_MAX: usize = 16;

/// Returns the first moment, not before `from`, at which a call would be allowed without a delay,
/// assuming no other calls. `None` if there is none.
pub fn earliest_admission<A: Algorithm>(
    limits: &[A],
    states: &[A::State],
    from: Time,
    cost: u64,
) -> Option<Time> {
    if let ([limit], [state]) = (limits, states)
        && limit.waiting() != Waiting::Queue
    {
        // A single limit without pacing reports the exact wait.
        return match limit.peek(state, from, cost).retry_after() {
            None => Some(from),
            Some(RetryAfter::After(wait)) => {
                Some(from.saturating_add(wait)).filter(|admission| *admission < Time::MAX)
            }
            Some(RetryAfter::Never) => None,
        };
    }
    let mut at = from;
    for _ in 0..STEPS_MAX {
        let answer = peek_list(limits, states, at, cost);
        let wait = match answer.retry_after() {
            None => answer.delay(),
            Some(RetryAfter::After(wait)) => wait,
            Some(RetryAfter::Never) => return None,
        };
        if wait == Span::ZERO {
            return Some(at);
        }
        if at == Time::MAX {
            return None;
        }
        at = at.saturating_add(wait);
    }
    // A lower bound, in any case. If the head is not admitted then, it is projected again.
    Some(at)
}

/// Returns `true` if one of the limits is a pacer, whose own `queue` bounds the waiters.
pub fn has_pacer<A: Algorithm>(limits: &[A]) -> bool {
    limits.iter().any(|limit| limit.waiting() == Waiting::Queue)
}

/// Returns `true` if a late admission may be charged as of when it was due. A window or log counts
/// the moment at which a call acts: charged earlier, it would admit the next call too early.
pub fn may_charge_late<A: Algorithm>(limits: &[A]) -> bool {
    limits.iter().all(|limit| limit.waiting() != Waiting::Retry)
}

/// Returns the moment as of which an admission is charged, or `None` if its time has not come.
///
/// Admissions fall on whole microseconds, while a bucket's next unit is mostly due a fraction
/// earlier. So if all limits would lend what is missing one microsecond earlier, they are charged
/// as of then, and the fraction is not lost: ten thousand admissions at 3 per second take ten
/// thousand thirds of a second.
pub fn charge_time<A: Algorithm>(
    limits: &[A],
    states: &[A::State],
    admission: Time,
    cost: u64,
) -> Option<Time> {
    const TICK: Span = Span::from_micros(1);
    let just_before = admission.saturating_sub(TICK);
    let lent = |(limit, state): (&A, &A::State)| limit.reserve_wait(state, just_before, cost, TICK).ok();
    let longest =
        limits.iter().zip(states).map(lent).try_fold(Span::ZERO, |longest, lent| Some(longest.max(lent?)));
    if longest.is_some_and(|lent| lent > Span::ZERO) && may_charge_late(limits) {
        return Some(just_before);
    }
    let answer = peek_list(limits, states, admission, cost);
    (answer.allowed() && answer.delay() == Span::ZERO).then_some(admission)
}

/// The waiters of one key. `W` is how the store identifies a waiter.
pub struct Queue<A: Algorithm, W> {
    /// By priority. A waiter that leaves the middle stays as a tombstone until there are too many.
    waiting: [VecDeque<QueuedWaiter<W>>; PRIORITIES],
    /// Per priority: the projection after its last waiter, if it has been computed.
    projections: [Option<Projection<A>>; PRIORITIES],
    len: usize,
    with_deadline: usize,
    /// The sum of the costs of all waiters.
    waiting_cost: u128,
    next_number: u64,
}

struct QueuedWaiter<W> {
    number: u64,
    /// `None` is a tombstone.
    waiter: Option<W>,
    call: QueuedCall,
}

/// The call of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuedCall {
    /// The cost.
    pub cost: u64,
    /// The deadline: the latest moment at which an admission is of use.
    pub until: Option<Time>,
    /// The order among waiters.
    pub priority: Priority,
}

/// Identifies a waiter in its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaiterId {
    priority: Priority,
    number: u64,
}

/// The states after a number of waiters have been admitted.
struct Projection<A: Algorithm> {
    states: Vec<A::State>,
    /// The moment of the last admission.
    at: Time,
}

/// A key's limits and current states, as the store sees them.
pub trait KeyView<A: Algorithm> {
    /// Returns the limits.
    fn limits(&self) -> &[A];
    /// Copies the states, one per limit. Called only if a projection has to be computed.
    fn states(&self) -> Vec<A::State>;
    /// Returns the current time.
    fn now(&self) -> Time;
}

impl<A: Algorithm, W> Default for Queue<A, W> {
    fn default() -> Self {
        Queue {
            waiting: [const { VecDeque::new() }; PRIORITIES],
            projections: [const { None }; PRIORITIES],
            len: 0,
            with_deadline: 0,
            waiting_cost: 0,
            next_number: 0,
        }
    }
}

impl<A: Algorithm, W> Queue<A, W> {
    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns when a call enqueued now would be admitted, or `None` if its cost exceeds a limit.
    pub fn admission(&mut self, now: Time, call: &QueuedCall, key: &impl KeyView<A>) -> Option<Time> {
        let projection = self.project(call.priority, now, key)?;
        earliest_admission(key.limits(), &projection.states, projection.at.max(now), call.cost)
    }

    /// Checks that the limits' own queues have room for another call: a pacer bounds its waiters.
    ///
    /// # Errors
    /// If there is no room: the time until there is, if a single limit determines it.
    pub fn check_room(
        &mut self,
        now: Time,
        call: &QueuedCall,
        key: &impl KeyView<A>,
    ) -> Result<(), Option<Span>> {
        let states = key.states();
        let waiting = self.waiting_cost + u128::from(call.cost);
        let mut both = key.limits().iter().zip(&states);
        // Waiters are not charged yet, so their costs add to what is.
        let is_full = both.any(|(limit, state)| {
            limit.waiting() == Waiting::Queue && u128::from(limit.remaining(state, now)) < waiting
        });
        if !is_full {
            return Ok(());
        }
        // The projected state, seen from now, tells when the waiters ahead will have left.
        let ([limit], Some(projection)) = (key.limits(), self.project(call.priority, now, key)) else {
            return Err(None);
        };
        Err(projection.states.first().map(|state| limit.retry_after(state, now, call.cost)))
    }

    /// Returns `true` if a waiter of a lower priority exists, which a new call would overtake.
    pub fn has_lower(&self, than: Priority) -> bool {
        self.waiting.iter().skip(rank(than) + 1).any(|entries| !entries.is_empty())
    }

    /// Enqueues a call behind all others of its priority.
    pub fn enqueue(&mut self, call: QueuedCall, waiter: W, key: &impl KeyView<A>, now: Time) -> WaiterId {
        let rank = rank(call.priority);
        let number = self.next_number;
        self.next_number += 1;
        // Waiters of lower priorities are delayed by this call.
        self.discard_projections_from(rank + 1);
        if let Some(projection) = self.projections.get_mut(rank).and_then(Option::as_mut) {
            projection.admit(key.limits(), now, call.cost);
        }
        if let Some(entries) = self.waiting.get_mut(rank) {
            entries.push_back(QueuedWaiter { number, waiter: Some(waiter), call });
        }
        self.len += 1;
        self.with_deadline += usize::from(call.until.is_some());
        self.waiting_cost += u128::from(call.cost);
        WaiterId { priority: call.priority, number }
    }

    /// Removes a waiter that has not been admitted. Returns `None` if it is no longer in the queue.
    pub fn remove(&mut self, id: WaiterId) -> Option<W> {
        let rank = rank(id.priority);
        let entries = self.waiting.get_mut(rank)?;
        let index = entries.binary_search_by_key(&id.number, |entry| entry.number).ok()?;
        let entry = entries.get_mut(index)?;
        let (waiter, call) = (entry.waiter.take()?, entry.call);
        self.removed(rank, &call);
        self.discard_projections_from(rank);
        Some(waiter)
    }

    /// Returns the next waiter and its call.
    pub fn head(&self) -> Option<(&W, &QueuedCall)> {
        let entry = self.waiting.iter().find_map(|entries| entries.front())?;
        Some((entry.waiter.as_ref()?, &entry.call))
    }

    /// Returns the call behind the head.
    pub fn second(&self) -> Option<&QueuedCall> {
        self.waiting.iter().flatten().filter(|entry| entry.waiter.is_some()).nth(1).map(|entry| &entry.call)
    }

    /// Removes the head, which was admitted and charged as projected. (If it was charged otherwise,
    /// call [`Queue::invalidate`] as well.)
    pub fn dequeue(&mut self) -> Option<W> {
        let rank = self.waiting.iter().position(|entries| !entries.is_empty())?;
        let entry = self.waiting.get_mut(rank)?.pop_front()?;
        self.removed(rank, &entry.call);
        // The projections of higher priorities, which have no waiters, do not include it.
        self.projections.iter_mut().take(rank).for_each(|projection| *projection = None);
        entry.waiter
    }

    /// Discards all projections: the key was charged, something was returned to it, or its limits
    /// have changed.
    pub fn invalidate(&mut self) {
        self.discard_projections_from(0);
    }

    /// Removes the waiters that can no longer be admitted before their deadlines, because calls
    /// came before them or the limits have changed. Each comes with the time by which it would miss
    /// its deadline, or `None` if it would never be admitted.
    pub fn remove_late(&mut self, now: Time, key: &impl KeyView<A>) -> Vec<(W, Option<Span>)> {
        let mut late = Vec::new();
        if self.with_deadline == 0 {
            return late;
        }
        let mut projection = Projection::<A> { states: key.states(), at: now };
        let mut removed = 0;
        for entry in self.waiting.iter_mut().flatten() {
            if entry.waiter.is_none() {
                continue;
            }
            let admission =
                earliest_admission(key.limits(), &projection.states, projection.at, entry.call.cost);
            let late_by = match (admission, entry.call.until) {
                (Some(admission), Some(until)) if admission > until => Some(admission.since(until)),
                (None, _) => None,
                _ => {
                    projection.admit(key.limits(), now, entry.call.cost);
                    continue;
                }
            };
            removed += 1;
            self.with_deadline -= usize::from(entry.call.until.is_some());
            self.waiting_cost -= u128::from(entry.call.cost);
            late.extend(entry.waiter.take().map(|waiter| (waiter, late_by)));
        }
        self.len -= removed;
        if removed > 0 {
            let len = self.len;
            self.waiting.iter_mut().for_each(|entries| drop_tombstones(entries, len));
            self.discard_projections_from(0);
        }
        late
    }

    /// Iterates over the waiters in the order of their admission.
    pub fn iter(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter().flatten().filter_map(|entry| entry.waiter.as_ref())
    }

    /// Returns the denial of a call that does not wait, made at `at`, while there are waiters: it
    /// would be allowed after the queue is empty.
    pub fn denial(&mut self, key: &impl KeyView<A>, cost: u64, at: Time) -> Option<Decision> {
        let projection = self.project(Priority::Low, key.now(), key)?;
        let empty_at = projection.at.max(at);
        let decision = peek_list(key.limits(), &projection.states, empty_at, cost);
        Some(decision.behind_queue(empty_at.since(at)))
    }

    /// Returns the projection after all waiters up to a priority.
    fn project(&mut self, priority: Priority, now: Time, key: &impl KeyView<A>) -> Option<&Projection<A>> {
        let rank = rank(priority);
        let known = self.projections.iter().take(rank + 1).rposition(Option::is_some);
        let mut projection = match known {
            Some(known) if known == rank => return self.projections.get(rank)?.as_ref(),
            Some(known) => self.projections.get(known)?.as_ref()?.clone(),
            None => Projection { states: key.states(), at: now },
        };
        let from = known.map_or(0, |known| known + 1);
        let between = self.waiting.iter().take(rank + 1).skip(from).flatten();
        for entry in between.filter(|entry| entry.waiter.is_some()) {
            projection.admit(key.limits(), now, entry.call.cost);
        }
        let kept = self.projections.get_mut(rank)?;
        *kept = Some(projection);
        kept.as_ref()
    }

    fn discard_projections_from(&mut self, rank: usize) {
        self.projections.iter_mut().skip(rank).for_each(|projection| *projection = None);
    }

    /// Accounts for a waiter that was removed.
    fn removed(&mut self, rank: usize, call: &QueuedCall) {
        self.len -= 1;
        self.with_deadline -= usize::from(call.until.is_some());
        self.waiting_cost -= u128::from(call.cost);
        let len = self.len;
        if let Some(entries) = self.waiting.get_mut(rank) {
            drop_tombstones(entries, len);
        }
    }
}

/// Keeps the first entry a waiter, and tombstones to not many more than there are waiters in all.
fn drop_tombstones<W>(entries: &mut VecDeque<QueuedWaiter<W>>, waiters: usize) {
    /// Fewer tombstones than this are not worth moving entries for.
    const FEW: usize = 32;
    while entries.front().is_some_and(|entry| entry.waiter.is_none()) {
        entries.pop_front();
    }
    if entries.len() > 2 * waiters + FEW {
        entries.retain(|entry| entry.waiter.is_some());
        entries.shrink_to(2 * waiters);
    }
}

const fn rank(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

impl<A: Algorithm> Clone for Projection<A> {
    fn clone(&self) -> Self {
        Projection { states: self.states.clone(), at: self.at }
    }
}

impl<A: Algorithm> Projection<A> {
    /// Admits one more call. One that can never be admitted is skipped.
    fn admit(&mut self, limits: &[A], now: Time, cost: u64) {
        if let Some(admission) = earliest_admission(limits, &self.states, self.at.max(now), cost)
            && let Some(as_of) = charge_time(limits, &self.states, admission, cost)
        {
            for (limit, state) in limits.iter().zip(&mut self.states) {
                limit.charge(state, as_of, cost);
            }
            self.at = admission;
        }
    }
}
