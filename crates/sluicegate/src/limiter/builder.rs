//! Settings of a limiter, each with a default and a bound.

use super::error::BuildError;
use super::observe::Observer;
use super::store_by_algorithm::{StoreByAlgorithm, made};
use super::{Inner, Limiter};
use crate::clock::Clock;
use crate::clock::any::AnyClock;
use crate::gate::Gate;
use crate::key::{Key, Seeds};
use crate::limit::{Limit, LimitError};
use crate::memory_store::{LimiterKind, MemoryStore};
use crate::store::{NoMemory, OnFull, Preserve, Size};
use crate::wait::{Host, QueueBounds, Queues};
use sluicegate_core::Time;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

/// The default maximum of keys: 44 MB for limits with a state of 16 bytes. Less than 1 MB is
/// allocated at once, the rest as keys are inserted.
pub const MAX_KEYS_DEFAULT: usize = 1_000_000;

/// The largest `max_keys`. Two thirds of a byte per key are allocated at once.
pub const MAX_KEYS_MAX: usize = 1_000_000_000;

/// The default maximum of open receipts. Each takes about 200 bytes.
pub const MAX_RECEIPTS_DEFAULT: usize = 100_000;

/// The largest `max_receipts`.
pub const MAX_RECEIPTS_MAX: usize = 10_000_000;

/// The default maximum of log entries of all keys: 128 MB, allocated as calls are recorded.
pub const MAX_LOG_ENTRIES_DEFAULT: usize = 8_000_000;

/// The largest `max_log_entries`: 64 GB.
pub const MAX_LOG_ENTRIES_MAX: usize = 4_000_000_000;

/// The default maximum of waiters in the queue of one key.
pub const MAX_QUEUE_DEFAULT: usize = 1_024;

/// The default maximum of waiters in all queues. Each takes about 150 bytes besides its own future.
pub const MAX_WAITERS_DEFAULT: usize = 100_000;

/// The largest `max_queue` and `max_waiters`.
pub const MAX_WAITERS_MAX: usize = 100_000_000;

/// Builds a [`Limiter`]. Created by [`Limiter::builder`].
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::OnFull;
///
/// let api = Limiter::builder("token-bucket 10/s burst=50")
///     .and("fixed-window 1000/day")
///     .max_keys(200_000)
///     .on_full(OnFull::Deny)
///     .build()?;
/// assert_eq!(api.check("partner-7").limit(), 50);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[must_use]
pub struct LimiterBuilder {
    limits: Result<Vec<Limit>, LimitError>,
    max_keys: usize,
    max_receipts: usize,
    max_log_entries: usize,
    max_queue: usize,
    max_waiters: usize,
    on_full: OnFull,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    start: Option<Time>,
    shared: Option<NamedScope>,
}

/// A scope in a store that other limiters use too.
struct NamedScope {
    store: MemoryStore,
    scope: Box<dyn Key>,
    kind: LimiterKind,
}

impl LimiterBuilder {
    pub(super) fn new(limits: impl IntoLimits) -> LimiterBuilder {
        LimiterBuilder {
            limits: limits.into_limits(),
            max_keys: MAX_KEYS_DEFAULT,
            max_receipts: MAX_RECEIPTS_DEFAULT,
            max_log_entries: MAX_LOG_ENTRIES_DEFAULT,
            max_queue: MAX_QUEUE_DEFAULT,
            max_waiters: MAX_WAITERS_DEFAULT,
            on_full: OnFull::default(),
            clock: AnyClock::System,
            observer: None,
            start: None,
            shared: None,
        }
    }

    /// Adds a limit. A call is charged to all limits or to none.
    pub fn and(mut self, limits: impl IntoLimits) -> LimiterBuilder {
        self.limits = self.limits.and_then(|mut all| {
            all.extend(limits.into_limits()?);
            Ok(all)
        });
        self
    }

    /// Sets the maximum number of keys; the default is [`MAX_KEYS_DEFAULT`]. When that many are
    /// held, a new key takes the slot of a fully recovered one. If there is none,
    /// [`LimiterBuilder::on_full`] applies.
    pub fn max_keys(mut self, max_keys: usize) -> LimiterBuilder {
        self.max_keys = max_keys;
        self
    }

    /// Sets what happens to a new key when the limiter is full of keys that have not recovered.
    pub fn on_full(mut self, on_full: OnFull) -> LimiterBuilder {
        self.on_full = on_full;
        self
    }

