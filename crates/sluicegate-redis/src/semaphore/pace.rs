//! How often those who wait ask the store: however many they are, it has time for others.
//!
//! In plain words: all who wait in this process share [`POLLS_PER_SECOND_MAX`] askings. One half is for those who are the first here under
//! their key, as it is they who find a place that another process has returned. The other half is for all who stand behind one of those: they
//! ask only to keep their tickets, as whoever moves up here is woken. With few of a kind, each asks as often as is of use.
//!
//! ```text
//! share   of n of a kind each sleeps n ms between two askings, from half of that to half as much again by chance: n / (n ms) = 1000 a second
//! pause   the first here: 1, 2, 5, 10, 20 ms, or 2 ms for each that stands before it; others: half a second; and never less than the share
//! life    of a ticket: 3 * (the longest pause and the deadline), so that it outlasts two askings that are lost;
//!         from WAITER_TTL to WAITER_TTL_MAX
//! ```
//!
//! So the share is 10 s when [`WAITERS_MAX`] wait, each under a key of its own, and a ticket is then good for 45 s and three deadlines.

use std::time::Duration;

/// So many times a second those who wait in one process ask a store again, all together and on average. A Redis answers some 40,000 such
/// calls a second: twenty processes that all have as many waiters as can be still leave it time for others. Not among them is whoever asks for the first
/// time, or because a place was returned in this process.
pub const POLLS_PER_SECOND_MAX: u32 = 2_000;
/// So many may wait in one process, for all leases in a store. It is what bounds the pauses, and with them the life of tickets.
pub const WAITERS_MAX: usize = 10_000;
/// How long a ticket is good at least that nobody asks for any more: a process that has died holds up those behind it for so long.
pub const WAITER_TTL: Duration = Duration::from_secs(2);
/// The same at the most: where very many wait in one process, or the deadline is long, whoever waits asks seldom.
pub const WAITER_TTL_MAX: Duration = Duration::from_secs(60);

/// How much longer each that is in the same case lets the others sleep: half of the askings are for each of the two cases.
const SHARE_FOR_EACH: Duration = Duration::from_micros(2_000_000 / POLLS_PER_SECOND_MAX as u64);
/// How long the first in line sleeps before it asks again: the first time, the second time, and so on; then always as the last time.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
];
/// So much longer it sleeps for each that stands before it, of another process.
const PAUSE_FOR_EACH: Duration = Duration::from_millis(2);
/// Nobody sleeps longer where few wait.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A ticket is good for so many askings.
const ASKINGS_IN_A_LIFE: u32 = 3;

/// By what one who waits goes until it has asked again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Whether it is the first here under its key.
    is_first: bool,
    share: Duration,
}

impl Pace {
    /// Of one of so many who are first here under their keys, or who are not.
    pub(super) fn new(is_first: bool, of_so_many: usize) -> Pace {
        let many = u32::try_from(of_so_many).unwrap_or(u32::MAX);
        Pace { is_first, share: SHARE_FOR_EACH.saturating_mul(many) }
    }

    /// It sleeps no longer before it asks again.
    pub(super) fn longest(&self) -> Duration {
        PAUSE_MAX.max(self.share + self.share / 2)
    }

    /// How long its ticket is to be good, if its next asking may take as long as the deadline.
    pub(super) fn ticket_life(&self, deadline: Duration) -> Duration {
        let life = self.longest().saturating_add(deadline).saturating_mul(ASKINGS_IN_A_LIFE);
        life.clamp(WAITER_TTL, WAITER_TTL_MAX)
    }

    /// A pause of that length, or longer if too many wait. Not all at the same moment.
    pub(super) fn at_least(&self, pause: Duration) -> Duration {
        let chance = fastrand::f64();
        // On average the share is what it is, and those who came together are spread over all of it.
        pause.mul_f64(0.5 + chance / 2.0).max(self.share.mul_f64(0.5 + chance))
    }
}

