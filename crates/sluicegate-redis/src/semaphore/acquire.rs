//! Waiting for a lease.
//!
//! A call that gets no permit enters the store's queue and polls until it is granted a lease;
//! `polling.rs` says how often. When a permit is released in this process, the head of the queue
//! polls at once.
//!
//! ```text
//! acquire ──▶ granted
//!  ▲      └── denied, n waiters ahead ──▶ sleep, longer if there are more waiters ┐
//!  └────────────────────────────────────────── or until a permit is released here ┘
//! ```

use super::Inner;
use super::grant::{denied, granted};
use super::lease::RedisLease;
use super::pending_lease::PendingLease;
use super::polling::PollBackoff;
use crate::fallback::RETRY_AFTER;
use sluicegate::backend::{Source, StoreFailure};
use sluicegate::semaphore::Grant;
use sluicegate::wait::Denial;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The entry in the store's queue that a denied call asks for.
#[derive(Clone, Copy)]
pub(super) struct QueueEntry {
    /// How long it lives unless the waiter polls again.
    pub(super) ttl: Duration,
    /// The most waiters per key.
    pub(super) max_queue: usize,
}

impl Inner {
    /// Waits for a lease until `until`.
    pub(super) async fn wait(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        until: Option<Instant>,
    ) -> Result<Grant<RedisLease>, StoreFailure> {
        let (limit, began) = (self.member.current_limit(key), Instant::now());
        if limit.needs_no_lease(cost) {
            return self.answer_without_lease(key, cost, limit, (None, began)).await;
        }
        let Some(mut waiter) = self.member.waiters().join(key, self.max_waiters) else {
            // No more waiters are allowed, but a permit may be free.
            let grant = self.acquire_now(key, cost, limit, None).await?;
            let would_wait = grant.denial() == Some(Denial::TooLong);
            return Ok(if would_wait { denied(Denial::QueueFull, grant.answer(), began) } else { grant });
        };
        let pending = PendingLease::new(self, key, cost);
        let mut backoff = PollBackoff::default();
        // When the first of the unanswered polls was sent.
        let mut silent_since = None;
        loop {
            // It may have changed since the last poll.
            let limit = self.member.current_limit(key);
            if limit.needs_no_lease(cost) {
                return self.answer_without_lease(key, cost, limit, (None, began)).await;
            }
            let (rate, sent) = (waiter.poll_rate(), Instant::now());
            let ttl = rate.waiter_ttl(self.store.inner.settings.deadline);
            let entry = QueueEntry { ttl, max_queue: self.max_queue };
            let round_trip = self.store.inner.poll();
            let reply = self.send_acquire(round_trip, key, (pending.id(), cost), Some(entry), limit, None);
            let (denial, next_poll) = match reply.await {
                Ok(decided) if decided.is_granted => {
                    return Ok(granted(decided.answer(), Some(pending.granted(&decided, sent)), began));
                }
                Ok(decided) if decided.is_queue_full => {
                    pending.disarm();
                    return Ok(denied(Denial::QueueFull, decided.answer(), began));
                }
                Ok(decided) => {
                    silent_since = None;
                    waiter.set_sequence(decided.sequence);
                    // It may have become the head just now, but its entry lives as long as was
                    // sent.
                    let interval = backoff.next(decided.ahead, waiter.poll_rate()).min(rate.interval_max());
                    (Some(decided.answer()), Instant::now() + interval)
                }
                // The next poll has the same lease id, so a lease granted meanwhile is not granted
                // twice.
                Err(failure)
                    if failure.may_have_charged()
                        && silent_since.get_or_insert(sent).elapsed() < ttl
                        && until.is_none_or(|until| Instant::now() < until) =>
                {
                    (None, Instant::now() + backoff.next(0, rate))
                }
                Err(failure) => {
                    let grant = self.fallback_grant(failure, key, cost, began)?;
                    if grant.allowed() {
                        return Ok(grant);
                    }
                    // Memory is polled as often as the store would be.
                    let interval = match grant.source() {
                        Source::Local => backoff.next(0, rate),
                        _ => rate.interval(RETRY_AFTER.into()),
                    };
                    (Some(grant.answer()), Instant::now() + interval)
                }
            };
            if let (Some(answer), Some(until)) = (denial, until)
                && Instant::now() >= until
            {
                return Ok(denied(Denial::TooLong, answer, began));
            }
            // The last poll is at the deadline itself.
            let wakes = until.map_or(next_poll, |until| until.min(next_poll));
            tokio::select! {
                () = sleep_until(wakes) => {}
                () = waiter.woken() => {}
            }
        }
    }
}
