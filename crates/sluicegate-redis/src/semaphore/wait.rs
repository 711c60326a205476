//! Waiting for a place.
//!
//! In plain words: whoever is not given a place at once has a ticket in the store from then on, and asks again and again until its turn has
//! come: how often, says `pace.rs`. When a place is returned in this process, the first who waits here asks at once.
//!
//! ```text
//! ask ──▶ taken ──▶ act
//!  ▲  └── denied, n before ──▶ sleep, the longer the more wait ┐
//!  └──────────────────────────── or until a place is returned ─┘
//! ```

use super::Inner;
use super::claim::Claim;
use super::grant::{granted, refused};
use super::lease::RedisLease;
use super::pace::Pauses;
use crate::fallback::RETRY_AFTER;
use sluicegate::backend::{Source, StoreFailure};
use sluicegate::semaphore::Grant;
use sluicegate::wait::Denial;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What one who waits asks for beside its lease.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    /// How long it is good unless it asks again.
    pub(super) life: Duration,
    /// The most that may stand in line under the key.
    pub(super) max_queue: usize,
}

impl Inner {
    /// A lease, after waiting for it.
    pub(super) async fn wait(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        until: Option<Instant>,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        let (numbers, began) = (self.member.newest(key), Instant::now());
        if numbers.need_no_lease(cost) {
            return self.answer_without_lease(key, cost, numbers, (None, began)).await;
        }
        let Some(mut waiter) = self.member.waiters().join(key, self.max_waiters) else {
            // The queue is full, but a permit may be free.
            let grant = self.acquire_now(key, cost, numbers, None).await?;
            let would_wait = grant.denial() == Some(Denial::TooLong);
            return Ok(if would_wait { refused(Denial::QueueFull, grant.answer(), began) } else { grant });
        };
        let claim = Claim::new(self, key, cost);
        let mut pauses = Pauses::default();
        // Since when no answer has come.
        let mut silent_since = None;
        loop {
            // They may have changed since it last asked.
            let numbers = self.member.newest(key);
            if numbers.need_no_lease(cost) {
                return self.answer_without_lease(key, cost, numbers, (None, began)).await;
            }
            let (pace, asked) = (waiter.pace(), Instant::now());
            let ticket_life = pace.ticket_life(self.store.inner.settings.deadline);
            let ticket = Ticket { life: ticket_life, max_queue: self.max_queue };
            let (denied, sleeps_until) =
                match self.ask_acquire(key, (claim.id(), cost), Some(ticket), numbers, None).await {
                    Ok(decided) if decided.is_taken => {
                        return Ok(granted(decided.answer(), Some(claim.held(&decided, asked)), began));
                    }
                    Ok(decided) if decided.is_full => {
                        claim.nothing_taken();
                        return Ok(refused(Denial::QueueFull, decided.answer(), began));
                    }
                    Ok(decided) => {
                        silent_since = None;
                        waiter.has_ticket(decided.ticket);
                        // It may be the first here only since then; but its ticket is good for as long as was said.
                        let pause = pauses.next(decided.place, waiter.pace()).min(pace.longest());
                        (Some(decided.answer()), Instant::now() + pause)
                    }
                    // The ticket is the same, so that what was given meanwhile is not given twice.
                    Err(failure)
                        if failure.may_have_charged()
                            && silent_since.get_or_insert(asked).elapsed() < ticket_life
                            && until.is_none_or(|until| Instant::now() < until) =>
                    {
                        (None, Instant::now() + pauses.next(0, pace))
                    }
                    Err(failure) => {
                        let grant = self.grant_without(failure, key, cost, began)?;
                        if grant.allowed() {
                            return Ok(grant);
                        }
                        // Memory is asked as often as the store would be.
                        let pause = match grant.source() {
                            Source::Local => pauses.next(0, pace),
                            _ => pace.at_least(RETRY_AFTER.into()),
                        };
                        (Some(grant.answer()), Instant::now() + pause)
                    }
                };
            if let (Some(denied), Some(until)) = (denied, until)
                && Instant::now() >= until
            {
                return Ok(refused(Denial::TooLong, denied, began));
            }
            // Who has no time left asks once more, at the very end.
            let wakes = until.map_or(sleeps_until, |until| until.min(sleeps_until));
            tokio::select! {
                () = sleep_until(wakes) => {}
                () = waiter.woken() => {}
            }
        }
    }
}
