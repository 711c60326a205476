//! Limiters whose keys are in a shared store.
//!
//! **The script decides, the core recomputes the decision from the state in the reply, and the two
//! must agree.** A script returns only whether the call is allowed, and the state. The core
//! computes the other fields of the decision from that state, so that they are the same as in
//! memory.
//!
//! ```text
//! builder        builds a limiter              call      checks: one, or a batch
//! script_calls   the verbs as script calls     reply     parses the scripts' replies
//! several        calls, all or nothing         receipts  settle, cancel, extend and discard
//! by_slot        the same over the hash slots of a cluster
//! reservation    what `reserve` returns        denials   when a cached denial answers
//! acquire        waits until a call is allowed, with queue and wait_guard
//! ```

mod acquire;
mod builder;
mod by_slot;
mod call;
mod denials;
mod queue;
mod receipts;
mod reply;
mod reservation;
mod script_calls;
mod several;
mod wait_guard;

pub use builder::RedisLimiterBuilder;
pub use call::{RedisCall, check_each};
pub use receipts::{cancel_all, extend_all, settle_all};
pub use reservation::RedisReservation;
pub use several::{
    check_all, check_all_at, reserve_all, reserve_all_at, reserve_all_each, reserve_all_each_at,
};

use crate::encode::EncodedLimit;
use crate::failure::bad_state;
use crate::fallback::Fallback;
use crate::names::Names;
use crate::receipt::StoredReceipt;
use crate::round_trip::RoundTrip;
use crate::store::RedisStore;
use call::LimitedCall;
use queue::LocalQueues;
use reply::ScriptReply;
use script_calls::{Operation, ScriptVerb, execute_each};
use sluicegate::backend::Reserved;
use sluicegate::backend::{Answer, BackendError, Source, StoreFailure};
use sluicegate::{
    Decision, IntoLimits, Key, Limit, Limiter, Receipt, ReserveOptions, Span, Time, Usage, VerbError,
};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::all_of::{
    check_list, check_within_list, next_window_list, peek_list, take_list, usage_list,
};
use sluicegate_core::receipts::{Receipt as Name, Receipts, ReserveCall};
use sluicegate_core::verbs::{Unsupported, Verbs as _};
use sluicegate_core::{Algorithm as _, AnyLimit, AnyState};
use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// A limit, or a list of limits that must all allow a call, for keys that several processes share.
///
/// ```no_run
/// use sluicegate_redis::{RedisLimiter, RedisStore};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1").await?;
/// let replies = RedisLimiter::builder("sliding-log 5/60s").in_store(&store, "reply").build()?;
/// if replies.check("user:42").await?.allowed() {
///     println!("one of five replies per minute, over all processes");
/// }
/// # Ok(())
/// # }
/// ```
///
/// It has the methods of [`sluicegate::Limiter`] with the same arguments and decisions. To switch
/// to a shared store, change the constructor and add `.await?`. The time is the store's, so the
/// clocks of the processes do not matter; methods that end in `_at` take the time as an argument
/// instead, for tests and replays. Clones share one limiter.
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
    compiled: Vec<AnyLimit>,
    /// Identifies the limits that a receipt was written for.
    tags: String,
    preserve_recovery_time: bool,
    fallback: Fallback<Limiter>,
    /// The owner of the limiter's entries in the denial cache, if it uses the cache.
    denial_owner: Option<Arc<str>>,
    /// The waiters of this process, under limits that cannot reserve a time.
    queues: LocalQueues,
}

impl RedisLimiter {
    /// Builds a limiter from a limit, or from a list of limits that must all allow a call.
    /// [`RedisLimiterBuilder::in_store`] sets its store.
    pub fn builder(limits: impl IntoLimits) -> RedisLimiterBuilder {
        RedisLimiterBuilder::new(limits.into_limits())
    }

    /// Decides a call of cost 1, and charges the key if it is allowed.
    ///
    /// # Errors
    /// If the store gives no answer, and the limiter has no fallback.
    pub async fn check(&self, key: impl Key) -> Result<Answer, StoreFailure> {
        self.check_cost(key, 1).await
    }

