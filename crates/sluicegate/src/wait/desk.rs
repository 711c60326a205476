//! What is done to lines under their lock.
//!
//! A [`Desk`] is the book, open at one moment; what callers have to be told is done when it has been closed.

use super::Denial;
use super::lines::{Host, Joined, Lines, Waiter, wake_all};
use super::seats::{Outcome, Seat, SeatId, Seats};
use crate::clock::alarms::Alarms;
use crate::key::{ByFingerprint, Fingerprint};
use crate::store::{HeadCharge, NotAdmitted, QueueStore};
use crate::sync::MutexGuard;
use sluicegate_core::line::{Ask, Line, Now, paces};
use sluicegate_core::pile::Charges;
use sluicegate_core::{AnyLimit, AnyState, Decision, RetryAfter, Span, Time};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::Waker;

/// A turn that is called late is charged as of when it was due, so that the timer's lateness does not add up: 10,000 turns at
/// 10,000 a second take a second. But by so much at the most: a machine that slept for an hour does not make up for it at once.
const MADE_UP_MAX: Span = Span::from_micros(10_000);

/// So many of a line are called before one of them has looked: whoever is gone by then gives back what it held from among all of them,
/// a few microseconds' work at this many.
const UNSEEN_MAX: usize = 1_024;

/// One tick: the least wait there is to tell.
const TICK: Span = Span::from_micros(1);

/// What the lock guards.
#[derive(Default)]
pub(super) struct Book {
    /// By the key, without a tag.
    lines: HashMap<Fingerprint, KeyLine, ByFingerprint>,
    seats: Seats,
    /// The turn of each line's head, where it is known.
    due: BTreeSet<(Time, Fingerprint)>,
    alarms: Alarms,
}

/// Those who wait under a key.
pub(super) struct KeyLine {
    line: Line<AnyLimit, SeatId>,
    /// As the store knows it, with the tag of its limits.
    key: Fingerprint,
    scope: Option<Fingerprint>,
    /// The head's turn, which is then in `due`. Not known while too many were called and have not looked.
    turn: Option<Time>,
    /// Those who were called and have not looked yet.
    called: Unseen,
    /// A cost that is known not to be above the limits, and to wait for no queue of theirs.
    fits: u32,
    /// The limits that it was planned with, as far as it was.
    limits: Option<Arc<[AnyLimit]>>,
}

/// Those of a line who were called and have not looked yet: until then their turns can be given back.
#[derive(Default)]
struct Unseen {
    seats: Vec<(SeatId, Decision, Time)>,
    /// What each has charged.
    charges: Vec<Charges>,
}

/// The book, open.
pub(super) struct Desk<'a> {
    book: MutexGuard<'a, Book>,
    lines: &'a Arc<Lines>,
    host: &'a dyn Host,
    now: OnceCell<Time>,
    wake: Vec<Waker>,
    /// Wakers are theirs who made them, and so is what dropping one does.
    drop: Option<Waker>,
}

