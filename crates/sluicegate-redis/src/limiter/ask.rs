//! Asking the store: one trip a decision, and another one only when the first has changed nothing.

use super::{Inner, Shape, not_understood, same, unreachable_verb, unreadable};
use crate::failure::StoreFailure;
use crate::receipt::Receipt;
use crate::reply::Reply;
use crate::script::Trip;
use crate::scripts;
use redis::Value;
use sluicegate::core::AnyState;
use sluicegate::core::bounds::CENTURY;
use sluicegate::core::receipts::{Ask, Receipt as Name, Receipts as Kept};
use sluicegate::core::several::check_within_list;
use sluicegate::{Decision, Span, Time};
use tokio::time::Instant;

/// So often a trip is made anew that came back without having done anything: for the windows of a calendar, and for states in
/// other numbers, which somebody else may be changing back and forth.
pub(super) const TRIPS_MAX: usize = 8;

impl Inner {
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.store.inner.settings.deadline
    }

    pub(super) async fn ask_check(
        &self,
        key: &[u8],
        cost: u32,
        now: Option<Time>,
    ) -> Result<Decision, StoreFailure> {
        let reply = self.ask(key, now, || self.check_trip(key, cost, now)).await?;
        self.decided(reply, cost)
    }

    pub(super) fn check_trip(&self, key: &[u8], cost: u32, now: Option<Time>) -> Trip {
        match self.shapes.as_slice() {
            // What costs nothing is always allowed and changes nothing.
            _ if cost == 0 => self.read_trip(key, 0, now),
            [shape] => self.alone_trip(shape, key, cost, Span::ZERO, now),
            _ => self.verb_trip("check", key, cost, Receipts::Untouched, 0, now),
        }
    }

    /// A check under the only limit.
    fn alone_trip(&self, shape: &Shape, key: &[u8], cost: u32, max_wait: Span, now: Option<Time>) -> Trip {
        let mut trip = Trip::new(shape.check(), &[self.names.state(0, shape.letter, key)]);
        add_time(&mut trip, now);
        shape.add_check(&mut trip, cost, max_wait, now);
        trip
    }

    /// Charges now, to act within the longest wait.
    pub(super) async fn ask_within(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
        now: Option<Time>,
    ) -> Result<Decision, StoreFailure> {
        let longest = max_wait.min(CENTURY);
        let trip = || match self.shapes.as_slice() {
            _ if cost == 0 => self.read_trip(key, 0, now),
            [shape] if shape.check_waits() => self.alone_trip(shape, key, cost, longest, now),
            _ => self.verb_trip("within", key, cost, Receipts::Untouched, longest.as_micros(), now),
        };
        let (yes, now, mut states) = self.done(self.ask(key, now, trip).await?)?;
        let decided = check_within_list(&self.made, &mut states, now, cost, max_wait);
        let decision = decided.unwrap_or_else(|_| unreachable_verb());
        same(yes, decision.allowed())?;
        Ok(decision)
    }

    /// How a key stands under each limit, as far as it matters to a call of this cost.
    pub(super) async fn ask_states(
        &self,
        key: &[u8],
        cost: u32,
        now: Option<Time>,
    ) -> Result<(Time, Vec<AnyState>), StoreFailure> {
        let trip = || self.read_trip(key, cost, now);
        let (_, now, states) = self.done(self.ask(key, now, trip).await?)?;
        Ok((now, states))
    }

    fn read_trip(&self, key: &[u8], cost: u32, now: Option<Time>) -> Trip {
        let mut trip = Trip::new(&scripts::READ, &self.states(key));
        add_time(&mut trip, now);
        for shape in &self.shapes {
            shape.add_block(&mut trip, cost, now);
        }
        trip
    }

    pub(super) async fn ask_take(
        &self,
        key: &[u8],
        up_to: u32,
        now: Option<Time>,
    ) -> Result<(bool, Time, Vec<AnyState>), StoreFailure> {
        self.done(self.ask(key, now, || self.take_trip(key, up_to, now)).await?)
    }

    pub(super) fn take_trip(&self, key: &[u8], up_to: u32, now: Option<Time>) -> Trip {
        self.verb_trip("take", key, up_to.min(1), Receipts::Untouched, up_to.into(), now)
    }

    /// How the key stands after the refund.
    pub(super) async fn ask_refund(
        &self,
        key: &[u8],
        cost: u32,
        now: Option<Time>,
    ) -> Result<(Time, Vec<AnyState>), StoreFailure> {
        let trip = || self.verb_trip("refund", key, 0, Receipts::All, cost.into(), now);
        let (_, now, states) = self.done(self.ask(key, now, trip).await?)?;
        Ok((now, states))
    }

    /// What a reservation came to; `None` if the key has too many open receipts. As `wait` the receipt is good only while its
    /// caller waits, and there is none if there is nothing to wait for.
    pub(super) async fn ask_reserve(
        &self,
        verb: &str,
        (key, cost, max_wait): (&[u8], u32, Span),
        receipt: &Receipt,
        now: Option<Time>,
    ) -> Result<Option<Decision>, StoreFailure> {
        let longest = max_wait.min(CENTURY).as_micros();
        let trip = || self.verb_trip(verb, key, cost, Receipts::One(receipt), longest, now);
        let (yes, now, mut states) = match self.ask(key, now, trip).await? {
            Reply::Full => return Ok(None),
            reply => self.done(reply)?,
        };
        let ask = Ask { cost, max_wait, receipt: Name(0) };
        let reserved = Kept::default().reserve(&self.made, &mut states, now, ask);
        let decision = reserved.unwrap_or_else(|_| unreachable_verb());
        same(yes, decision.allowed())?;
        Ok(Some(decision))
    }

    /// Forgets a receipt whose caller has acted.
    pub(super) async fn ask_forget(&self, receipt: &Receipt) -> Result<(), StoreFailure> {
        let mut trip = Trip::new(&scripts::FORGET, &[self.names.receipts(&receipt.key)]);
        add_time(&mut trip, None);
        trip.arg(&receipt.name[..]);
        self.store.inner.go(&trip, self.until()).await.map(|_| ())
    }

    /// Cancels or settles. A receipt of another scope is unknown here.
    pub(super) async fn ask_close(
        &self,
        receipt: &Receipt,
        verb: &str,
        used: u32,
        now: Option<Time>,
    ) -> Result<bool, StoreFailure> {
        if receipt.scope != self.scope {
            return Ok(false);
        }
        let _forgets = self.forgets(&receipt.key);
        let trip = || self.verb_trip(verb, &receipt.key, 0, Receipts::One(receipt), used.into(), now);
        match self.ask(&receipt.key, now, trip).await? {
            Reply::Done { yes, .. } => Ok(yes),
            _ => Err(not_understood()),
        }
    }

    pub(super) async fn ask_reset(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        let trips: Vec<Trip> = keys.iter().map(|key| self.reset_trip(key)).collect();
        let answers = self.store.inner.go_each(&trips, self.until()).await;
        answers.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    fn reset_trip(&self, key: &[u8]) -> Trip {
        let mut names = self.states(key);
        names.push(self.names.receipts(key));
        let mut trip = Trip::new(&scripts::RESET, &names);
        add_time(&mut trip, None);
        trip
    }

    pub(super) fn states(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let shapes = self.shapes.iter().enumerate();
        shapes.map(|(place, shape)| self.names.state(place, shape.letter, key)).collect()
    }

    fn verb_trip(
        &self,
        verb: &str,
        key: &[u8],
        cost: u32,
        receipts: Receipts<'_>,
        number: u64,
        now: Option<Time>,
    ) -> Trip {
        let mut names = self.states(key);
        if !matches!(receipts, Receipts::Untouched) {
            names.push(self.names.receipts(key));
        }
        let mut trip = Trip::new(&scripts::VERBS, &names);
        add_time(&mut trip, now);
        trip.arg(verb).arg(self.shapes.len()).arg(number);
        match receipts {
            Receipts::One(receipt) => trip.arg(&receipt.name[..]),
            Receipts::All | Receipts::Untouched => trip.arg(""),
        };
        trip.arg(&self.tags);
        for shape in &self.shapes {
            shape.add_block(&mut trip, cost, now);
        }
        trip
    }

    /// Makes a trip, and makes it anew while it comes back without having done anything.
    async fn ask(
        &self,
        key: &[u8],
        now: Option<Time>,
        trip: impl Fn() -> Trip,
    ) -> Result<Reply, StoreFailure> {
        self.bounded(now)?;
        let until = self.until();
        let first = self.store.inner.go(&trip(), until).await?;
        self.ask_on(key, now, first, trip, until).await
    }

    /// Goes on after the first trip.
    pub(super) async fn ask_on(
        &self,
        key: &[u8],
        now: Option<Time>,
        first: Value,
        trip: impl Fn() -> Trip,
        until: Instant,
    ) -> Result<Reply, StoreFailure> {
        let mut reply = Reply::read(first)?;
        for _ in 0..TRIPS_MAX {
            match reply {
                Reply::Ask { now } => {
                    for shape in &self.shapes {
                        shape.learn_windows(now);
                    }
                }
                Reply::Other { now: at, state, place } => {
                    self.replace(key, place, &state, at, now, until).await?;
                }
                reply => return Ok(reply),
            }
            reply = Reply::read(self.store.inner.go(&trip(), until).await?)?;
        }
        Err(keeps_changing())
    }

    /// Writes a state that is in other numbers in ours, unless somebody has changed it meanwhile.
    pub(super) async fn replace(
        &self,
        key: &[u8],
        place: usize,
        state: &[u8],
        now: Time,
        explicit: Option<Time>,
        until: Instant,
    ) -> Result<(), StoreFailure> {
        let shape = self.shapes.get(place).ok_or_else(unreadable)?;
        let (text, recovered) = shape.reread(state, now, self.keeps_time).ok_or_else(unreadable)?;
        let names = [self.names.state(place, shape.letter, key), self.names.receipts(key)];
        let mut trip = Trip::new(&scripts::REPLACE, &names);
        add_time(&mut trip, explicit);
        trip.arg(state).arg(text).arg(recovered);
        self.store.inner.go(&trip, until).await.map(|_| ())
    }

    /// An error for a time beyond what the scripts can reckon with.
    pub(super) fn bounded(&self, now: Option<Time>) -> Result<(), StoreFailure> {
        let latest = self.shapes.iter().map(|shape| shape.latest).min();
        match (now, latest) {
            (Some(now), Some(latest)) if now > latest => Err(StoreFailure::Refused(format!(
                "the time {} is too late for it, whose scripts reckon in 53 bits; use at most {} with this limit, or the store in memory",
                now.as_micros(),
                latest.as_micros()
            ))),
            _ => Ok(()),
        }
    }
}

/// Which receipts a verb has to do with.
#[derive(Clone, Copy)]
pub(super) enum Receipts<'a> {
    Untouched,
    All,
    One(&'a Receipt),
}

/// Nothing was done, again and again.
pub(super) fn keeps_changing() -> StoreFailure {
    StoreFailure::Refused(String::from(
        "the key's numbers keep changing; do processes use one scope with different limits?",
    ))
}

/// The caller's time, or none for the store's.
pub(crate) fn add_time(trip: &mut Trip, now: Option<Time>) {
    match now {
        Some(now) => trip.arg(now.as_micros()),
        None => trip.arg(""),
    };
}
