//! A shared store as a subject of the conformance suite.

use crate::support::connect;
use sluicegate::backend::Pending;
use sluicegate::{Limit, Time};
use sluicegate_conformance::{BackendSubject, Wait};
use sluicegate_redis::{RedisLimiter, RedisStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Runtime;

/// A store, and a runtime that runs its calls one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) store: RedisStore,
}

impl Connected {
    /// Connects to a server that may be slow, because other tests run too.
    pub(crate) fn to(url: &str) -> Connected {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = runtime.block_on(connect(url));
        Connected { runtime: Arc::new(runtime), store }
    }

    /// A limiter that starts at `start`, in a scope of its own. A change is another limiter of that
    /// scope.
    pub(crate) fn subject(&self, limits: &[Limit], start: Time) -> BackendSubject<Connected> {
        static SCOPES: AtomicU64 = AtomicU64::new(0);
        let scope = format!("case{}", SCOPES.fetch_add(1, Ordering::Relaxed));
        let store = self.store.clone();
        let limiter = move |limits: &[Limit], start| {
            RedisLimiter::builder(limits).in_store(&store, &scope).start(start).build().unwrap()
        };
        BackendSubject::new(limiter(limits, start), self.clone())
            .changed_by(move |limits, start| Some(Box::new(limiter(limits, start))))
    }
}

impl Wait for Connected {
    fn wait<T>(&self, pending: Pending<T>) -> T {
        self.runtime.block_on(pending.into_future())
    }

    fn latest() -> Time {
        Time::from_micros((1 << 53) - 2 * 3_153_600_000_000_000 - 10).unwrap()
    }
}