    /// Decides a call of this cost, and charges the key if it is allowed. Cost 0 is always allowed
    /// and changes nothing.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn check_cost(&self, key: impl Key, cost: u64) -> Result<Answer, StoreFailure> {
        self.inner.check(&key.to_bytes(), cost, None).await
    }

    /// Like [`RedisLimiter::check_cost`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn check_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Answer, StoreFailure> {
        self.inner.check(&key.to_bytes(), cost, Some(now)).await
    }

    /// Decides a call without charging the key. (Only where more receipts have expired than one
    /// script call can close, it closes some of them, and so do the other verbs that only look.)
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn peek(&self, key: impl Key, cost: u64) -> Result<Answer, StoreFailure> {
        self.inner.peek(&key.to_bytes(), cost, None).await
    }

    /// Like [`RedisLimiter::peek`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn peek_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Answer, StoreFailure> {
        self.inner.peek(&key.to_bytes(), cost, Some(now)).await
    }

    /// Charges `up_to`, or as much of it as remains, and returns how much was charged. If nothing
    /// remains, the answer is the denial of cost 1.
    ///
    /// # Errors
    /// If the limit does not support it (`count=all`, `smooth`), or the store gives no answer and
    /// the limiter has no fallback.
    pub async fn take(&self, key: impl Key, up_to: u64) -> Result<(Answer, u64), BackendError> {
        self.inner.take(&key.to_bytes(), up_to, None).await
    }

    /// Like [`RedisLimiter::take`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::take`].
    pub async fn take_at(&self, key: impl Key, up_to: u64, now: Time) -> Result<(Answer, u64), BackendError> {
        self.inner.take(&key.to_bytes(), up_to, Some(now)).await
    }

    /// Returns cost that was charged for work that did not happen. The answer is the decision for
    /// cost 0.
    ///
    /// # Errors
    /// If the limit does not support it (a pacer, `smooth` with a warm-up), or the store gives no
    /// answer and the limiter has no fallback.
    pub async fn refund(&self, key: impl Key, cost: u64) -> Result<Answer, BackendError> {
        self.inner.refund(&key.to_bytes(), cost, None).await
    }

    /// Like [`RedisLimiter::refund`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::refund`].
    pub async fn refund_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Answer, BackendError> {
        self.inner.refund(&key.to_bytes(), cost, Some(now)).await
    }

    /// Charges the key now; the caller acts after the answer's delay, which is at most `max_wait`.
    /// Buckets may borrow what refills in that time; other limits decide as for a check.
    ///
    /// # Errors
    /// If the options do not fit, the limit does not support it (`count=all`, `smooth`; `pacer`
    /// with at least some cost), the key has too many open receipts, or the store gives no answer
    /// and the limiter has no fallback.
    pub async fn reserve(
        &self,
        key: impl Key,
        cost: u64,
        options: impl Into<ReserveOptions>,
    ) -> Result<RedisReservation, BackendError> {
        let options = options.into();
        let reserved = self.inner.reserve(&key.to_bytes(), cost, options, None).await?;
        Ok(RedisReservation::new(vec![self.clone()], reserved, &options))
    }

    /// Like [`RedisLimiter::reserve`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::reserve`].
    pub async fn reserve_at(
        &self,
        key: impl Key,
        cost: u64,
        options: impl Into<ReserveOptions>,
        now: Time,
    ) -> Result<RedisReservation, BackendError> {
        let options = options.into();
        let reserved = self.inner.reserve(&key.to_bytes(), cost, options, Some(now)).await?;
        Ok(RedisReservation::new(vec![self.clone()], reserved, &options))
    }

    /// Charges the key now; the caller acts after the answer's delay, which is at most `max_wait`.
    /// Like a reservation, but without a receipt. Under `smooth` this is how callers wait.
    ///
    /// # Errors
    /// If the limit does not support it (`count=all`), or the store gives no answer and the limiter
    /// has no fallback.
    pub async fn check_within(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Answer, BackendError> {
        self.inner.check_within(&key.to_bytes(), cost, max_wait.into(), None).await
    }

    /// Like [`RedisLimiter::check_within`], at time `now`.
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

    /// Cancels a reservation: the part of its cost that still counts is returned to the key.
    /// Returns `false` if there is no such part, or if the receipt is unknown or has already been
    /// used.
    ///
    /// # Errors
    /// If the receipt was not issued by a shared store, or the store gives no answer.
    pub async fn cancel(&self, receipt: &Receipt) -> Result<bool, BackendError> {
        self.inner.cancel(receipt, None).await
    }

    /// Like [`RedisLimiter::cancel`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::cancel`].
    pub async fn cancel_at(&self, receipt: &Receipt, now: Time) -> Result<bool, BackendError> {
        self.inner.cancel(receipt, Some(now)).await
    }

    /// Changes the charge of a reservation to what was used: any rest is returned, and any excess
    /// becomes debt. Returns `false` if the receipt is unknown or has already been used.
    ///
    /// # Errors
    /// As [`RedisLimiter::cancel`].
    pub async fn settle(&self, receipt: &Receipt, used: u64) -> Result<bool, BackendError> {
        self.inner.settle(receipt, &[used], None).await
    }

    /// Like [`RedisLimiter::settle`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::cancel`].
    pub async fn settle_at(&self, receipt: &Receipt, used: u64, now: Time) -> Result<bool, BackendError> {
        self.inner.settle(receipt, &[used], Some(now)).await
    }

    /// Settles a reservation of several calls for what they actually used: see
    /// [`RedisLimiter::settle`]. There is one number for all calls, or one for each, in their
    /// order. All their keys must be in this limiter's scope; of others see
    /// [`settle_all`](crate::settle_all).
    ///
    /// # Errors
    /// As [`RedisLimiter::cancel`], and if there is another count of numbers; the receipt then
    /// stays open.
    pub async fn settle_each(&self, receipt: &Receipt, used: &[u64]) -> Result<bool, BackendError> {
        self.inner.settle(receipt, used, None).await
    }

    /// Like [`RedisLimiter::settle_each`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::settle_each`].
    pub async fn settle_each_at(
        &self,
        receipt: &Receipt,
        used: &[u64],
        now: Time,
    ) -> Result<bool, BackendError> {
        self.inner.settle(receipt, used, Some(now)).await
    }

    /// Charges more to a reservation, as a reservation without a maximum wait would, and adds it to
    /// the receipt. The receipt's time to live starts again, with the length `ttl` if one is given;
    /// so does the hour for which other receipts are kept. At cost 0 nothing else happens.
    ///
    /// # Errors
    /// As [`RedisLimiter::cancel`]; if the receipt is not open ([`VerbError::NotOpen`]), the TTL is
    /// out of bounds, or the key has too many open receipts: an extension counts like one. Then
    /// nothing changes. A denial is not an error, and restarts nothing.
    pub async fn extend(
        &self,
        receipt: &Receipt,
        cost: u64,
        ttl: Option<Duration>,
    ) -> Result<Answer, BackendError> {
        self.inner.extend(receipt, &[cost], ttl.map(Into::into), None).await
    }

    /// Like [`RedisLimiter::extend`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::extend`].
    pub async fn extend_at(
        &self,
        receipt: &Receipt,
        cost: u64,
        ttl: Option<Duration>,
        now: Time,
    ) -> Result<Answer, BackendError> {
        self.inner.extend(receipt, &[cost], ttl.map(Into::into), Some(now)).await
    }

    /// Charges more to a reservation of several calls, all or nothing: see
    /// [`RedisLimiter::extend`]. There is one number for all calls, or one for each, in their
    /// order. All their keys must be in this limiter's scope; of others see
    /// [`extend_all`](crate::extend_all).
    ///
    /// # Errors
    /// As [`RedisLimiter::extend`], and if there is another count of numbers.
    pub async fn extend_each(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
    ) -> Result<Answer, BackendError> {
        self.inner.extend(receipt, costs, ttl.map(Into::into), None).await
    }

    /// Like [`RedisLimiter::extend_each`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::extend_each`].
    pub async fn extend_each_at(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
        now: Time,
    ) -> Result<Answer, BackendError> {
        self.inner.extend(receipt, costs, ttl.map(Into::into), Some(now)).await
    }

    /// Returns when the key's next window starts, or its next unit is available, rounded up. For an
    /// idle bucket or log, this is now.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn next_window(&self, key: impl Key) -> Result<Time, StoreFailure> {
        self.inner.next_window(&key.to_bytes(), None).await
    }

    /// Like [`RedisLimiter::next_window`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::next_window`].
    pub async fn next_window_at(&self, key: impl Key, now: Time) -> Result<Time, StoreFailure> {
        self.inner.next_window(&key.to_bytes(), Some(now)).await
    }

    /// Returns what the key has used under each limit, in their order. Changes nothing.
    ///
    /// # Errors
    /// If the store gives no answer: only the store knows.
    pub async fn usage(&self, key: impl Key) -> Result<Vec<(Limit, Usage)>, StoreFailure> {
        self.inner.usage(&key.to_bytes(), None).await
    }

    /// Like [`RedisLimiter::usage`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisLimiter::usage`].
    pub async fn usage_at(&self, key: impl Key, now: Time) -> Result<Vec<(Limit, Usage)>, StoreFailure> {
        self.inner.usage(&key.to_bytes(), Some(now)).await
    }

    /// Deletes the key's state. Its receipts become void.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn reset(&self, key: impl Key) -> Result<(), StoreFailure> {
        self.inner.reset(&[&key.to_bytes()]).await
    }

    /// Deletes the state of several keys in one round trip.
    ///
    /// # Errors
    /// If the store gives no answer. The state of some keys may have been deleted.
    pub async fn reset_each<K: Key>(&self, keys: &[K]) -> Result<(), StoreFailure> {
        let keys: Vec<Cow<'_, [u8]>> = keys.iter().map(Key::to_bytes).collect();
        self.inner.reset(&keys.iter().map(AsRef::as_ref).collect::<Vec<_>>()).await
    }

    /// Describes a call, to be made with others: see [`check_all`] and [`check_each`].
    pub fn call(&self, key: impl Key, cost: u64) -> RedisCall<'_> {
        let key = Cow::Owned(key.to_bytes().into_owned());
        RedisCall::new(LimitedCall { inner: &self.inner, key, cost, at: None })
    }

    /// The limits.
    pub fn limits(&self) -> Arc<[Limit]> {
        Arc::clone(&self.inner.limits)
    }

    /// The scope that the limiter's keys belong to.
    pub fn scope(&self) -> &str {
        &self.inner.scope
    }
}

