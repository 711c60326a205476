//! Limiters whose keys are in a store that several processes share.
//!
//! A script decides and writes; the core computes the same decision again from the state that the script tells, and both must
//! agree. Here are the verbs.
//!
//! ```text
//! builder      makes a limiter                            call         checks: one, a batch, all or nothing
//! ask          verbs as script calls                      reservation  what `reserve` returns
//! denials      when a recent denial is repeated           acquire      waits, with queue and held
//! ```

mod acquire;
mod ask;
mod builder;
mod call;
mod denials;
mod held;
mod queue;
mod reservation;

pub use builder::RedisLimiterBuilder;
pub use call::{RedisCall, check_all, check_all_at, check_each};
pub use reservation::RedisReservation;

use crate::encode::EncodedLimit;
use crate::fallback::Fallback;
use crate::names::Names;
use crate::receipt::StoredReceipt;
use crate::script_reply::ScriptReply;
use crate::store::RedisStore;
use ask::{Ask, Verb, ask_each};
use queue::Queues;
use sluicegate::backend::Reserved;
use sluicegate::backend::{Answer, BackendError, Source, StoreFailure};
use sluicegate::{Decision, IntoLimits, Key, Limit, Limiter, Receipt, ReserveError, Span, Time};
use sluicegate_core::algorithm;
use sluicegate_core::all_of::{check_list, check_within_list, next_window_list, peek_list, take_list};
use sluicegate_core::bounds::saturating_count;
use sluicegate_core::receipts::{Receipt as Name, Receipts, ReserveCall};
use sluicegate_core::verbs::{Unsupported, Verbs as _};
use sluicegate_core::{Algorithm as _, AnyLimit, AnyState};
use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// One limit, or several that must all agree, for keys that several processes share.
///
/// ```no_run
/// use sluicegate_redis::{RedisLimiter, RedisStore};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1").await?;
/// let replies = RedisLimiter::builder("sliding-log 5/60s").in_store(&store, "reply").build()?;
/// if replies.check("Harry").await?.allowed() {
///     println!("in whichever process Harry called: one of five per minute");
/// }
/// # Ok(())
/// # }
/// ```
///
/// It has the methods of [`sluicegate::Limiter`], takes the same arguments and gives the same decisions; to move to it, change
/// the constructor and add `.await?`. The time is the store's, so that the clocks of processes do not matter; the methods that
/// end in `_at` take another one, for tests and replays. Clones are the same limiter.
#[derive(Clone)]
pub struct RedisLimiter {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    store: RedisStore,
    scope: String,
    names: Names,
    limits: Arc<[Limit]>,
    encoded: Vec<EncodedLimit>,
    made: Vec<AnyLimit>,
    /// What receipts are written for.
    tags: String,
    preserve_recovery_time: bool,
    fallback: Fallback<Limiter>,
    /// In whose name denials are remembered, if they are.
    remembers: Option<Arc<str>>,
    /// The waiters of this process, under limits that do not lend.
    queues: Queues,
}

impl RedisLimiter {
    /// A limiter of a limit, or of several that must all agree. It needs a store: [`RedisLimiterBuilder::in_store`].
    pub fn builder(limits: impl IntoLimits) -> RedisLimiterBuilder {
        RedisLimiterBuilder::new(limits.into_limits())
    }

    /// Decides a call of cost 1, and charges it if it is allowed.
    ///
    /// # Errors
    /// When the store gives no answer, and the limiter does not answer without it.
    pub async fn check(&self, key: impl Key) -> Result<Answer, StoreFailure> {
        self.check_cost(key, 1).await
    }