/// A key's limits, and its states when they are asked for.
struct KeyNow<'a> {
    store: &'a dyn QueueStore,
    key: Fingerprint,
    now: Time,
    limits: OnceCell<Arc<[AnyLimit]>>,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        book: MutexGuard<'a, Book>,
        lines: &'a Arc<Lines>,
        host: &'a dyn Host,
        now: Option<Time>,
    ) -> Desk<'a> {
        let now = now.map_or_else(OnceCell::new, OnceCell::from);
        Desk { book, lines, host, now, wake: Vec::new(), drop: None }
    }

    fn now(&self) -> Time {
        *self.now.get_or_init(|| self.host.clock().now())
    }

    /// Closes the book, then wakes whom it called and has the clock ring for the next.
    pub(super) fn close(self) {
        let Desk { mut book, lines, host, wake, .. } = self;
        let next = book.due.first().map(|(time, _)| *time);
        let ring_at = book.alarms.arm(next);
        drop(book);
        if let Some(time) = ring_at {
            host.clock().ring_at(time, lines.alarm(time));
        }
        wake_all(wake);
    }

    pub(super) fn join(&mut self, waiter: &Waiter, waker: Waker) -> Joined {
        let Waiter { key, scope, cost, until, priority } = *waiter;
        let (store, now) = (self.host.store(), self.now());
        if let Some(until) = until.filter(|until| *until < now) {
            let denial = store.peek(key, now, cost).denied_for(now.since(until));
            store.count(key, &denial);
            return Joined::Refused(Denial::TooLong, denial);
        }
        if self.line(key).is_none_or(|line| line.line.is_empty()) {
            match store.try_admit(key, cost, self.now()) {
                Ok(decision) => return Joined::Taken(decision),
                Err(NotAdmitted::NoRoom(denial)) => return Joined::Refused(Denial::NoRoom, denial),
                Err(NotAdmitted::Wait) => {}
            }
        }
        let key_now = self.key_now(key);
        let Book { lines, seats, due, .. } = &mut *self.book;
        let line = lines.entry(id(key)).or_insert_with(|| KeyLine::new(key, scope));
        let other_limits = line.key != key;
        if other_limits || line.line.is_empty() {
            // A limiter of the same scope with other limits: the last one's hold. And while nobody waited others may have called.
            line.key = key;
            line.plan_anew();
        }
        if other_limits {
            store.adopt_limits(key, now);
        }
        let ask = Ask { cost, until, priority };
        let bounds = self.lines.bounds;
        let is_full = line.line.len() >= bounds.under_a_key || self.lines.waiting() >= bounds.in_all;
        // When the head has its turn there is a place, or when that of any other line has. If none is ever let wait, when it need
        // not.
        let place_at = line.turn.or_else(|| due.first().map(|(turn, _)| *turn));
        let place_at = place_at.filter(|_| bounds.under_a_key > 0);
        if let Some((denial, decision)) = line.refuses(&key_now, &ask, is_full, place_at) {
            self.forget_if_unused(key);
            store.count(key, &decision);
            return Joined::Refused(denial, decision);
        }
        let seat = seats.take();
        let overtakes = line.line.has_lower(priority);
        let ticket = line.line.join(ask, seat, &key_now, now);
        let is_head = line.line.head().is_some_and(|(head, _)| *head == seat);
        seats.put(seat, Seat::Waiting { key, ticket, waker });
        self.lines.one_more(key);
        if overtakes {
            self.refuse_the_late(&key_now);
        }
        if is_head || other_limits {
            self.forget_turn(key);
            self.go_on(key, now);
            self.forget_if_unused(key);
        }
        Joined::Seated(seat)
    }

    pub(super) fn look(&mut self, seat: SeatId, waker: &Waker) -> Option<Outcome> {
        if self.book.seats.waits(seat) && self.is_due() {
            // Whoever looks helps itself, should the clock not have rung.
            self.call_due();
        }
        if self.book.seats.waits(seat) {
            self.drop = self.book.seats.wake_by(seat, waker);
            return None;
        }
        match self.book.seats.give_up(seat) {
            Seat::Called { key, place } => {
                let ((_, decision, at), _) = self.one_less_called(key, place)?;
                self.after_one_less(key);
                Some(Outcome::Called(decision, at))
            }
            Seat::Refused(told) => {
                let (denial, decision, at) = *told;
                Some(Outcome::Refused(denial, decision, at))
            }
            Seat::Free | Seat::Waiting { .. } => None,
        }
    }

    pub(super) fn leave(&mut self, seat: SeatId) {
        match self.book.seats.give_up(seat) {
            Seat::Free | Seat::Refused(_) => {}
            Seat::Called { key, place } => {
                let now = self.now();
                let Some((_, charges)) = self.one_less_called(key, place) else { return };
                if let Some(line) = self.book.lines.get_mut(&id(key)) {
                    // What those who were called after it have charged lies on top of it, and those behind may have their turns
                    // sooner. The key is judged by the limits of now.
                    if !charges.each().is_empty() {
                        self.host.store().roll_back(line.key, now, &charges, &mut line.called.charges);
                    }
                    line.plan_anew();
                }
                self.forget_turn(key);
                self.after_one_less(key);
            }
            Seat::Waiting { key, ticket, waker } => {
                self.drop = Some(waker);
                let Some(line) = self.book.lines.get_mut(&id(key)) else { return };
                let was_head = line.line.head().is_some_and(|(head, _)| *head == seat);
                let left = line.line.leave(ticket).is_some();
                self.lines.fewer(key, usize::from(left));
                if was_head {
                    self.forget_turn(key);
                    self.go_on(key, self.now());
                }
                self.forget_if_unused(key);
            }
        }
    }

    pub(super) fn denial(&mut self, key: Fingerprint, cost: u32, told_at: Time) -> Option<Decision> {
        let key = self.line(key).filter(|line| !line.line.is_empty())?.key;
        let key_now = self.key_now(key);
        let line = self.book.lines.get_mut(&id(key))?;
        line.planned_with(&key_now).denial(&key_now, cost, told_at)
    }

    /// What these lines had planned no longer holds.
    pub(super) fn plan_anew(&mut self, which: impl Fn(&KeyLine) -> bool, tag: Option<u16>) {
        let lines = self.book.lines.values_mut().filter(|line| which(line));
        let keys: Vec<Fingerprint> = lines
            .map(|line| {
                line.plan_anew();
                // Somebody else has changed what the key has used, so that those who were called no longer know what of it is
                // theirs: they keep it whatever happens.
                line.called.charges.fill(Charges::None);
                line.key = tag.map_or(line.key, |tag| line.key.with_tag(tag));
                line.key
            })
            .collect();
        for key in keys {
            self.forget_turn(key);
            if tag.is_some() {
                // From now on it leaks at the new rate.
                self.host.store().adopt_limits(key, self.now());
            }
            self.refuse_the_late(&self.key_now(key));
            self.go_on(key, self.now());
            self.forget_if_unused(key);
        }
    }

    /// The alarm for a time rings.
    pub(super) fn ring(&mut self, at: Time) {
        self.book.alarms.disarm(at);
        self.call_due();
    }

    fn is_due(&self) -> bool {
        self.book.due.first().is_some_and(|(turn, _)| *turn <= self.now())
    }

    /// Calls everybody whose turn has come.
    fn call_due(&mut self) {
        while let Some(first) = self.book.due.first().copied().filter(|(turn, _)| *turn <= self.now()) {
            self.book.due.remove(&first);
            let (_, key) = first;
            self.go_on(key, self.now());
            self.forget_if_unused(key);
        }
    }

    /// Calls those of a line whose turn has come. If the head's turn is not known, it is not before `from`.
    fn go_on(&mut self, key: Fingerprint, mut from: Time) {
        let (store, now) = (self.host.store(), self.now());
        // How often somebody who does not wait was faster. That ends, but not while the lock is held.
        let mut in_vain = 0;
        while let Some(line) = self.book.lines.get_mut(&id(key))
            && let Some((&seat, &Ask { cost, until, .. })) = line.line.head()
        {
            let key = line.key;
            let Some(turn) = line.turn.take().or_else(|| store.admissible_at(key, now, from, cost)) else {
                line.line.call();
                line.plan_anew();
                self.lines.fewer(key, 1);
                self.refuse(key, seat, Denial::Never, store.peek(key, now, cost).denied_forever());
                continue;
            };
            if turn > now {
                line.turn = Some(turn);
                self.book.due.insert((turn, id(key)));
                return;
            }
            if line.called.seats.len() >= UNSEEN_MAX {
                // It goes on when one of those has looked, later than was planned.
                line.plan_anew();
                return;
            }
            let at = turn.max(now.before(MADE_UP_MAX));
            if let Some(until) = until.filter(|until| *until < at) {
                // The machine slept, or the clock was set.
                line.line.call();
                line.plan_anew();
                self.lines.fewer(key, 1);
                self.refuse(key, seat, Denial::TooLong, store.peek(key, now, 0).denied_for(at.since(until)));
                continue;
            }
            match store.charge_head(key, at, cost, line.line.second().map(|ask| ask.cost)) {
                HeadCharge::Charged { decision, charges, next } => {
                    line.line.call();
                    if at > turn {
                        line.plan_anew();
                    }
                    line.turn = next;
                    let place = line.called.seats.len();
                    line.called.seats.push((seat, decision, now));
                    line.called.charges.push(charges);
                    self.lines.one_called();
                    self.tell(seat, Seat::Called { key, place });
                    from = at;
                }
                HeadCharge::NoRoom(denial) => {
                    line.line.call();
                    line.plan_anew();
                    self.lines.fewer(key, 1);
                    self.refuse(key, seat, Denial::NoRoom, denial);
                }
                HeadCharge::NotYet => {
                    line.plan_anew();
                    in_vain += 1;
                    from = if in_vain < 3 { now } else { now.after(TICK) };
                    self.refuse_the_late(&self.key_now(key));
                }
            }
        }
    }

    /// Refuses those who cannot have their turn in time any more.
    fn refuse_the_late(&mut self, key_now: &KeyNow<'_>) {
        let (store, key, now) = (self.host.store(), key_now.key, self.now());
        let Some(line) = self.book.lines.get_mut(&id(key)) else { return };
        let late = line.planned_with(key_now).too_late(now, key_now);
        self.lines.fewer(key, late.len());
        for (seat, by) in late {
            let standing = store.peek(key, now, 0);
            match by {
                Some(by) => self.refuse(key, seat, Denial::TooLong, standing.denied_for(by)),
                None => self.refuse(key, seat, Denial::Never, standing.denied_forever()),
            }
        }
    }

    fn refuse(&mut self, key: Fingerprint, seat: SeatId, denial: Denial, decision: Decision) {
        let now = self.now();
        self.host.store().count(key, &decision);
        self.tell(seat, Seat::Refused(Box::new((denial, decision, now))));
    }

    /// Tells somebody who waits what has come of it.
    fn tell(&mut self, seat: SeatId, told: Seat) {
        if let Seat::Waiting { waker, .. } = self.book.seats.put(seat, told) {
            self.wake.push(waker);
        }
    }

    /// One that was called has looked, or is gone: what it was told, and what it has charged.
    fn one_less_called(
        &mut self,
        key: Fingerprint,
        place: usize,
    ) -> Option<((SeatId, Decision, Time), Charges)> {
        let Book { lines, seats, .. } = &mut *self.book;
        let Unseen { seats: called, charges } = &mut lines.get_mut(&id(key))?.called;
        let told = (called.swap_remove(place), charges.swap_remove(place));
        // The last one has taken its place.
        if let Some((moved, ..)) = called.get(place) {
            seats.put(*moved, Seat::Called { key, place });
        }
        self.lines.one_less_called(key);
        Some(told)
    }

    /// There is room for another to be called, or there is nobody left.
    fn after_one_less(&mut self, key: Fingerprint) {
        let Some(line) = self.line(key).filter(|line| line.turn.is_none()) else { return };
        if !line.line.is_empty() {
            self.go_on(key, self.now());
        }
        self.forget_if_unused(key);
    }

    fn forget_turn(&mut self, key: Fingerprint) {
        let turn = self.book.lines.get_mut(&id(key)).and_then(|line| line.turn.take());
        if let Some(turn) = turn {
            self.book.due.remove(&(turn, id(key)));
        }
    }

    fn forget_if_unused(&mut self, key: Fingerprint) {
        if self.line(key).is_some_and(|line| line.line.is_empty() && line.called.seats.is_empty()) {
            self.forget_turn(key);
            self.book.lines.remove(&id(key));
        }
    }

    fn line(&self, key: Fingerprint) -> Option<&KeyLine> {
        self.book.lines.get(&id(key))
    }

    fn key_now(&self, key: Fingerprint) -> KeyNow<'a> {
        KeyNow { store: self.host.store(), key, now: self.now(), limits: OnceCell::new() }
    }
}