/// How long to sleep, again and again.
#[derive(Default)]
pub(super) struct Pauses {
    tries: usize,
    before: Option<u64>,
}

impl Pauses {
    /// With so many before it. Who has moved up has reason to hope.
    pub(super) fn next(&mut self, before: u64, pace: Pace) -> Duration {
        if self.before.replace(before) != Some(before) {
            self.tries = 0;
        }
        if !pace.is_first {
            return pace.at_least(PAUSE_MAX);
        }
        let own = PAUSES.get(self.tries).or(PAUSES.last()).copied().unwrap_or(PAUSE_MAX);
        self.tries += 1;
        let many = u32::try_from(before).unwrap_or(u32::MAX);
        pace.at_least(PAUSE_FOR_EACH.saturating_mul(many).max(own).min(PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_stands_further_back_asks_less_often() {
        let (mut pauses, alone) = (Pauses::default(), Pace::new(true, 1));
        for pause in PAUSES.into_iter().chain([20 * MS; 3]) {
            let slept = pauses.next(0, alone);
            assert!(slept <= pause.max(3 * MS / 2) && slept >= pause / 2, "{slept:?}, {pause:?}");
        }
        for (before, most) in [(1, 2), (20, 40), (100, 200), (u64::MAX, 500)] {
            let slept = pauses.next(before, alone);
            assert!(slept <= most * MS && slept >= most * MS / 2, "{before}: {slept:?}");
        }
        assert!(pauses.next(0, alone) < 2 * MS, "who has moved up begins anew");
        let behind = pauses.next(0, Pace::new(false, 1));
        assert!(behind >= PAUSE_MAX / 2 && behind <= PAUSE_MAX, "who stands behind another here: {behind:?}");
    }

    #[test]
    fn however_many_wait_all_of_them_ask_so_many_times_a_second_at_the_most() {
        for (firsts, others) in [(1, 1_023), (100, 0), (2_000, 0), (10_000, 0), (5_000, 5_000), (1, 9_999)] {
            // How often one asks in a second, by a long row of its pauses.
            let asks = |pace: Pace| {
                let mut pauses = Pauses::default();
                let slept: Duration = (0..2_000).map(|_| pauses.next(0, pace)).sum();
                2_000.0 / slept.as_secs_f64()
            };
            let asks_of = |is_first, many: u32| {
                f64::from(many) * asks(Pace::new(is_first, usize::try_from(many).unwrap()))
            };
            let all = asks_of(true, firsts) + if others > 0 { asks_of(false, others) } else { 0.0 };
            assert!(all < 1.05 * f64::from(POLLS_PER_SECOND_MAX), "{firsts}, {others}: {all}");
        }
    }

    #[test]
    fn a_ticket_outlasts_two_askings_that_are_lost() {
        for deadline in [50 * MS, 1_000 * MS, 4_000 * MS] {
            for (is_first, many) in [
                (true, 1),
                (false, 1),
                (true, 400),
                (false, 3_000),
                (true, WAITERS_MAX),
                (false, WAITERS_MAX),
            ] {
                let pace = Pace::new(is_first, many);
                let mut pauses = Pauses::default();
                // Asked, and asked again twice in vain: the third answer is there by then.
                let longest = (0..1_000).map(|_| pauses.next(1_000, pace)).max().unwrap();
                let life = pace.ticket_life(deadline);
                assert!(life >= 3 * (longest + deadline), "{many}, {deadline:?}: {life:?}, {longest:?}");
                assert!((WAITER_TTL..=WAITER_TTL_MAX).contains(&life), "{life:?}");
            }
        }
        assert_eq!(Pace::new(true, 100).ticket_life(50 * MS), WAITER_TTL);
        assert_eq!(Pace::new(true, WAITERS_MAX).ticket_life(50 * MS), Duration::from_millis(45_150));
        assert_eq!(Pace::new(true, 1).ticket_life(Duration::MAX), WAITER_TTL_MAX);
    }
}
