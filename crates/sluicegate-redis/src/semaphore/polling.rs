//! How often waiters poll the store: within a budget, so that the store has time for other calls.
//!
//! All waiters of a process share [`POLLS_PER_SECOND_MAX`] polls per second. One half is for the
//! heads: the first waiter of each key in this process, which discovers a permit that another
//! process released. The other half is for the waiters behind them. These poll only to keep their
//! entries in the store's queue alive, since a waiter that moves up is woken. While there are few
//! waiters of a kind, each polls as often as is useful.
//!
//! ```text
//! share      with n waiters of a kind, each polls every n ms ± 50 % jitter: about 1000 polls/s
//! interval   a head: 1, 2, 5, 10, 20 ms, or 2 ms per waiter ahead of it; others: 500 ms;
//!            never less than the share
//! ttl        of an entry in the store's queue: 3 * (longest interval + deadline), so that it
//!            outlasts two lost polls; from WAITER_TTL to WAITER_TTL_MAX
//! ```
//!
//! With [`WAITERS_MAX`] waiters, each for its own key, the share is 10 s, and an entry lives for 45
//! s plus three deadlines.

use std::time::Duration;

/// How many times per second all waiters of a process poll a store, on average. A Redis server
/// answers about 40,000 such calls per second, so that even twenty processes with as many waiters
/// as allowed leave it time for other calls. A waiter's first call, and the poll after a release in
/// this process, come on top.
pub const POLLS_PER_SECOND_MAX: u32 = 2_000;
/// The most waiters per process for all leases in a store. It bounds the poll intervals, and so how
/// long a dead waiter can hold up its queue.
pub const WAITERS_MAX: usize = 10_000;
/// How long a waiter stays in the store's queue without polling, at least. A process that has died
/// holds up the waiters behind it for this long.
pub const WAITER_TTL: Duration = Duration::from_secs(2);
/// How long a waiter stays in the store's queue without polling, at most: waiters poll rarely if
/// there are very many in a process, or if the deadline is long.
pub const WAITER_TTL_MAX: Duration = Duration::from_secs(60);

/// By how much each waiter lengthens the interval of its kind: half of the budget is for each kind.
const INTERVAL_PER_WAITER: Duration = Duration::from_micros(2_000_000 / POLLS_PER_SECOND_MAX as u64);
/// The successive poll intervals of a head; the last one repeats.
const BACKOFF: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
];
/// How much longer a head waits per waiter ahead of it, in another process.
const BACKOFF_PER_WAITER_AHEAD: Duration = Duration::from_millis(2);
/// The longest interval while there are few waiters.
const INTERVAL_MAX: Duration = Duration::from_millis(500);
/// How many polls fit into the ttl of a queue entry.
const POLLS_PER_TTL: u32 = 3;

/// How often a waiter may poll until its next poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollRate {
    /// Whether it is the first waiter for its key in this process.
    is_head: bool,
    share: Duration,
}

impl PollRate {
    /// The rate of one of `waiters` waiters of its kind.
    pub(super) fn new(is_head: bool, waiters: usize) -> PollRate {
        let waiters = u32::try_from(waiters).unwrap_or(u32::MAX);
        PollRate { is_head, share: INTERVAL_PER_WAITER.saturating_mul(waiters) }
    }

    /// The longest time until the next poll.
    pub(super) fn interval_max(&self) -> Duration {
        INTERVAL_MAX.max(self.share + self.share / 2)
    }

    /// How long the waiter's queue entry must live if its next poll may take as long as the
    /// deadline.
    pub(super) fn waiter_ttl(&self, deadline: Duration) -> Duration {
        let ttl = self.interval_max().saturating_add(deadline).saturating_mul(POLLS_PER_TTL);
        ttl.clamp(WAITER_TTL, WAITER_TTL_MAX)
    }

    /// Returns `wanted`, or a longer interval if there are too many waiters, with jitter.
    pub(super) fn interval(&self, wanted: Duration) -> Duration {
        let random = fastrand::f64();
        // The share holds on average, and waiters that arrived together spread over all of it.
        wanted.mul_f64(0.5 + random / 2.0).max(self.share.mul_f64(0.5 + random))
    }
}