impl Book {
    /// The clock will not ring at a time. How to wake everybody.
    pub(super) fn alarm_is_lost(&mut self, at: Time) -> Vec<Waker> {
        self.alarms.disarm(at);
        self.seats.wakers()
    }
}

impl KeyLine {
    fn new(key: Fingerprint, scope: Option<Fingerprint>) -> KeyLine {
        KeyLine {
            line: Line::default(),
            key,
            scope,
            turn: None,
            called: Unseen::default(),
            fits: 0,
            limits: None,
        }
    }

    /// The line, planned with these limits: they may have changed a moment ago.
    fn planned_with(&mut self, key: &KeyNow<'_>) -> &mut Line<AnyLimit, SeatId> {
        let limits = key.all_limits();
        if !self.limits.as_ref().is_some_and(|known| Arc::ptr_eq(known, limits)) {
            self.plan_anew();
            self.limits = Some(Arc::clone(limits));
        }
        &mut self.line
    }

    /// What was planned no longer holds.
    fn plan_anew(&mut self) {
        self.line.plan_anew();
        self.fits = 0;
    }

    pub(super) fn is_of(&self, key: Fingerprint) -> bool {
        self.key.is(key)
    }

    pub(super) fn is_in(&self, scope: Option<Fingerprint>) -> bool {
        self.scope == scope
    }

