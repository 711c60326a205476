//! Waiting for a place.
//!
//! In plain words: whoever is not given a place at once has a ticket in the store from then on, and asks again and again until its turn has
//! come. Each time the store tells how many stand before it: the first asks often, those far behind seldom. When a place is returned in
//! this process, the first who waits here asks at once.
//!
//! ```text
//! ask ──▶ taken ──▶ act
//!  ▲  └── denied, n before ──▶ sleep, the longer the larger n ┐
//!  └──────────────────────────── or until a place is returned ┘
//! ```

use super::Inner;
use super::claim::Claim;
use super::grant::SharedGrant;
use super::told::Told;
use super::without::{COME_BACK_AFTER, Without};
use crate::answer::{Answer, Source};
use crate::failure::StoreFailure;
use sluicegate::{Decision, Refusal, RetryAfter};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long a ticket is good that nobody asks for any more: a process that has died holds up those behind it for so long.
pub const TICKET_LIFE: Duration = Duration::from_secs(2);

/// How long the first in line sleeps before it asks again: the first time, the second time, and so on; then always as the last time.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
];
/// So much longer others sleep for each that stands before them.
const PAUSE_FOR_EACH: Duration = Duration::from_millis(2);
/// Nobody sleeps longer, so that a ticket stays good though two of its askings fail.
const PAUSE_MAX: Duration = Duration::from_millis(500);

impl Inner {
    pub(super) async fn acquire(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        until: Option<Instant>,
    ) -> Result<SharedGrant, StoreFailure> {
        if self.needs_no_lease(cost) {
            return self.try_acquire(key, cost, None).await;
        }
        let began = Instant::now();
        let Some(waiter) = self.waiters.join(key) else {
            return Ok(SharedGrant::refused(Refusal::LineFull, self.nobody_asked(), began));
        };
        let claim = Claim::new(self, key, cost);
        let mut pauses = Pauses::default();
        // Since when no answer has come.
        let mut silent_since = None;
        loop {
            let asked = Instant::now();
            let (denied, sleeps_until) =
                match self.ask_acquire(key, (claim.id(), cost), Some(self.max_line), None).await {
                    Ok(told) if told.is_taken => {
                        return Ok(SharedGrant::taken(&told, claim.held(&told, asked), began));
                    }
                    Ok(told) if told.is_full => {
                        claim.nothing_taken();
                        return Ok(SharedGrant::refused(Refusal::LineFull, stored(&told), began));
                    }
                    Ok(told) => {
                        silent_since = None;
                        (Some(stored(&told)), Instant::now() + pauses.next(told.place))
                    }
                    // The ticket is the same, so that what was given meanwhile is not given twice.
                    Err(failure)
                        if failure.may_have_charged()
                            && silent_since.get_or_insert(asked).elapsed() < TICKET_LIFE
                            && until.is_none_or(|until| Instant::now() < until) =>
                    {
                        (None, Instant::now() + pauses.next(0))
                    }
                    Err(failure) => match self.fallback.instead(failure, key, cost)? {
                        Without::Granted(answer, lease) => {
                            return Ok(self.granted_without(answer, lease, key, began));
                        }
                        // Whoever decides here is asked as often as the store would be.
                        Without::Denied(answer) if answer.source() == Source::Local => {
                            (Some(answer), Instant::now() + pauses.next(0))
                        }
                        Without::Denied(answer) => {
                            (Some(answer), Instant::now() + Duration::from(COME_BACK_AFTER))
                        }
                    },
                };
            if let (Some(denied), Some(until)) = (denied, until)
                && Instant::now() >= until
            {
                return Ok(SharedGrant::refused(Refusal::TooLong, denied, began));
            }
            // Who has no time left asks once more, at the very end.
            let wakes = until.map_or(sleeps_until, |until| until.min(sleeps_until));
            tokio::select! {
                () = sleep_until(wakes) => {}
                () = waiter.woken() => {}
            }
        }
    }

    /// A denial that the store was not asked for.
    fn nobody_asked(&self) -> Answer {
        let nobody_knows = RetryAfter::After(COME_BACK_AFTER);
        Answer::new(Decision::no_room(self.rule.count(), nobody_knows), Source::Remembered)
    }
}

fn stored(told: &Told) -> Answer {
    Answer::new(told.decision, Source::Store)
}

/// How long to sleep, again and again.
#[derive(Default)]
struct Pauses {
    tries: usize,
    place: Option<u64>,
}

impl Pauses {
    /// With so many before it. Who has moved up has reason to hope.
    fn next(&mut self, place: u64) -> Duration {
        if self.place.replace(place) != Some(place) {
            self.tries = 0;
        }
        let own = PAUSES.get(self.tries).or(PAUSES.last()).copied().unwrap_or(PAUSE_MAX);
        self.tries += 1;
        let many = u32::try_from(place).unwrap_or(u32::MAX);
        let longest = PAUSE_FOR_EACH.saturating_mul(many).max(own).min(PAUSE_MAX);
        // Not all at the same moment.
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stands_further_back_asks_less_often_and_nobody_forgets_its_ticket() {
        let mut pauses = Pauses::default();
        for pause in PAUSES.into_iter().chain([Duration::from_millis(20); 3]) {
            let slept = pauses.next(0);
            assert!(slept <= pause && slept >= pause / 2, "{slept:?}, {pause:?}");
        }
        for (place, most) in [(1, 2), (20, 40), (100, 200), (u64::MAX, 500)] {
            let slept = pauses.next(place);
            let most = Duration::from_millis(most);
            assert!(slept <= most && slept >= most / 2, "{place}: {slept:?}");
        }
        assert!(pauses.next(0) <= PAUSES[0], "who has moved up begins anew");
        assert!(PAUSE_MAX * 4 <= TICKET_LIFE);
    }
}