    /// Decides a call of this cost, and charges it if it is allowed. Cost 0 is always allowed and changes nothing.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn check_cost(&self, key: impl Key, cost: u64) -> Result<Answer, StoreFailure> {
        self.inner.check(&key.to_bytes(), cost, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn check_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Answer, StoreFailure> {
        self.inner.check(&key.to_bytes(), cost, Some(now)).await
    }

    /// Decides a call without charging it.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn peek(&self, key: impl Key, cost: u64) -> Result<Answer, StoreFailure> {
        self.inner.peek(&key.to_bytes(), cost, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn peek_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Answer, StoreFailure> {
        self.inner.peek(&key.to_bytes(), cost, Some(now)).await
    }

    /// Charges `up_to`, or as much of it as remains, and returns how much that was. When nothing remains the answer is the denial
    /// of cost 1.
    ///
    /// # Errors
    /// When the limit does not offer this (`count=all`, `smooth`), or the store gives no answer.
    pub async fn take(&self, key: impl Key, up_to: u64) -> Result<(Answer, u64), BackendError> {
        self.inner.take(&key.to_bytes(), up_to, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::take`].
    pub async fn take_at(&self, key: impl Key, up_to: u64, now: Time) -> Result<(Answer, u64), BackendError> {
        self.inner.take(&key.to_bytes(), up_to, Some(now)).await
    }

    /// Returns cost that was charged for something that did not happen after all. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// When the limit does not offer this (a pacer, `smooth` with a warm-up), or the store gives no answer.
    pub async fn refund(&self, key: impl Key, cost: u64) -> Result<Answer, BackendError> {
        self.inner.refund(&key.to_bytes(), cost, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::refund`].
    pub async fn refund_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Answer, BackendError> {
        self.inner.refund(&key.to_bytes(), cost, Some(now)).await
    }

    /// Charges the key now, to act after the answer's delay, which is at most `max_wait`. Buckets lend what will have come in by
    /// then; other limits answer as to a check.
    ///
    /// # Errors
    /// When the limit does not offer this (`count=all`, `smooth`), the key has too many open receipts, or the store gives no
    /// answer.
    pub async fn reserve(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: Duration,
    ) -> Result<RedisReservation, BackendError> {
        let reserved = self.inner.reserve(&key.to_bytes(), cost, max_wait.into(), None).await?;
        Ok(RedisReservation::new(self, reserved))
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::reserve`].
    pub async fn reserve_at(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: impl Into<Span>,
        now: Time,
    ) -> Result<RedisReservation, BackendError> {
        let reserved = self.inner.reserve(&key.to_bytes(), cost, max_wait.into(), Some(now)).await?;
        Ok(RedisReservation::new(self, reserved))
    }

    /// Charges the key now, to act after the answer's delay, which is at most `max_wait`: a reservation without a receipt. Under
    /// `smooth` this is how callers wait.
    ///
    /// # Errors
    /// When the limit does not offer this (`count=all`), or the store gives no answer.
    pub async fn check_within(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Answer, BackendError> {
        self.inner.check_within(&key.to_bytes(), cost, max_wait.into(), None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::check_within`].
    pub async fn check_within_at(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: impl Into<Span>,
        now: Time,
    ) -> Result<Answer, BackendError> {
        self.inner.check_within(&key.to_bytes(), cost, max_wait.into(), Some(now)).await
    }

    /// Returns what still counts of a reservation. `true` if that was anything: not if the receipt is used, unknown or worth
    /// nothing any more.
    ///
    /// # Errors
    /// When the receipt is not one of a shared store, or the store gives no answer.
    pub async fn cancel(&self, receipt: &Receipt) -> Result<bool, BackendError> {
        self.inner.close(receipt, "cancel", 0, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::cancel`].
    pub async fn cancel_at(&self, receipt: &Receipt, now: Time) -> Result<bool, BackendError> {
        self.inner.close(receipt, "cancel", 0, Some(now)).await
    }

    /// Changes the charge of a reservation to what was used: the rest is returned, an excess becomes debt. `false` if the receipt
    /// is used or unknown.
    ///
    /// # Errors
    /// As [`RedisLimiter::cancel`].
    pub async fn settle(&self, receipt: &Receipt, used: u64) -> Result<bool, BackendError> {
        self.inner.close(receipt, "settle", used, None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::cancel`].
    pub async fn settle_at(&self, receipt: &Receipt, used: u64, now: Time) -> Result<bool, BackendError> {
        self.inner.close(receipt, "settle", used, Some(now)).await
    }

    /// When the key's next window starts, or its next unit is available, rounded up. Now for an idle bucket or log.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn next_window(&self, key: impl Key) -> Result<Time, StoreFailure> {
        self.inner.next_window(&key.to_bytes(), None).await
    }

    /// The same at a time.
    ///
    /// # Errors
    /// As [`RedisLimiter::next_window`].
    pub async fn next_window_at(&self, key: impl Key, now: Time) -> Result<Time, StoreFailure> {
        self.inner.next_window(&key.to_bytes(), Some(now)).await
    }

    /// Deletes the key's state. Its receipts are void.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn reset(&self, key: impl Key) -> Result<(), StoreFailure> {
        self.inner.reset(&[&key.to_bytes()]).await
    }

    /// Deletes the state of several keys in one round trip.
    ///
    /// # Errors
    /// When the store gives no answer. The state of some of the keys may then be deleted.
    pub async fn reset_each<K: Key>(&self, keys: &[K]) -> Result<(), StoreFailure> {
        let keys: Vec<Cow<'_, [u8]>> = keys.iter().map(Key::to_bytes).collect();
        self.inner.reset(&keys.iter().map(AsRef::as_ref).collect::<Vec<_>>()).await
    }

    /// Names a call, to be made together with others: see [`check_all`] and [`check_each`].
    pub fn call(&self, key: impl Key, cost: u64) -> RedisCall<'_> {
        RedisCall {
            inner: &self.inner,
            key: Cow::Owned(key.to_bytes().into_owned()),
            cost: saturating_count(cost),
            at: None,
        }
    }

    /// The limits.
    pub fn limits(&self) -> Arc<[Limit]> {
        Arc::clone(&self.inner.limits)
    }

    /// What its keys belong to.
    pub fn scope(&self) -> &str {
        &self.inner.scope
    }
}

/// The verbs, for keys as bytes. `at` is the time of the call; `None` is the store's.
impl Inner {
    pub(crate) async fn check(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        at: Option<Time>,
    ) -> Result<Answer, StoreFailure> {
        let answers = check_each(slice::from_ref(&self.call(key, cost, at))).await;
        answers.into_iter().next().unwrap_or_else(|| Err(not_understood()))
    }

