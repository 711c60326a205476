//! Limiters whose keys are in a store that many processes share.
//!
//! Here are the verbs; `builder.rs` makes a limiter, `ask.rs` asks the store, `without.rs` answers when it cannot, `together.rs`
//! charges several keys all or nothing, `acquire.rs` waits for a turn, with `line.rs` and `held.rs`. `denials.rs` and `trips.rs` spare the store trips, where that is wanted.

mod acquire;
mod ask;
mod builder;
mod denials;
mod each;
mod error;
mod held;
mod line;
mod together;
mod trips;
mod without;

pub use builder::RedisLimiterBuilder;
pub use each::check_each;
pub use error::{AskError, BuildError, TogetherError};
pub use together::{CALLS_MAX, Call, check_all};

pub(crate) use ask::add_time;
pub(crate) use without::COME_BACK_AFTER;

use crate::answer::{Answer, Source};
use crate::failure::StoreFailure;
use crate::names::Names;
use crate::receipt::Receipt;
use crate::reply::Reply;
use crate::shape::{Shape, Told};
use crate::store::RedisStore;
use line::Lines;
use sluicegate::core::several::{check_list, next_window_list, peek_list, take_list};
use sluicegate::core::verbs::{NotOffered, Verbs as _};
use sluicegate::core::{Algorithm as _, AnyLimit, AnyState, algorithm::Verb};
use sluicegate::{Decision, IntoLimits, Limit, Span, Time};
use std::fmt;
use std::sync::Arc;
use tokio::time::Instant;
use trips::Trips;
use without::Fallback;

/// One limit, or several that must all agree, for keys that many processes share.
///
/// ```no_run
/// use sluicegate_redis::{RedisLimiter, RedisStore};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1").await?;
/// let replies = RedisLimiter::builder("sliding-log 5/60s").in_store(&store, "reply").build()?;
/// if replies.check("Harry").await?.allowed() {
///     println!("in whichever process Harry called: one of five a minute");
/// }
/// # Ok(())
/// # }
/// ```
///
/// It has the verbs of [`sluicegate::Limiter`] and gives the same answers. The time is the store's, so that the clocks of
/// processes do not matter; `now` is `None` then, and a time of the caller's in tests and replays. Clones are the same limiter.
#[derive(Clone)]
pub struct RedisLimiter {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    store: RedisStore,
    scope: String,
    names: Names,
    limits: Vec<Limit>,
    shapes: Vec<Shape>,
    made: Vec<AnyLimit>,
    /// What receipts are written in.
    tags: String,
    keeps_time: bool,
    fallback: Fallback,
    /// In whose name denials are remembered, if they are.
    remembers: Option<Arc<str>>,
    /// Those under way, if they are shared.
    trips: Option<Trips>,
    /// Those who wait for a turn under limits that do not lend.
    lines: Lines,
}

/// The answer to a reservation, and its receipt if it was charged.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a denied reservation charges nothing; ask `allowed()` first"]
pub struct Reservation {
    /// The answer.
    pub answer: Answer,
    /// Good for one cancel or settle. There is none when nothing was charged, or only in this process's memory.
    pub receipt: Option<Receipt>,
}

impl RedisLimiter {
    /// A limiter of a limit, or of several that must all agree. It needs a store: [`RedisLimiterBuilder::in_store`].
    pub fn builder(limits: impl IntoLimits) -> RedisLimiterBuilder {
        RedisLimiterBuilder::new(limits.into_limits())
    }