    /// Sets the maximum number of open receipts; the default is [`MAX_RECEIPTS_DEFAULT`]. While
    /// that many are open, a reservation is an error.
    pub fn max_receipts(mut self, max_receipts: usize) -> LimiterBuilder {
        self.max_receipts = max_receipts;
        self
    }

    /// Sets the maximum number of log entries of all keys; the default is
    /// [`MAX_LOG_ENTRIES_DEFAULT`]. Every call that a `sliding-log` records takes one entry of 16
    /// bytes. When all are in use, a fully recovered log makes room. If there is none,
    /// [`LimiterBuilder::on_full`] applies.
    pub fn max_log_entries(mut self, max_log_entries: usize) -> LimiterBuilder {
        self.max_log_entries = max_log_entries;
        self
    }

    /// Sets the maximum number of waiters per key; the default is [`MAX_QUEUE_DEFAULT`]. A call
    /// beyond it is denied at once.
    pub fn max_queue(mut self, max_queue: usize) -> LimiterBuilder {
        self.max_queue = max_queue;
        self
    }

    /// Sets the maximum number of waiters over all keys; the default is [`MAX_WAITERS_DEFAULT`].
    pub fn max_waiters(mut self, max_waiters: usize) -> LimiterBuilder {
        self.max_waiters = max_waiters;
        self
    }

    /// Sets the clock. Tests use a [`ManualClock`](crate::clock::ManualClock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> LimiterBuilder {
        self.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Sets the time at which the limiter counts as created, for limits that depend on it:
    /// `initial` without `start`. The default is now.
    pub fn start(mut self, start: Time) -> LimiterBuilder {
        self.start = Some(start);
        self
    }

    /// Sets an observer that receives every decision.
    pub fn observer(mut self, observer: impl Observer + 'static) -> LimiterBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Keeps the keys in a store that other limiters use too, in a scope of their own. The store's
    /// `max_keys`, `max_receipts`, `max_log_entries`, `max_queue`, `max_waiters`, `on_full` and
    /// clock are used instead of this builder's.
    pub fn in_store(mut self, store: &MemoryStore, scope: impl Key + 'static) -> LimiterBuilder {
        self.shared =
            Some(NamedScope { store: store.clone(), scope: Box::new(scope), kind: LimiterKind::default() });
        self
    }

    /// Makes a key that other limits of the same scope have charged keep the time until it is full
    /// instead of the tokens that it has used. This is how redis-cell applies new parameters to a
    /// key. Only for buckets in a [`MemoryStore`].
    pub fn preserve_recovery_time(mut self) -> LimiterBuilder {
        if let Some(shared) = &mut self.shared {
            shared.kind.preserve = Preserve::RecoveryTime;
        }
        self
    }

    /// Marks the limits as untrusted: chosen by callers. In a [`MemoryStore`] all untrusted limits
    /// together have one share of the keys, and at most three quarters of the table of limits, so
    /// that callers cannot fill it.
    pub fn untrusted(mut self) -> LimiterBuilder {
        if let Some(shared) = &mut self.shared {
            shared.kind.untrusted = true;
        }
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    /// If a text is not a limit, limits do not go together, a number is out of bounds, or the
    /// system has no memory for that many keys.
    pub fn build(self) -> Result<Limiter, BuildError> {
        let limits = list(self.limits)?;
        if let Some(NamedScope { store, scope, kind }) = self.shared {
            let handle = store.attach(&*scope, &limits, kind, self.start)?;
            return Ok(Limiter::in_store(handle, store, limits, kind, self.observer));
        }
        let max_keys = within("max_keys", self.max_keys, 1, MAX_KEYS_MAX)?;
        let max_receipts = within("max_receipts", self.max_receipts, 0, MAX_RECEIPTS_MAX)?;
        // Read here in any case: the first reading of the system clock measures the counter's rate.
        let now = self.clock.now();
        let start = self.start.unwrap_or(now);
        let max_log_entries = within("max_log_entries", self.max_log_entries, 1, MAX_LOG_ENTRIES_MAX)?;
        let size = Size { max_keys, max_receipts, max_log_entries, on_full: self.on_full };
        let bounds = queue_bounds(self.max_queue, self.max_waiters)?;
        let store = StoreByAlgorithm::new(made(&limits, start, &self.clock.utc_ahead())?, size)
            .map_err(|NoMemory| BuildError::NoMemory { max_keys })?;
        let inner = |own: &Weak<Inner>| Inner {
            queues: Queues::new(bounds, own.clone() as Weak<dyn Host>),
            store,
            seeds: Arc::new(Seeds::random()),
            clock: self.clock,
            observer: self.observer,
            start,
            limits: Mutex::new(limits.into()),
            changes: AtomicU64::default(),
            next_receipt: Arc::default(),
            seal: Arc::default(),
            scope: None,
        };
        Ok(Limiter { inner: Arc::new_cyclic(inner) })
    }

    /// Builds a limiter without keys: one limit for all calls. It has a store of its own with a
    /// single key, whatever `max_keys` is.
    ///
    /// # Errors
    /// As [`LimiterBuilder::build`].
    pub fn build_gate(mut self) -> Result<Gate, BuildError> {
        self.shared = None;
        Ok(Gate::of(self.max_keys(1).build()?))
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimiterBuilder { limits, max_keys, max_receipts, max_queue, max_waiters, .. } = self;
        let LimiterBuilder { on_full, clock, start, .. } = self;
        f.debug_struct("LimiterBuilder")
            .field("limits", limits)
            .field("max_keys", max_keys)
            .field("max_receipts", max_receipts)
            .field("max_queue", max_queue)
            .field("max_waiters", max_waiters)
            .field("on_full", on_full)
            .field("clock", clock)
            .field("start", start)
            .finish_non_exhaustive()
    }
}

/// One limit or several, as text or parsed. A text may be a list: `A + B`.
pub trait IntoLimits {
    /// The limits.
    ///
    /// # Errors
    /// If a text is not a limit or a list of limits.
    fn into_limits(self) -> Result<Vec<Limit>, LimitError>;
}

impl IntoLimits for &str {
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        Limit::parse_list(self)
    }
}

impl IntoLimits for &String {
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        self.as_str().into_limits()
    }
}