    /// Why somebody cannot join, if so, and when it is worth asking again. If the line is full, there is a place at `place_at`, as far
    /// as known.
    fn refuses(
        &mut self,
        key: &KeyNow<'_>,
        ask: &Ask,
        is_full: bool,
        place_at: Option<Time>,
    ) -> Option<(Denial, Decision)> {
        let (now, cost) = (key.now, ask.cost);
        let by_itself = || key.store.peek(key.key, now, cost);
        if cost > self.fits {
            let by_itself = by_itself();
            if by_itself.retry_after() == Some(RetryAfter::Never) {
                return Some((Denial::Never, by_itself));
            }
            self.fits = if paces(key.limits()) { 0 } else { cost };
        }
        if is_full {
            let until_allowed = || match by_itself().retry_after() {
                Some(RetryAfter::After(wait)) => wait,
                _ => TICK,
            };
            let wait = place_at.map_or_else(until_allowed, |at| at.since(now)).max(TICK);
            return Some((Denial::QueueFull, self.denial(key, cost).denied_for(wait)));
        }
        if cost > self.fits
            && let Err(wait) = self.planned_with(key).room_for(now, ask, key)
        {
            let wait = wait.or(self.turn.map(|turn| turn.since(now))).unwrap_or(TICK).max(TICK);
            return Some((Denial::QueueFull, self.denial(key, cost).denied_for(wait)));
        }
        let until = ask.until?;
        match self.planned_with(key).turn_of(now, ask, key) {
            Some(turn) if turn <= until => None,
            Some(turn) => Some((Denial::TooLong, self.denial(key, cost).denied_for(turn.since(until)))),
            None => Some((Denial::Never, by_itself().denied_forever())),
        }
    }

    /// How a call stands that does not wait.
    fn denial(&mut self, key: &KeyNow<'_>, cost: u32) -> Decision {
        let denial = self.planned_with(key).denial(key, cost, key.now);
        denial.unwrap_or_else(|| key.store.peek(key.key, key.now, cost))
    }
}

impl KeyNow<'_> {
    fn all_limits(&self) -> &Arc<[AnyLimit]> {
        self.limits.get_or_init(|| self.store.limits_of(self.key))
    }
}

impl Now<AnyLimit> for KeyNow<'_> {
    fn limits(&self) -> &[AnyLimit] {
        self.all_limits()
    }

    fn states(&self) -> Vec<AnyState> {
        let mut states = self.store.states_of(self.key, self.now);
        // If the limits have changed in between, the line is going to be planned anew.
        states.resize_with(self.limits().len(), AnyState::default);
        states
    }

    fn now(&self) -> Time {
        self.now
    }
}

/// The key, whichever limits are to judge it.
fn id(key: Fingerprint) -> Fingerprint {
    key.with_tag(0)
}