    pub(crate) async fn peek(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        at: Option<Time>,
    ) -> Result<Answer, StoreFailure> {
        let states = self.ask_states(self.call(key, cost, at), Verb::Read).await;
        let peeked =
            states.map(|(_, now, states)| peek_list(&self.made, &states, now, saturating_count(cost)));
        self.answered(peeked, |limiter| Some(limiter.peek(key, cost)))
    }

    pub(crate) async fn take(
        self: &Arc<Inner>,
        key: &[u8],
        up_to: u64,
        at: Option<Time>,
    ) -> Result<(Answer, u64), BackendError> {
        self.require(algorithm::Verb::Take)?;
        let asked = async {
            let (yes, now, mut states) = self.ask_states(self.call(key, up_to, at), Verb::Take).await?;
            let taken = take_list(&self.made, &mut states, now, saturating_count(up_to));
            let (decision, taken) = taken.unwrap_or_else(|_| unreachable_verb());
            same(yes, taken > 0)?;
            Ok((decision, u64::from(taken)))
        };
        let (decision, mut taken) = match asked.await {
            Ok((decision, taken)) => (Ok(decision), taken),
            Err(failure) => (Err(failure), up_to),
        };
        let answer = self.answered(decision, |limiter| {
            let (decision, locally) = limiter.take(key, up_to).ok()?;
            taken = locally;
            Some(decision)
        })?;
        Ok((answer, if answer.allowed() { taken } else { 0 }))
    }

    pub(crate) async fn refund(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        at: Option<Time>,
    ) -> Result<Answer, BackendError> {
        self.require(algorithm::Verb::Refund)?;
        let _forgets = self.forgets(key);
        let states = self.ask_states(self.call(key, cost, at), Verb::Refund).await;
        let refunded = states.map(|(_, now, states)| peek_list(&self.made, &states, now, 0));
        Ok(self.answered(refunded, |limiter| limiter.refund(key, cost).ok())?)
    }

    pub(crate) async fn reserve(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        max_wait: Span,
        at: Option<Time>,
    ) -> Result<Reserved, BackendError> {
        self.require(algorithm::Verb::Reserve)?;
        let _forgets = self.forgets(key);
        let receipt = StoredReceipt::new(&self.scope, key);
        let call = self.call(key, cost, at);
        let reserved = match self.ask_reserve("reserve", call, max_wait, &receipt).await {
            Ok(None) => return Err(ReserveError::TooManyReceiptsOfKey.into()),
            Ok(Some(decision)) => Ok(decision),
            Err(failure) => Err(failure),
        };
        // Without the store there is no receipt: it would be good in this process only.
        let answer = self.answered(reserved, |limiter| {
            limiter.reserve(key, cost, max_wait.into()).ok().map(|reserved| reserved.decision())
        })?;
        let is_stored = answer.allowed() && answer.source() == Source::Store;
        Ok(Reserved { answer, receipt: is_stored.then(|| receipt.receipt()) })
    }

