//! Events for metrics and logs. An [`Observer`] receives each of them.

use crate::breaker::{Change, State};
use crate::guard::GuardEvent;
use sluicegate::wait::Denial;
use std::sync::Arc;

/// Receives the events of a breaker, a bulkhead or a guard: a hook for metrics and logs.
///
/// It runs on the thread in which the event happened, without a lock held. The call waits for it.
///
/// ```
/// use sluicegate_guard::{Breaker, Event, Observer};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Changes(AtomicU64);
///
/// impl Observer for Changes {
///     fn event(&self, event: &Event) {
///         if let Event::Breaker { .. } = event {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let changes = Arc::new(Changes::default());
/// let payments = Breaker::builder("breaker 50%/1calls").observer(Arc::clone(&changes)).build()?;
/// let _ = payments.call(|| Err::<(), _>("down"));
/// assert_eq!(changes.0.load(Ordering::Relaxed), 1); // it opened
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
pub trait Observer: Send + Sync {
    /// Handles an event.
    fn event(&self, event: &Event);
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn event(&self, event: &Event) {
        (**self).event(event);
    }
}

/// An event of a breaker, a bulkhead or a guard.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A circuit breaker changed its state.
    #[non_exhaustive]
    Breaker {
        /// The name of the breaker or of its set. The key is not included: there may be millions.
        name: Option<Arc<str>>,
        /// What changed.
        change: Change,
        /// The state after the change.
        state: State,
    },
    /// A bulkhead denied a permit.
    #[non_exhaustive]
    BulkheadDenied {
        /// The bulkhead's name.
        name: Option<Arc<str>>,
        /// Why.
        denial: Denial,
    },
    /// A bulkhead's adaptive limit changed.
    #[non_exhaustive]
    LimitChanged {
        /// The bulkhead's name.
        name: Option<Arc<str>>,
        /// The limit before.
        from: u32,
        /// The limit from now on.
        to: u32,
    },
    /// An event of a call through a guard.
    #[non_exhaustive]
    Guard {
        /// The guard's name.
        name: Arc<str>,
        /// The event.
        event: GuardEvent,
    },
}
