//! Asking the store: one trip a verb, and another one only when the first was spent on clearing away what had lapsed.

use super::Inner;
use super::id::StoreId;
use super::pace::TICKET_LIFE_MAX;
use super::scope::Numbers;
use super::told::{Done, Reply, Told};
use super::wait::Ticket;
use crate::failure::StoreFailure;
use crate::limiter::{add_time, not_understood, unreadable};
use crate::script::Trip;
use crate::scripts;
use sluicegate::core::concurrency::LOOKED_AT_MAX;
use sluicegate::{Span, Time};
use tokio::time::Instant;

/// Every whole number below this is exact in a script.
const EXACT: u64 = 1 << 53;

impl Inner {
    /// Takes a lease, or a ticket if that is wanted.
    pub(super) async fn ask_acquire(
        &self,
        key: &[u8],
        (id, cost): (&StoreId, u32),
        ticket: Option<Ticket>,
        numbers: Numbers,
        now: Option<Time>,
    ) -> Result<Told, StoreFailure> {
        let mut trip = Trip::new(&scripts::ACQUIRE, &self.names.of_semaphore(key));
        add_time(&mut trip, now);
        trip.arg(&id.to_bytes()[..]).arg(cost).arg(numbers.rule.count()).arg(numbers.ttl.as_micros());
        trip.arg(LOOKED_AT_MAX).arg(Span::from(TICKET_LIFE_MAX).as_micros());
        if let Some(Ticket { life, max_line }) = ticket {
            trip.arg(Span::from(life).as_micros()).arg(max_line);
        }
        numbers.decided(&self.ask(&trip, numbers, now).await?, cost, true)
    }

    pub(super) async fn ask_peek(
        &self,
        key: &[u8],
        cost: u32,
        numbers: Numbers,
        now: Option<Time>,
    ) -> Result<Told, StoreFailure> {
        let mut trip = Trip::new(&scripts::PEEK, &self.names.of_semaphore(key));
        add_time(&mut trip, now);
        trip.arg(cost).arg(numbers.rule.count());
        trip.arg(LOOKED_AT_MAX).arg(Span::from(TICKET_LIFE_MAX).as_micros());
        numbers.decided(&self.ask(&trip, numbers, now).await?, cost, false)
    }

    /// Whether it was live, and the store's time.
    pub(super) async fn ask_renew(
        &self,
        key: &[u8],
        id: &StoreId,
        numbers: Numbers,
        now: Option<Time>,
    ) -> Result<(bool, Time), StoreFailure> {
        let [leases, costs, ..] = self.names.of_semaphore(key);
        let mut trip = Trip::new(&scripts::RENEW, &[leases, costs]);
        add_time(&mut trip, now);
        trip.arg(&id.to_bytes()[..]).arg(numbers.ttl.as_micros());
        self.ask(&trip, numbers, now).await?.yes().ok_or_else(not_understood)
    }

    /// Whether it was live. Of one who may stand in line as well, its cost.
    pub(super) async fn ask_release(
        &self,
        key: &[u8],
        id: &StoreId,
        in_line: Option<u32>,
        now: Option<Time>,
    ) -> Result<bool, StoreFailure> {
        let mut trip = Trip::new(&scripts::RELEASE, &self.names.of_semaphore(key));
        add_time(&mut trip, now);
        trip.arg(&id.to_bytes()[..]);
        match in_line {
            Some(cost) => trip.arg(cost),
            None => trip.arg(""),
        };
        Ok(self.ask(&trip, self.member.numbers(), now).await?.yes().ok_or_else(not_understood)?.0)
    }

    pub(super) async fn ask_reset(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        let trips: Vec<Trip> = keys
            .iter()
            .map(|key| {
                let [leases, costs, ..] = self.names.of_semaphore(key);
                let mut trip = Trip::new(&scripts::RESET, &[leases, costs]);
                add_time(&mut trip, None);
                trip
            })
            .collect();
        let answers = self.store.inner.go_each(&trips, self.until()).await;
        answers.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    /// Makes a trip, and again while all it did was to clear away leases that had lapsed.
    async fn ask(&self, trip: &Trip, numbers: Numbers, now: Option<Time>) -> Result<Done, StoreFailure> {
        numbers.bounded(now)?;
        let until = self.until();
        loop {
            let value = self.store.inner.go(trip, until).await?;
            match Reply::read(&value).ok_or_else(not_understood)? {
                Reply::Done(done) => return Ok(done),
                // Each time there are fewer, and the deadline is the same.
                Reply::More => {}
                Reply::NotOurs => return Err(unreadable()),
            }
        }
    }

    fn until(&self) -> Instant {
        Instant::now() + self.store.inner.settings.deadline
    }
}

impl Numbers {
    /// An error for a time beyond what the scripts can reckon with.
    fn bounded(&self, now: Option<Time>) -> Result<(), StoreFailure> {
        let latest = EXACT - 1 - self.ttl.as_micros();
        match now {
            Some(now) if now.as_micros() > latest => Err(StoreFailure::Refused(format!(
                "the time {} is too late for it, whose scripts reckon in 53 bits; use at most {latest} with this limit, or the semaphore in memory",
                now.as_micros(),
            ))),
            _ => Ok(()),
        }
    }
}
