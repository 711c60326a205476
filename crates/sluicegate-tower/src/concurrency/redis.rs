//! Places in a shared store: every answer is a trip there, and a place is returned by a task.

use super::places::{Granted, Places};
use crate::backend::{Step, Undecided};
use crate::key::RequestKey;
use sluicegate_redis::{RedisSemaphore, SharedLease, Source};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

impl Places for RedisSemaphore {
    type Lease = SharedLease;
    type Asking = Pin<Box<dyn Future<Output = Result<Granted<SharedLease>, Undecided>> + Send>>;

    fn ask(&self, key: &RequestKey<'_>, cost: u32, max_wait: Option<Duration>) -> Step<Self::Asking> {
        let (semaphore, key) = (self.clone(), key.to_bytes().into_owned());
        Step::Later(Box::pin(async move {
            let asked = match max_wait {
                None => semaphore.try_acquire(key, cost).await,
                Some(max_wait) => semaphore.acquire_within(key, cost, max_wait).await,
            };
            let grant = asked.map_err(|failure| Undecided::for_now(failure.to_string()))?;
            if grant.source() == Source::Denied {
                // No denial: nobody's places are taken.
                return Err(Undecided::for_now("the store is away, and the semaphore denies then"));
            }
            Ok(Granted { decision: grant.decision(), refusal: grant.refusal(), lease: grant.lease() })
        }))
    }
}