    /// May the key act once now? If so it is charged 1.
    ///
    /// # Errors
    /// When the store gives no answer, and the limiter is not to answer without it.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<Answer, StoreFailure> {
        self.check_cost(key, 1).await
    }

    /// May the key act now, at this cost? If so it is charged. Cost 0 is always allowed and changes nothing.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn check_cost(&self, key: impl AsRef<[u8]>, cost: u32) -> Result<Answer, StoreFailure> {
        self.check_or_at(key.as_ref(), cost, None).await
    }

    /// The same at a time of the caller's, for tests and replays.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn check_at(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        now: Time,
    ) -> Result<Answer, StoreFailure> {
        self.check_or_at(key.as_ref(), cost, Some(now)).await
    }

    async fn check_or_at(&self, key: &[u8], cost: u32, now: Option<Time>) -> Result<Answer, StoreFailure> {
        let (inner, began) = (&self.inner, Instant::now());
        if let Some(denied) = inner.remembered(key, cost, now) {
            return Ok(denied);
        }
        let asked = match (&inner.trips, now) {
            (Some(trips), None) if cost > 0 => trips.ask_check(inner, key, cost).await,
            _ => inner.ask_check(key, cost, now).await,
        };
        inner.remember(key, cost, now, began, &asked);
        inner.answered(asked, |fallback| fallback.check(key, cost))
    }

    /// Would a call of this cost be allowed? Nothing is charged.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn peek(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        now: Option<Time>,
    ) -> Result<Answer, StoreFailure> {
        let (inner, key) = (&*self.inner, key.as_ref());
        let asked = async {
            let (now, states) = inner.ask_states(key, cost, now).await?;
            Ok(peek_list(&inner.made, &states, now, cost))
        };
        inner.answered(asked.await, |fallback| fallback.peek(key, cost))
    }

    /// Takes `up_to` or as much of it as remains, and says how much that was. When nothing remains the answer is the denial of
    /// cost 1.
    ///
    /// # Errors
    /// When the limit does not offer this (`count=all`, `smooth`), or the store gives no answer.
    pub async fn take(
        &self,
        key: impl AsRef<[u8]>,
        up_to: u32,
        now: Option<Time>,
    ) -> Result<(Answer, u32), AskError> {
        let (inner, key) = (&*self.inner, key.as_ref());
        inner.require(Verb::Take)?;
        let asked = async {
            let (yes, now, mut states) = inner.ask_take(key, up_to, now).await?;
            let (decision, taken) =
                take_list(&inner.made, &mut states, now, up_to).unwrap_or_else(|_| unreachable_verb());
            same(yes, taken > 0)?;
            Ok((decision, taken))
        };
        let (asked, taken) = match asked.await {
            Ok((decision, taken)) => (Ok(decision), taken),
            Err(failure) => return inner.fallback.take(failure, key, up_to),
        };
        Ok((inner.answered(asked, |fallback| fallback.check(key, up_to))?, taken))
    }

    /// Gives cost back: what was charged for something that did not happen after all. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// When the limit does not offer this (a pacer, `smooth` with a warm-up), or the store gives no answer.
    pub async fn refund(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        now: Option<Time>,
    ) -> Result<Answer, AskError> {
        let (inner, key) = (&*self.inner, key.as_ref());
        inner.require(Verb::Refund)?;
        let _forgets = inner.forgets(key);
        let asked = async {
            let (now, states) = inner.ask_refund(key, cost, now).await?;
            Ok(peek_list(&inner.made, &states, now, 0))
        };
        Ok(inner.answered(asked.await, |fallback| fallback.refund(key, cost))?)
    }

    /// Charges `cost` now, to act after the answer's delay, which is at most `max_wait`. Buckets lend what will have come in by
    /// then; other limits answer as to a check.
    ///
    /// # Errors
    /// When the limit does not offer this (`count=all`, `smooth`), the key has too many open receipts, or the store gives no answer.
    pub async fn reserve(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        max_wait: Span,
        now: Option<Time>,
    ) -> Result<Reservation, AskError> {
        let (inner, key) = (&*self.inner, key.as_ref());
        inner.require(Verb::Reserve)?;
        let _forgets = inner.forgets(key);
        let receipt = Receipt::new(&inner.scope, key);
        match inner.ask_reserve("reserve", (key, cost, max_wait), &receipt, now).await {
            Ok(None) => Err(AskError::TooManyReceipts),
            Ok(Some(decision)) => {
                let answer = Answer::new(decision, Source::Store);
                Ok(Reservation { answer, receipt: decision.allowed().then_some(receipt) })
            }
            Err(failure) => {
                let answer =
                    inner.answered(Err(failure), |fallback| fallback.reserve(key, cost, max_wait))?;
                Ok(Reservation { answer, receipt: None })
            }
        }
    }

    /// Charges `cost` now, to act after the answer's delay, which is at most `max_wait`: a reservation without a receipt. Under
    /// `smooth` this is how callers wait.
    ///
    /// # Errors
    /// When the limit does not offer this (`count=all`), or the store gives no answer.
    pub async fn check_within(
        &self,
        key: impl AsRef<[u8]>,
        cost: u32,
        max_wait: Span,
        now: Option<Time>,
    ) -> Result<Answer, AskError> {
        let (inner, key) = (&*self.inner, key.as_ref());
        inner.require(Verb::CheckWithin)?;
        let _forgets = inner.forgets(key);
        let asked = inner.ask_within(key, cost, max_wait, now).await;
        Ok(inner.answered(asked, |fallback| fallback.check_within(key, cost, max_wait))?)
    }

    /// Gives back what still counts of a reservation. Whether that was anything: not if the receipt is used, unknown or worth
    /// nothing any more.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn cancel(&self, receipt: &Receipt, now: Option<Time>) -> Result<bool, StoreFailure> {
        self.inner.ask_close(receipt, "cancel", 0, now).await
    }

    /// Says what a reservation has really used: the rest is given back, an excess becomes debt. `false` if the receipt is used
    /// or unknown.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn settle(
        &self,
        receipt: &Receipt,
        used: u32,
        now: Option<Time>,
    ) -> Result<bool, StoreFailure> {
        self.inner.ask_close(receipt, "settle", used, now).await
    }

    /// When the key's next window starts, or its next unit is there, rounded up. Now for an idle bucket or log.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn next_window(&self, key: impl AsRef<[u8]>, now: Option<Time>) -> Result<Time, StoreFailure> {
        let (now, states) = self.inner.ask_states(key.as_ref(), 0, now).await?;
        Ok(next_window_list(&self.inner.made, &states, now))
    }

    /// Forgets the key. Its receipts are void.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn reset(&self, key: impl AsRef<[u8]>) -> Result<(), StoreFailure> {
        self.reset_each(&[key.as_ref()]).await
    }

    /// Forgets several keys in one trip.
    ///
    /// # Errors
    /// When the store gives no answer. Some of the keys may then be forgotten.
    pub async fn reset_each(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        for key in keys {
            self.inner.fallback.forget(key);
        }
        let _forgets: Vec<_> = keys.iter().map(|key| self.inner.forgets(key)).collect();
        self.inner.ask_reset(keys).await
    }

    /// Names a call, to be made together with others: see [`check_all`] and [`check_each`].
    pub fn on<'a>(&'a self, key: &'a [u8], cost: u32) -> Call<'a> {
        Call::new(self, key, cost)
    }

    /// The limits.
    pub fn limits(&self) -> &[Limit] {
        &self.inner.limits
    }

    /// What its keys belong to.
    pub fn scope(&self) -> &str {
        &self.inner.scope
    }
}

