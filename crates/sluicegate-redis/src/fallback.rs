//! Answers without the store, as `on_store_failure` says, for limiters and semaphores.

use crate::failure::OnStoreFailure;
use crate::store::RedisStore;
use sluicegate::BuildError;
use sluicegate::backend::{Answer, Source};
use sluicegate::internal::within;
use sluicegate::semaphore::Semaphore;
use sluicegate::{Decision, Limit, Limiter, RetryAfter, Span};
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_core::decision::store::{by_no_limit, unlimited};

/// The `retry_after` of a call that is denied because the store fails.
pub(crate) const RETRY_AFTER: Span = Span::from_micros(1_000_000);

/// What answers while the store fails. `L` decides in this process's memory.
pub(crate) enum Fallback<L> {
    Error,
    Allow { limit: u64 },
    Deny { limit: u64 },
    Local(L),
}

impl OnStoreFailure {
    /// The answer to calls that are decided all or nothing while the store is unavailable: denied
    /// if one of them fails closed, allowed if all of them fail open. `None` if there is no answer:
    /// a call that is decided locally could not be rolled back for another that is denied.
    pub fn answer_all(calls: impl IntoIterator<Item = OnStoreFailure>) -> Option<Answer> {
        let (mut fails_closed, mut all_fail_open) = (false, true);
        for call in calls {
            fails_closed |= call == OnStoreFailure::Deny;
            all_fail_open &= call == OnStoreFailure::Allow;
        }
        let fallback = match (fails_closed, all_fail_open) {
            (true, _) => Fallback::<()>::Deny { limit: 0 },
            (false, true) => Fallback::Allow { limit: COUNT_MAX },
            (false, false) => Fallback::Error,
        };
        fallback.answer(|()| None)
    }
}

impl<L> Fallback<L> {
    /// `limit` is what an answer reports that no limit decided; `local` builds what decides in
    /// memory.
    fn new(
        on_store_failure: OnStoreFailure,
        limit: u64,
        local: impl FnOnce() -> Result<L, sluicegate::BuildError>,
    ) -> Result<Fallback<L>, BuildError> {
        Ok(match on_store_failure {
            OnStoreFailure::Error => Fallback::Error,
            OnStoreFailure::Allow => Fallback::Allow { limit },
            OnStoreFailure::Deny => Fallback::Deny { limit },
            OnStoreFailure::Local => Fallback::Local(local()?),
        })
    }

    /// Returns an answer without the store, or `None` if the failure is reported.
    pub(crate) fn answer(&self, local: impl FnOnce(&L) -> Option<Decision>) -> Option<Answer> {
        Some(match self {
            Fallback::Error => return None,
            Fallback::Allow { limit } => Answer::new(unlimited(*limit), Source::Allowed),
            Fallback::Deny { limit } => {
                Answer::new(by_no_limit(*limit, RetryAfter::After(RETRY_AFTER)), Source::Denied)
            }
            Fallback::Local(memory) => Answer::new(local(memory)?, Source::Local),
        })
    }

    /// Returns what decides in memory, if anything does.
    pub(crate) fn local(&self) -> Option<&L> {
        match self {
            Fallback::Local(memory) => Some(memory),
            _ => None,
        }
    }
}

impl Fallback<Limiter> {
    pub(crate) fn limiter(
        settings: &FallbackSettings,
        limits: &[Limit],
        (store, scope): (&RedisStore, &str),
    ) -> Result<Fallback<Limiter>, BuildError> {
        let share = settings.share()?;
        let limit = limits.iter().map(Limit::at_once).min().unwrap_or(0);
        Fallback::new(settings.on_store_failure, limit, || {
            let limits: Vec<Limit> = limits.iter().map(|limit| limit.share(share)).collect();
            let builder =
                Limiter::builder(limits.as_slice()).in_store(store.inner.local()?, scope.to_owned());
            // Inline limits may be among them; here they are treated alike.
            builder.untrusted().build()
        })
    }
}

impl Fallback<Semaphore> {
    pub(crate) fn semaphore(
        settings: &FallbackSettings,
        limit: &Limit,
        (store, scope): (&RedisStore, &str),
    ) -> Result<Fallback<Semaphore>, BuildError> {
        let share = settings.share()?;
        Fallback::new(settings.on_store_failure, limit.at_once(), || {
            store.inner.local_leases()?.scope(scope.to_owned()).semaphore(limit.share(share))
        })
    }
}

/// The builders' settings.
#[derive(Debug)]
pub(crate) struct FallbackSettings {
    pub(crate) on_store_failure: OnStoreFailure,
    /// The percentage of the limit.
    pub(crate) local_share: u32,
}

impl Default for FallbackSettings {
    fn default() -> FallbackSettings {
        FallbackSettings { on_store_failure: OnStoreFailure::default(), local_share: 100 }
    }
}

impl FallbackSettings {
    fn share(&self) -> Result<u32, BuildError> {
        let share = self.local_share;
        let value = usize::try_from(share).unwrap_or(usize::MAX);
        within("local_share", value, 1, 100).map(|_| share)
    }
}
