//! Callers who wait for their turn under one key, as a pure structure: who is next, and when.
//!
//! In plain words: whoever waits holds a place, and nothing else. The head's turn comes at the first moment at which a
//! call of its cost would be allowed without delay; only then is it charged, and the next one moves up. So who leaves
//! leaves no trace, a large cost is not overtaken by small ones, and nobody needs to be woken before the turn has come.
//!
//! ```text
//! Turn       the first moment t at which the limits allow the cost with delay 0. It is found by asking for the wait and
//!            looking again after it: limits forgive as time passes and never the reverse, so that is once or twice.
//! Tail       what the states will be when all who wait have had their turns, and the moment of the last one. Whoever
//!            joins is told their own turn by it at once, so that a deadline that cannot be met is known at once.
//! Order      by priority, then by arrival.
//! Cost       joining and leaving is O(log n) at the most, and so is a turn. After somebody has left from within the line the next tail that
//!            is asked for takes O(n).
//! ```
//!
//! Example: `min-interval 1s`, used at 0. A joins at 0.2 (turn 1.0), then B (turn 2.0) and C (3.0). A leaves: B has its turn at
//! 1.0 and C at 2.0, as if A had never been there.

use crate::algorithm::{Algorithm, Waiting};
use crate::decision::{Decision, RetryAfter};
use crate::several::peek_list;
use crate::time::{Span, Time};
use crate::verbs::Verbs as _;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Who goes first. Within one priority it is first come, first served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Priority {
    /// Before all others: somebody is looking at the screen.
    High,
    /// As everybody.
    #[default]
    Normal,
    /// After all others: what can as well be done tonight. It waits for as long as others keep coming.
    Low,
}

/// How many priorities there are.
const PRIORITIES: usize = 3;

/// The waits of several limits that pace and count settle in two or three steps; a calendar that ends is the exception.
const STEPS_MAX: usize = 16;

/// The first moment, not before `from`, at which a call would be allowed without delay if nobody else came. `None` if there is none.
pub fn turn_at<A: Algorithm>(limits: &[A], states: &[A::State], from: Time, cost: u32) -> Option<Time> {
    if let ([limit], [state]) = (limits, states)
        && limit.waiting() != Waiting::Queue
    {
        // One limit that does not pace says it exactly.
        return match limit.peek(state, from, cost).retry_after() {
            None => Some(from),
            Some(RetryAfter::After(wait)) => Some(from.after(wait)).filter(|turn| *turn < Time::MAX),
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
        at = at.after(wait);
    }
    // Not before then, in any case. Whoever has the turn then is told if it is later still.
    Some(at)
}

/// Whether one of the limits has a queue of its own, which says how many may wait.
pub fn paces<A: Algorithm>(limits: &[A]) -> bool {
    limits.iter().any(|limit| limit.waiting() == Waiting::Queue)
}

/// The moment as of which a turn is charged; `None` if the turn has not come.
///
/// A turn comes with a whole microsecond, what a bucket waits for mostly a part of one sooner. So where all limits would lend what is
/// still missing a microsecond before, they are charged as of then, and that part is not lost: ten thousand turns at 3 a second
/// take as long as ten thousand thirds of a second.
pub fn charged_as_of<A: Algorithm>(limits: &[A], states: &[A::State], turn: Time, cost: u32) -> Option<Time> {
    const TICK: Span = Span::from_micros(1);
    let just_before = Time::saturating_from_micros(turn.as_micros().saturating_sub(1));
    let lent = |(limit, state): (&A, &A::State)| limit.reserve_wait(state, just_before, cost, TICK).ok();
    let longest =
        limits.iter().zip(states).map(lent).try_fold(Span::ZERO, |longest, lent| Some(longest.max(lent?)));
    if longest.is_some_and(|lent| lent > Span::ZERO) {
        return Some(just_before);
    }
    let answer = peek_list(limits, states, turn, cost);
    (answer.allowed() && answer.delay() == Span::ZERO).then_some(turn)
}

/// Those who wait under one key. `W` is what the caller knows them by.
pub struct Line<A: Algorithm, W> {
    /// By priority. Who has left from within stays as an empty place until there are too many.
    waiting: [VecDeque<Place<W>>; PRIORITIES],
    /// For each priority: what will be after it and all before it, if that has been asked for.
    tails: [Option<Tail<A>>; PRIORITIES],
    len: usize,
    with_deadline: usize,
    /// What all of them cost.
    waiting_cost: u64,
    next_number: u64,
}

/// Somebody's place.
struct Place<W> {
    number: u64,
    /// `None` once they have left.
    who: Option<W>,
    ask: Ask,
}

/// What somebody in line wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// What the call costs.
    pub cost: u32,
    /// The latest moment at which the turn is of use.
    pub until: Option<Time>,
    /// Who goes first.
    pub priority: Priority,
}