    pub(crate) async fn check_within(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        max_wait: Span,
        at: Option<Time>,
    ) -> Result<Answer, BackendError> {
        self.require(algorithm::Verb::CheckWithin)?;
        let _forgets = self.forgets(key);
        let asked = self.ask_within(self.call(key, cost, at), max_wait).await;
        Ok(self.answered(asked, |limiter| limiter.check_within(key, cost, max_wait.into()).ok())?)
    }

    /// Cancels or settles. A receipt of another scope is unknown here.
    pub(crate) async fn close(
        self: &Arc<Inner>,
        receipt: &Receipt,
        verb: &'static str,
        used: u64,
        at: Option<Time>,
    ) -> Result<bool, BackendError> {
        let receipt = StoredReceipt::read(receipt)?;
        if receipt.scope != self.scope {
            return Ok(false);
        }
        Ok(self.counted(self.close_stored(&receipt, verb, saturating_count(used), at).await)?)
    }

    async fn close_stored(
        self: &Arc<Inner>,
        receipt: &StoredReceipt,
        verb: &'static str,
        used: u32,
        at: Option<Time>,
    ) -> Result<bool, StoreFailure> {
        let _forgets = self.forgets(&receipt.key);
        match self.ask(self.call(&receipt.key, 0, at), Verb::Close { verb, receipt, used }).await? {
            ScriptReply::Decided { yes, .. } => Ok(yes),
            _ => Err(not_understood()),
        }
    }

    pub(crate) async fn next_window(
        self: &Arc<Inner>,
        key: &[u8],
        at: Option<Time>,
    ) -> Result<Time, StoreFailure> {
        let (_, now, states) = self.counted(self.ask_states(self.call(key, 0, at), Verb::Read).await)?;
        Ok(next_window_list(&self.made, &states, now))
    }

    pub(crate) async fn reset(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        if let Some(local) = self.fallback.local() {
            for key in keys {
                local.reset(key);
            }
        }
        let _forgets: Vec<_> = keys.iter().map(|key| self.forgets(key)).collect();
        self.counted(self.ask_reset(keys).await)
    }

    pub(crate) fn limits(&self) -> Arc<[Limit]> {
        Arc::clone(&self.limits)
    }

    fn call<'a>(self: &'a Arc<Inner>, key: &'a [u8], cost: u64, at: Option<Time>) -> RedisCall<'a> {
        RedisCall { inner: self, key: Cow::Borrowed(key), cost: saturating_count(cost), at }
    }

    /// An error unless all limits offer the verb.
    fn require(&self, verb: algorithm::Verb) -> Result<(), Unsupported> {
        self.made.iter().try_for_each(|limit| limit.require(verb))
    }

    /// Makes one call.
    async fn ask(&self, call: RedisCall<'_>, verb: Verb<'_>) -> Result<ScriptReply, StoreFailure> {
        let asks = [Ask { calls: slice::from_ref(&call), verb }];
        let mut round_trip = if verb.is_sent_in_any_case() {
            self.store.inner.admit_return(1).await
        } else {
            self.store.inner.admit(1).await?
        };
        let replies = ask_each(&mut round_trip, &asks).await;
        replies.into_iter().next().unwrap_or_else(|| Err(not_understood()))
    }

    /// Makes one call, and reads the states that the reply tells.
    async fn ask_states(
        &self,
        call: RedisCall<'_>,
        verb: Verb<'_>,
    ) -> Result<(bool, Time, Vec<AnyState>), StoreFailure> {
        self.states(self.ask(call, verb).await?)
    }

    async fn ask_within(&self, call: RedisCall<'_>, max_wait: Span) -> Result<Decision, StoreFailure> {
        let cost = call.cost;
        let (yes, now, mut states) = self.ask_states(call, Verb::Within { max_wait }).await?;
        let decided = check_within_list(&self.made, &mut states, now, cost, max_wait);
        let decision = decided.unwrap_or_else(|_| unreachable_verb());
        same(yes, decision.allowed())?;
        Ok(decision)
    }