impl Inner {
    /// An error unless all limits offer the verb.
    fn require(&self, verb: Verb) -> Result<(), NotOffered> {
        self.made.iter().try_for_each(|limit| limit.require(verb))
    }

    /// What a check came to, by the core, on the states as they were.
    fn decided(&self, reply: Reply, cost: u32) -> Result<Decision, StoreFailure> {
        let (yes, now, mut states) = self.done(reply)?;
        let decision = match (self.shapes.as_slice(), states.as_slice()) {
            _ if cost == 0 => peek_list(&self.made, &states, now, 0),
            // The script has entered the denied call already, and tells of the log after that.
            ([shape], [state]) if !yes && shape.counts_denied() && cost <= shape.limit.limit() => {
                shape.limit.peek(state, now, cost)
            }
            _ => check_list(&self.made, &mut states, now, cost),
        };
        same(yes, decision.allowed())?;
        Ok(decision)
    }

    /// A state for each limit.
    fn done(&self, reply: Reply) -> Result<(bool, Time, Vec<AnyState>), StoreFailure> {
        let Reply::Done { yes, now, told } = reply else { return Err(not_understood()) };
        let states: Option<Vec<AnyState>> = self
            .shapes
            .iter()
            .zip(&told)
            .map(|(shape, told)| shape.read(told, now, self.keeps_time))
            .collect();
        let states = states.filter(|states| states.len() == self.shapes.len()).ok_or_else(not_understood)?;
        Ok((yes, now, states))
    }

    /// The store's answer, or one without it.
    fn answered(
        &self,
        asked: Result<Decision, StoreFailure>,
        without: impl FnOnce(&Fallback) -> Option<(Decision, Source)>,
    ) -> Result<Answer, StoreFailure> {
        match asked {
            Ok(decision) => Ok(Answer::new(decision, Source::Store)),
            Err(failure) => match without(&self.fallback) {
                Some((decision, source)) => Ok(Answer::new(decision, source)),
                None => Err(failure),
            },
        }
    }
}

/// The script and the core must have come to the same.
fn same(script: bool, core: bool) -> Result<(), StoreFailure> {
    if script == core {
        return Ok(());
    }
    Err(StoreFailure::Garbled(String::from(
        "its script decided otherwise than we do; are all processes of the same version?",
    )))
}

/// The script has decided, but what it tells makes no sense.
pub(crate) fn not_understood() -> StoreFailure {
    StoreFailure::Garbled(String::from("a key's state makes no sense; was it written by something else?"))
}

/// Nothing was done, as the key's state is not one of ours.
pub(crate) fn unreadable() -> StoreFailure {
    StoreFailure::Refused(String::from(
        "a key's state there cannot be read; was it written by a newer version, or by something else?",
    ))
}

/// Whether the limits offer the verb was asked before the store was.
fn unreachable_verb<T>() -> T {
    unreachable!("the verb was required before")
}

impl fmt::Debug for RedisLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<String> = self.limits().iter().map(Limit::to_string).collect();
        f.debug_struct("RedisLimiter")
            .field("scope", &self.inner.scope)
            .field("limits", &limits)
            .finish_non_exhaustive()
    }
}