/// Names a place in a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    priority: Priority,
    number: u64,
}

/// What will be when everybody up to here has had their turn.
struct Tail<A: Algorithm> {
    states: Vec<A::State>,
    /// When the last of them has had it.
    at: Time,
}

/// A key's limits, and what its states are now.
pub trait Now<A: Algorithm> {
    /// The limits.
    fn limits(&self) -> &[A];
    /// A copy of the states, one for each limit. It is asked for only where a tail has to be worked out anew.
    fn states(&self) -> Vec<A::State>;
    /// The time it is.
    fn now(&self) -> Time;
}

impl<A: Algorithm, W> Default for Line<A, W> {
    fn default() -> Self {
        Line {
            waiting: [const { VecDeque::new() }; PRIORITIES],
            tails: [const { None }; PRIORITIES],
            len: 0,
            with_deadline: 0,
            waiting_cost: 0,
            next_number: 0,
        }
    }
}

impl<A: Algorithm, W> Line<A, W> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When somebody who joined now would have their turn. `None` if never: the cost is above a limit.
    pub fn turn_of(&mut self, now: Time, ask: &Ask, key: &impl Now<A>) -> Option<Time> {
        let tail = self.tail(ask.priority, now, key)?;
        turn_at(key.limits(), &tail.states, tail.at.max(now), ask.cost)
    }

    /// Whether the limits' own queues have room for somebody who joined now: a pacer says how many may wait.
    ///
    /// # Errors
    /// When there is no room: how long until there is, if that limit alone says it.
    pub fn room_for(&mut self, now: Time, ask: &Ask, key: &impl Now<A>) -> Result<(), Option<Span>> {
        let states = key.states();
        let waiting = self.waiting_cost.saturating_add(u64::from(ask.cost));
        let mut both = key.limits().iter().zip(&states);
        // Whoever waits is not charged yet, so their costs come to what is.
        let is_full = both.any(|(limit, state)| {
            limit.waiting() == Waiting::Queue && u64::from(limit.remaining(state, now)) < waiting
        });
        if !is_full {
            return Ok(());
        }
        // A bucket's state seen from now says when those before it have left, if nothing else makes them wait.
        let ([limit], Some(tail)) = (key.limits(), self.tail(ask.priority, now, key)) else {
            return Err(None);
        };
        Err(tail.states.first().map(|state| limit.retry_after(state, now, ask.cost)))
    }

    /// Whether somebody of a lower priority waits, who would have to stand back.
    pub fn has_lower(&self, than: Priority) -> bool {
        self.waiting.iter().skip(rank(than) + 1).any(|line| !line.is_empty())
    }

    /// Joins, behind all of the same priority.
    pub fn join(&mut self, ask: Ask, who: W, key: &impl Now<A>, now: Time) -> Ticket {
        let place = rank(ask.priority);
        let number = self.next_number;
        self.next_number += 1;
        // Whoever stands behind is later by this call.
        self.forget_tails_after(place);
        if let Some(tail) = self.tails.get_mut(place).and_then(Option::as_mut) {
            tail.move_on(key.limits(), now, ask.cost);
        }
        if let Some(line) = self.waiting.get_mut(place) {
            line.push_back(Place { number, who: Some(who), ask });
        }
        self.len += 1;
        self.with_deadline += usize::from(ask.until.is_some());
        self.waiting_cost += u64::from(ask.cost);
        Ticket { priority: ask.priority, number }
    }

    /// Leaves before the turn has come. `None` if the place is not held any more.
    pub fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let rank = rank(ticket.priority);
        let line = self.waiting.get_mut(rank)?;
        let index = line.binary_search_by_key(&ticket.number, |place| place.number).ok()?;
        let place = line.get_mut(index)?;
        let (who, ask) = (place.who.take()?, place.ask);
        self.left(rank, &ask);
        self.forget_tails_from(rank);
        Some(who)
    }

    /// Who is next, and at what cost.
    pub fn head(&self) -> Option<(&W, &Ask)> {
        let place = self.waiting.iter().find_map(|line| line.front())?;
        Some((place.who.as_ref()?, &place.ask))
    }

    /// What the one behind the head wants.
    pub fn second(&self) -> Option<&Ask> {
        self.waiting.iter().flatten().filter(|place| place.who.is_some()).nth(1).map(|place| &place.ask)
    }

    /// Takes the head out: its turn has come, and it has been charged as it was planned. (If it was charged otherwise, say so
    /// with [`Line::plan_anew`].)
    pub fn call(&mut self) -> Option<W> {
        let rank = self.waiting.iter().position(|line| !line.is_empty())?;
        let place = self.waiting.get_mut(rank)?.pop_front()?;
        self.left(rank, &place.ask);
        // It was not planned for among those of higher priorities, of whom none waits.
        self.tails.iter_mut().take(rank).for_each(|tail| *tail = None);
        place.who
    }

    /// What was planned no longer holds: the key was charged, given something back, or has other limits now.
    pub fn plan_anew(&mut self) {
        self.forget_tails_from(0);
    }

    /// Those who cannot have their turn in time any more, as somebody came before them or the limits have changed. They leave.
    /// Each is told by how much it would be too late; `None` if the turn would never come.
    pub fn too_late(&mut self, now: Time, key: &impl Now<A>) -> Vec<(W, Option<Span>)> {
        let mut late = Vec::new();
        if self.with_deadline == 0 {
            return late;
        }
        let mut tail = Tail::<A> { states: key.states(), at: now };
        let mut gone = 0;
        for place in self.waiting.iter_mut().flatten() {
            if place.who.is_none() {
                continue;
            }
            let turn = turn_at(key.limits(), &tail.states, tail.at, place.ask.cost);
            let by = match (turn, place.ask.until) {
                (Some(turn), Some(until)) if turn > until => Some(turn.since(until)),
                (None, _) => None,
                _ => {
                    tail.move_on(key.limits(), now, place.ask.cost);
                    continue;
                }
            };
            gone += 1;
            self.with_deadline -= usize::from(place.ask.until.is_some());
            self.waiting_cost -= u64::from(place.ask.cost);
            late.extend(place.who.take().map(|who| (who, by)));
        }
        self.len -= gone;
        if gone > 0 {
            self.tidy();
            self.forget_tails_from(0);
        }
        late
    }

    /// All who wait, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter().flatten().filter_map(|place| place.who.as_ref())
    }

    /// The answer to somebody who does not wait and asks at a time, while others do: when the line is through, and the call allowed
    /// after it.
    pub fn denial(&mut self, key: &impl Now<A>, cost: u32, told_at: Time) -> Option<Decision> {
        let tail = self.tail(Priority::Low, key.now(), key)?;
        let at = tail.at.max(told_at);
        Some(peek_list(key.limits(), &tail.states, at, cost).behind_queue(at.since(told_at)))
    }

    /// What will be after all up to a priority.
    fn tail(&mut self, priority: Priority, now: Time, key: &impl Now<A>) -> Option<&Tail<A>> {
        let rank = rank(priority);
        let known = self.tails.iter().take(rank + 1).rposition(Option::is_some);
        let mut tail = match known {
            Some(known) if known == rank => return self.tails.get(rank)?.as_ref(),
            Some(known) => self.tails.get(known)?.as_ref()?.clone(),
            None => Tail { states: key.states(), at: now },
        };
        let from = known.map_or(0, |known| known + 1);
        let between = self.waiting.iter().take(rank + 1).skip(from).flatten();
        for place in between.filter(|place| place.who.is_some()) {
            tail.move_on(key.limits(), now, place.ask.cost);
        }
        let kept = self.tails.get_mut(rank)?;
        *kept = Some(tail);
        kept.as_ref()
    }

    fn forget_tails_from(&mut self, rank: usize) {
        self.tails.iter_mut().skip(rank).for_each(|tail| *tail = None);
    }

    fn forget_tails_after(&mut self, rank: usize) {
        self.forget_tails_from(rank + 1);
    }

    /// One of a priority has left.
    fn left(&mut self, rank: usize, ask: &Ask) {
        self.len -= 1;
        self.with_deadline -= usize::from(ask.until.is_some());
        self.waiting_cost -= u64::from(ask.cost);
        let held = self.len;
        if let Some(line) = self.waiting.get_mut(rank) {
            drop_empty_places(line, held);
        }
    }

    fn tidy(&mut self) {
        let held = self.len;
        self.waiting.iter_mut().for_each(|line| drop_empty_places(line, held));
    }
}

/// The first place of a line is never empty, and of its places not many more than wait in all are.
fn drop_empty_places<W>(line: &mut VecDeque<Place<W>>, held: usize) {
    /// So few empty places are not worth moving anybody for.
    const FEW: usize = 32;
    while line.front().is_some_and(|place| place.who.is_none()) {
        line.pop_front();
    }
    if line.len() > 2 * held + FEW {
        line.retain(|place| place.who.is_some());
        line.shrink_to(2 * held);
    }
}

const fn rank(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

impl<A: Algorithm> Clone for Tail<A> {
    fn clone(&self) -> Self {
        Tail { states: self.states.clone(), at: self.at }
    }
}

impl<A: Algorithm> Tail<A> {
    /// One more has its turn. Who never can is passed over.
    fn move_on(&mut self, limits: &[A], now: Time, cost: u32) {
        if let Some(turn) = turn_at(limits, &self.states, self.at.max(now), cost)
            && let Some(as_of) = charged_as_of(limits, &self.states, turn, cost)
        {
            for (limit, state) in limits.iter().zip(&mut self.states) {
                limit.charge(state, as_of, cost);
            }
            self.at = turn;
        }
    }
}