/// The verbs, for keys as bytes. `at` is the time of the call; `None` is the store's time.
impl Inner {
    pub(crate) async fn check(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        at: Option<Time>,
    ) -> Result<Answer, StoreFailure> {
        let answers = check_each(&[RedisCall::new(self.call(key, cost, at))]).await;
        answers.into_iter().next().unwrap_or_else(|| Err(bad_state()))
    }

    pub(crate) async fn peek(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        at: Option<Time>,
    ) -> Result<Answer, StoreFailure> {
        let states = self.execute_states(self.call(key, cost, at), ScriptVerb::Read).await;
        let peeked = states.map(|(_, now, states)| peek_list(&self.compiled, &states, now, cost));
        self.answered(peeked, |limiter| Some(limiter.peek(key, cost)))
    }

    pub(crate) async fn take(
        self: &Arc<Inner>,
        key: &[u8],
        up_to: u64,
        at: Option<Time>,
    ) -> Result<(Answer, u64), BackendError> {
        self.require(Verb::Take)?;
        let decided = async {
            let (success, now, mut states) =
                self.execute_states(self.call(key, up_to, at), ScriptVerb::Take).await?;
            let taken = take_list(&self.compiled, &mut states, now, up_to);
            let (decision, taken) = taken.unwrap_or_else(|_| unreachable_verb());
            // A take of 0 only reads the state.
            require_agreement(success && up_to > 0, taken > 0)?;
            Ok((decision, taken))
        };
        let (decision, mut taken) = match decided.await {
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
        self.require(Verb::Refund)?;
        let _invalidate = self.invalidate_denials(key);
        let states = self.execute_states(self.call(key, cost, at), ScriptVerb::Refund).await;
        let refunded = states.map(|(_, now, states)| peek_list(&self.compiled, &states, now, 0));
        Ok(self.answered(refunded, |limiter| limiter.refund(key, cost).ok())?)
    }

    pub(crate) async fn reserve(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        options: ReserveOptions,
        at: Option<Time>,
    ) -> Result<Reserved, BackendError> {
        options.checked(cost)?;
        let verb = if options.at_least.is_some() { Verb::ReserveAtLeast } else { Verb::Reserve };
        self.require(verb)?;
        let _invalidate = self.invalidate_denials(key);
        let receipt = StoredReceipt::new(&self.scope, key);
        let verb = ScriptVerb::Reserve { receipt: &receipt, options };
        let reserved = async {
            let mut round_trip = self.admit(verb).await?;
            self.decide_reserve(&mut round_trip, self.call(key, cost, at), verb, options).await
        };
        let mut granted = cost;
        let reserved = match reserved.await {
            Ok(None) => return Err(VerbError::TooManyReceiptsOfKey.into()),
            Ok(Some((decision, of_store))) => {
                granted = of_store;
                Ok(decision)
            }
            Err(failure) => Err(failure),
        };
        // A fallback issues no receipt: it would be valid in this process only.
        let answer = self.answered(reserved, |limiter| {
            // Without a receipt nothing can be settled, so the charge stays.
            let mut options = options;
            options.ttl = None;
            let reserved = limiter.reserve(key, cost, options).ok()?;
            granted = reserved.granted();
            Some(reserved.decision())
        })?;
        let is_stored = answer.allowed() && answer.source() == Source::Store;
        let granted = if answer.allowed() { granted } else { 0 };
        Ok(Reserved::new(answer, granted, is_stored.then(|| receipt.receipt())))
    }

    pub(crate) async fn check_within(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        max_wait: Span,
        at: Option<Time>,
    ) -> Result<Answer, BackendError> {
        self.require(Verb::CheckWithin)?;
        let _invalidate = self.invalidate_denials(key);
        let decision = self.decide_within(self.call(key, cost, at), max_wait).await;
        Ok(self.answered(decision, |limiter| limiter.check_within(key, cost, max_wait.into()).ok())?)
    }

    pub(crate) async fn next_window(
        self: &Arc<Inner>,
        key: &[u8],
        at: Option<Time>,
    ) -> Result<Time, StoreFailure> {
        let (_, now, states) =
            self.counted(self.execute_states(self.call(key, 0, at), ScriptVerb::Read).await)?;
        Ok(next_window_list(&self.compiled, &states, now))
    }

    pub(crate) async fn usage(
        self: &Arc<Inner>,
        key: &[u8],
        at: Option<Time>,
    ) -> Result<Vec<(Limit, Usage)>, StoreFailure> {
        let (_, now, states) =
            self.counted(self.execute_states(self.call(key, 0, at), ScriptVerb::Read).await)?;
        Ok(self.limits.iter().cloned().zip(usage_list(&self.compiled, &states, now)).collect())
    }

    pub(crate) async fn reset(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        if let Some(local) = self.fallback.local() {
            for key in keys {
                local.reset(key);
            }
        }
        let _invalidate: Vec<_> = keys.iter().map(|key| self.invalidate_denials(key)).collect();
        self.counted(self.reset_states(keys).await)
    }

    pub(crate) fn limits(&self) -> Arc<[Limit]> {
        Arc::clone(&self.limits)
    }

    fn call<'a>(self: &'a Arc<Inner>, key: &'a [u8], cost: u64, at: Option<Time>) -> LimitedCall<'a> {
        LimitedCall { inner: self, key: Cow::Borrowed(key), cost, at }
    }

    /// Fails unless all limits support the verb.
    fn require(&self, verb: Verb) -> Result<(), Unsupported> {
        self.compiled.iter().try_for_each(|limit| limit.require(verb))
    }

    /// Executes one call.
    async fn execute(
        &self,
        call: LimitedCall<'_>,
        verb: ScriptVerb<'_>,
    ) -> Result<ScriptReply, StoreFailure> {
        let mut round_trip = self.admit(verb).await?;
        self.execute_in(&mut round_trip, call, verb).await
    }

    /// Waits until a call may be sent.
    async fn admit(&self, verb: ScriptVerb<'_>) -> Result<RoundTrip<'_>, StoreFailure> {
        if verb.is_always_sent() {
            return Ok(self.store.inner.admit_return(1).await);
        }
        self.store.inner.admit(1).await
    }

    async fn execute_in(
        &self,
        round_trip: &mut RoundTrip<'_>,
        call: LimitedCall<'_>,
        verb: ScriptVerb<'_>,
    ) -> Result<ScriptReply, StoreFailure> {
        let operations = [Operation { calls: slice::from_ref(&call), verb }];
        let replies = execute_each(round_trip, &operations).await;
        replies.into_iter().next().unwrap_or_else(|| Err(bad_state()))
    }

    /// Executes one call and decodes the states in the reply.
    async fn execute_states(
        &self,
        call: LimitedCall<'_>,
        verb: ScriptVerb<'_>,
    ) -> Result<(bool, Time, Vec<AnyState>), StoreFailure> {
        self.states(self.execute(call, verb).await?)
    }

    async fn decide_within(&self, call: LimitedCall<'_>, max_wait: Span) -> Result<Decision, StoreFailure> {
        let cost = call.cost;
        let (success, now, mut states) = self.execute_states(call, ScriptVerb::Within { max_wait }).await?;
        let decided = check_within_list(&self.compiled, &mut states, now, cost, max_wait);
        let decision = decided.unwrap_or_else(|_| unreachable_verb());
        require_agreement(success, decision.allowed())?;
        Ok(decision)
    }

    /// Decides a reservation, and what it is granted. Returns `None` if the key has too many open
    /// receipts.
    async fn decide_reserve(
        &self,
        round_trip: &mut RoundTrip<'_>,
        call: LimitedCall<'_>,
        verb: ScriptVerb<'_>,
        options: ReserveOptions,
    ) -> Result<Option<(Decision, u64)>, StoreFailure> {
        let cost = call.cost;
        let (success, now, mut states) = match self.execute_in(round_trip, call, verb).await? {
            ScriptReply::TooManyReceipts => return Ok(None),
            reply => self.states(reply)?,
        };
        let reserve = ReserveCall { cost, receipt: Name(0), terms: options.terms() };
        let reserved = Receipts::default().reserve(&self.compiled, &mut states, now, reserve);
        let (decision, granted) = reserved.unwrap_or_else(|_| unreachable_verb());
        require_agreement(success, decision.allowed())?;
        Ok(Some((decision, granted)))
    }

    /// Recomputes the decision of a check from the states before the check.
    fn decided(&self, reply: ScriptReply, cost: u64) -> Result<Decision, StoreFailure> {
        let (success, now, mut states) = self.states(reply)?;
        let decision = match (self.encoded.as_slice(), states.as_slice()) {
            _ if cost == 0 => peek_list(&self.compiled, &states, now, 0),
            // The script has already recorded the denied call, so the log in its reply includes
            // that call.
            ([encoded], [state]) if !success && encoded.counts_denied() && cost <= encoded.limit.limit() => {
                encoded.limit.peek(state, now, cost)
            }
            _ => check_list(&self.compiled, &mut states, now, cost),
        };
        require_agreement(success, decision.allowed())?;
        Ok(decision)
    }

    /// Returns whether the script succeeded, its time, and the state under each limit.
    fn states(&self, reply: ScriptReply) -> Result<(bool, Time, Vec<AnyState>), StoreFailure> {
        let ScriptReply::Decided { success, now, states } = reply else { return Err(bad_state()) };
        let read = self
            .encoded
            .iter()
            .zip(&states)
            .map(|(encoded, raw)| encoded.read(raw, now, self.preserve_recovery_time));
        let states: Option<Vec<AnyState>> = read.collect();
        let states = states.filter(|states| states.len() == self.encoded.len()).ok_or_else(bad_state)?;
        Ok((success, now, states))
    }

    /// Returns the store's answer, or the fallback's.
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

/// Fails unless the script and the core made the same decision.
fn require_agreement(script: bool, core: bool) -> Result<(), StoreFailure> {
    if script == core {
        return Ok(());
    }
    Err(StoreFailure::BadReply(String::from(
        "the store's script and this process decided differently; run the same version in all processes",
    )))
}

/// Stands in for an error that cannot occur: all limits are known to support the verb.
fn unreachable_verb<T>() -> T {
    unreachable!("all limits support the verb")
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