/// The successive poll intervals of one waiter.
#[derive(Default)]
pub(super) struct PollBackoff {
    polls: usize,
    ahead: Option<u64>,
}

impl PollBackoff {
    /// The next interval, with `ahead` waiters ahead of it. A waiter that has moved up starts over.
    pub(super) fn next(&mut self, ahead: u64, rate: PollRate) -> Duration {
        if self.ahead.replace(ahead) != Some(ahead) {
            self.polls = 0;
        }
        if !rate.is_head {
            return rate.interval(INTERVAL_MAX);
        }
        let own = BACKOFF.get(self.polls).or(BACKOFF.last()).copied().unwrap_or(INTERVAL_MAX);
        self.polls += 1;
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        rate.interval(BACKOFF_PER_WAITER_AHEAD.saturating_mul(ahead).max(own).min(INTERVAL_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waiters_further_back_poll_less_often() {
        let (mut backoff, alone) = (PollBackoff::default(), PollRate::new(true, 1));
        for wanted in BACKOFF.into_iter().chain([20 * MS; 3]) {
            let slept = backoff.next(0, alone);
            assert!(slept <= wanted.max(3 * MS / 2) && slept >= wanted / 2, "{slept:?}, {wanted:?}");
        }
        for (ahead, most) in [(1, 2), (20, 40), (100, 200), (u64::MAX, 500)] {
            let slept = backoff.next(ahead, alone);
            assert!(slept <= most * MS && slept >= most * MS / 2, "{ahead}: {slept:?}");
        }
        assert!(backoff.next(0, alone) < 2 * MS, "a waiter that has moved up starts over");
        let behind = backoff.next(0, PollRate::new(false, 1));
        assert!(behind >= INTERVAL_MAX / 2 && behind <= INTERVAL_MAX, "behind a head: {behind:?}");
    }

    #[test]
    fn any_number_of_waiters_polls_within_the_budget() {
        for (heads, others) in [(1, 1_023), (100, 0), (2_000, 0), (10_000, 0), (5_000, 5_000), (1, 9_999)] {
            // Polls per second of one waiter, over many intervals.
            let polls = |rate: PollRate| {
                let mut backoff = PollBackoff::default();
                let slept: Duration = (0..2_000).map(|_| backoff.next(0, rate)).sum();
                2_000.0 / slept.as_secs_f64()
            };
            let polls_of = |is_head, waiters: u32| {
                f64::from(waiters) * polls(PollRate::new(is_head, usize::try_from(waiters).unwrap()))
            };
            let all = polls_of(true, heads) + if others > 0 { polls_of(false, others) } else { 0.0 };
            assert!(all < 1.05 * f64::from(POLLS_PER_SECOND_MAX), "{heads}, {others}: {all}");
        }
    }

    #[test]
    fn a_queue_entry_outlasts_two_lost_polls() {
        for deadline in [50 * MS, 1_000 * MS, 4_000 * MS] {
            for (is_head, waiters) in [
                (true, 1),
                (false, 1),
                (true, 400),
                (false, 3_000),
                (true, WAITERS_MAX),
                (false, WAITERS_MAX),
            ] {
                let rate = PollRate::new(is_head, waiters);
                let mut backoff = PollBackoff::default();
                // Two polls are lost; the reply to the third arrives before the entry expires.
                let longest = (0..1_000).map(|_| backoff.next(1_000, rate)).max().unwrap();
                let ttl = rate.waiter_ttl(deadline);
                assert!(ttl >= 3 * (longest + deadline), "{waiters}, {deadline:?}: {ttl:?}, {longest:?}");
                assert!((WAITER_TTL..=WAITER_TTL_MAX).contains(&ttl), "{ttl:?}");
            }
        }
        assert_eq!(PollRate::new(true, 100).waiter_ttl(50 * MS), WAITER_TTL);
        assert_eq!(PollRate::new(true, WAITERS_MAX).waiter_ttl(50 * MS), Duration::from_millis(45_150));
        assert_eq!(PollRate::new(true, 1).waiter_ttl(Duration::MAX), WAITER_TTL_MAX);
    }
}