impl IntoLimits for String {
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        self.as_str().into_limits()
    }
}

impl IntoLimits for Limit {
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        Ok(vec![self])
    }
}

impl IntoLimits for &Limit {
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        self.clone().into_limits()
    }
}

impl<L: IntoLimits> IntoLimits for Vec<L> {
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        let lists: Result<Vec<Vec<Limit>>, LimitError> = self.into_iter().map(L::into_limits).collect();
        Ok(lists?.concat())
    }
}

impl<L: IntoLimits, const N: usize> IntoLimits for [L; N] {
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        Vec::from(self).into_limits()
    }
}

macro_rules! tuples {
    ($(($($limits:ident)+))*) => {
        $(impl<$($limits: IntoLimits),+> IntoLimits for ($($limits,)+) {
            #[allow(non_snake_case, reason = "a part is named like its type")]
            fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
                let ($($limits,)+) = self;
                Ok([$($limits.into_limits()?),+].concat())
            }
        })*
    };
}

tuples! {
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E F)
    (A B C D E F G)
    (A B C D E F G H)
}

impl<L> IntoLimits for &[L]
where
    L: Clone + IntoLimits,
{
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        self.to_vec().into_limits()
    }
}

impl<L> IntoLimits for &Vec<L>
where
    L: Clone + IntoLimits,
{
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        self.as_slice().into_limits()
    }
}

impl<L, const N: usize> IntoLimits for &[L; N]
where
    L: Clone + IntoLimits,
{
    fn into_limits(self) -> Result<Vec<Limit>, LimitError> {
        self.as_slice().into_limits()
    }
}

/// The bounds of the queues.
pub(crate) fn queue_bounds(max_queue: usize, max_waiters: usize) -> Result<QueueBounds, BuildError> {
    Ok(QueueBounds {
        per_key: within("max_queue", max_queue, 0, MAX_WAITERS_MAX)?,
        total: within("max_waiters", max_waiters, 0, MAX_WAITERS_MAX)?,
    })
}

/// Checks that limits go together.
pub(crate) fn list(limits: Result<Vec<Limit>, LimitError>) -> Result<Vec<Limit>, BuildError> {
    let limits = limits?;
    Limit::check_list(&limits)?;
    Ok(limits)
}

/// Checks a setting.
///
/// # Errors
/// If it is out of bounds.
pub fn within(name: &'static str, value: usize, least: usize, most: usize) -> Result<usize, BuildError> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(BuildError::OutOfBounds { name, value, least, most })
    }
}