    /// What a reservation came to; `None` if the key has too many open receipts.
    async fn ask_reserve(
        &self,
        verb: &'static str,
        call: RedisCall<'_>,
        max_wait: Span,
        receipt: &StoredReceipt,
    ) -> Result<Option<Decision>, StoreFailure> {
        let cost = call.cost;
        let (yes, now, mut states) = match self.ask(call, Verb::Reserve { verb, receipt, max_wait }).await? {
            ScriptReply::TooManyReceipts => return Ok(None),
            reply => self.states(reply)?,
        };
        let reserve = ReserveCall { cost, max_wait, receipt: Name(0) };
        let reserved = Receipts::default().reserve(&self.made, &mut states, now, reserve);
        let decision = reserved.unwrap_or_else(|_| unreachable_verb());
        same(yes, decision.allowed())?;
        Ok(Some(decision))
    }

    /// The core's decision of a check, on the states as they were.
    fn decided(&self, reply: ScriptReply, cost: u32) -> Result<Decision, StoreFailure> {
        let (yes, now, mut states) = self.states(reply)?;
        let decision = match (self.encoded.as_slice(), states.as_slice()) {
            _ if cost == 0 => peek_list(&self.made, &states, now, 0),
            // The script has entered the denied call already, and tells of the log after that.
            ([encoded], [state]) if !yes && encoded.counts_denied() && cost <= encoded.limit.limit() => {
                encoded.limit.peek(state, now, cost)
            }
            _ => check_list(&self.made, &mut states, now, cost),
        };
        same(yes, decision.allowed())?;
        Ok(decision)
    }

    /// Whether the script said yes, when, and the state under each limit.
    fn states(&self, reply: ScriptReply) -> Result<(bool, Time, Vec<AnyState>), StoreFailure> {
        let ScriptReply::Decided { yes, now, states } = reply else { return Err(not_understood()) };
        let read = self
            .encoded
            .iter()
            .zip(&states)
            .map(|(encoded, raw)| encoded.read(raw, now, self.preserve_recovery_time));
        let states: Option<Vec<AnyState>> = read.collect();
        let states = states.filter(|states| states.len() == self.encoded.len()).ok_or_else(not_understood)?;
        Ok((yes, now, states))
    }

    /// The store's answer, or one without it.
    fn answered(
        &self,
        decided: Result<Decision, StoreFailure>,
        local: impl FnOnce(&Limiter) -> Option<Decision>,
    ) -> Result<Answer, StoreFailure> {
        let answer = match decided {
            Ok(decision) => Ok(Answer::new(decision, Source::Store)),
            Err(failure) => self.fallback.answer(local).ok_or(failure),
        };
        self.store.inner.counters.count(answer.as_ref().ok().map(Answer::source));
        answer
    }

    /// Counts an answer that only the store can give.
    fn counted<T>(&self, answer: Result<T, StoreFailure>) -> Result<T, StoreFailure> {
        self.store.inner.counters.count(answer.is_ok().then_some(Source::Store));
        answer
    }
}

/// The script and the core must agree.
fn same(script: bool, core: bool) -> Result<(), StoreFailure> {
    if script == core {
        return Ok(());
    }
    Err(StoreFailure::BadReply(String::from(
        "its script decided otherwise than we do; are all processes of the same version?",
    )))
}

/// The script has decided, but what it tells makes no sense.
pub(crate) fn not_understood() -> StoreFailure {
    StoreFailure::BadReply(String::from("a key's state makes no sense; was it written by something else?"))
}

/// Nothing was done, as the key's state is not one of ours.
pub(crate) fn unreadable() -> StoreFailure {
    StoreFailure::Rejected(String::from(
        "a key's state there cannot be read; was it written by a newer version, or by something else?",
    ))
}

/// The verb was required before the store was asked.
fn unreachable_verb<T>() -> T {
    unreachable!("the verb was required before")
}

impl fmt::Debug for RedisLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<String> = self.inner.limits.iter().map(Limit::to_string).collect();
        f.debug_struct("RedisLimiter")
            .field("scope", &self.inner.scope)
            .field("limits", &limits)
            .finish_non_exhaustive()
    }
}
