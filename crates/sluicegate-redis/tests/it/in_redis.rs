//! The library on a shared store as a subject of the suite.

use crate::support::connect;
use sluicegate::core::verbs::NotOffered;
use sluicegate::{BackendError, Receipt};
use sluicegate::{Decision, Limit, Span, Time};
use sluicegate_conformance::{Answer, OneKey, Subject};
use sluicegate_redis::{RedisLimiter, RedisStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Runtime;

/// A store, and what runs its calls one at a time.
#[derive(Clone)]
pub(crate) struct Connected {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) store: RedisStore,
}

impl Connected {
    /// To a server that may be slow, as others run tests too.
    pub(crate) fn to(url: &str) -> Connected {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = runtime.block_on(connect(url));
        Connected { runtime: Arc::new(runtime), store }
    }
}

/// A limiter with keys of its own, asked one call at a time and at the suite's times.
pub(crate) struct InRedis {
    runtime: Arc<Runtime>,
    pub(crate) limiter: RedisLimiter,
    receipts: Vec<Receipt>,
}

/// The key that [`OneKey`] is about.
const KEY: &str = "Harry";

static SCOPES: AtomicU64 = AtomicU64::new(0);

impl InRedis {
    /// A limiter made at `start`, in a scope of its own.
    pub(crate) fn new(connected: &Connected, limits: &[Limit], start: Time) -> InRedis {
        let scope = format!("case{}", SCOPES.fetch_add(1, Ordering::Relaxed));
        let builder = RedisLimiter::builder(limits).in_store(&connected.store, &scope).start(start);
        InRedis {
            runtime: Arc::clone(&connected.runtime),
            limiter: builder.build().unwrap(),
            receipts: Vec::new(),
        }
    }
}

impl Subject for InRedis {
    fn check(&mut self, at: Time, key: &[u8], cost: u32) -> Answer {
        self.runtime.block_on(self.limiter.check_at(key, cost, at)).unwrap().decision().into()
    }

    fn latest() -> Time {
        Time::from_micros((1 << 53) - 2 * 3_153_600_000_000_000 - 10).unwrap()
    }
}

fn offered<T>(asked: Result<T, BackendError>) -> Result<T, NotOffered> {
    match asked {
        Ok(answered) => Ok(answered),
        Err(BackendError::NotOffered(refused)) => Err(refused),
        Err(error) => panic!("{error}"),
    }
}

impl OneKey for InRedis {
    type Receipt = usize;

    fn check(&mut self, now: Time, cost: u32) -> Decision {
        self.runtime.block_on(self.limiter.check_at(KEY, cost, now)).unwrap().decision()
    }

    fn peek(&mut self, now: Time, cost: u32) -> Decision {
        self.runtime.block_on(self.limiter.peek_at(KEY, cost, now)).unwrap().decision()
    }

    fn take(&mut self, now: Time, up_to: u32) -> Result<(Decision, u32), NotOffered> {
        let taken = self.runtime.block_on(self.limiter.take_at(KEY, up_to, now));
        offered(taken).map(|(answer, taken)| (answer.decision(), taken))
    }

    fn refund(&mut self, now: Time, cost: u32) -> Result<Decision, NotOffered> {
        let refunded = self.runtime.block_on(self.limiter.refund_at(KEY, cost, now));
        offered(refunded).map(|answer| answer.decision())
    }

    fn reserve(
        &mut self,
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<(Decision, Option<usize>), NotOffered> {
        let reserved = offered(self.runtime.block_on(self.limiter.reserve_at(KEY, cost, max_wait, now)))?;
        let decision = reserved.decision();
        let place = reserved.keep().map(|receipt| {
            self.receipts.push(receipt);
            self.receipts.len() - 1
        });
        Ok((decision, place))
    }

    fn check_within(&mut self, now: Time, cost: u32, max_wait: Span) -> Result<Decision, NotOffered> {
        let checked = self.runtime.block_on(self.limiter.check_within_at(KEY, cost, max_wait, now));
        offered(checked).map(|answer| answer.decision())
    }

    fn cancel(&mut self, now: Time, receipt: usize) -> bool {
        self.runtime.block_on(self.limiter.cancel_at(&self.receipts[receipt], now)).unwrap()
    }

    fn settle(&mut self, now: Time, receipt: usize, used: u32) -> bool {
        self.runtime.block_on(self.limiter.settle_at(&self.receipts[receipt], used, now)).unwrap()
    }

    fn next_window(&mut self, now: Time) -> Time {
        self.runtime.block_on(self.limiter.next_window_at(KEY, now)).unwrap()
    }

    fn reset(&mut self) {
        self.runtime.block_on(self.limiter.reset(KEY)).unwrap();
    }

    fn latest() -> Time {
        <InRedis as Subject>::latest()
    }
}
