//! The builder of a breaker.

use super::{Breaker, BreakerConfig, Inner};
use crate::event::Observer;
use crate::text::IntoConfig;
use sluicegate::BuildError;
use sluicegate::LimitError;
use sluicegate::clock::Clock;
use sluicegate::internal::AnyClock;
use std::fmt;
use std::sync::Arc;

/// Builds a breaker. Created by [`Breaker::builder`].
///
/// ```
/// use sluicegate_guard::breaker::{Breaker, State};
/// use sluicegate_guard::ManualClock;
/// use std::time::Duration;
///
/// let clock = ManualClock::default();
/// let payments = Breaker::builder("breaker 50%/1calls open=5s")
///     .name("payments")
///     .clock(clock.clone())
///     .build()?;
/// payments.try_acquire().admitted()?.failure();
/// assert_eq!(payments.state(), State::Open);
/// clock.advance(Duration::from_secs(5));
/// payments.try_acquire().admitted()?.success();
/// assert_eq!(payments.state(), State::Closed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct BreakerBuilder {
    pub(super) config: Result<BreakerConfig, LimitError>,
    pub(super) settings: Settings,
}

/// Everything but the configuration.
pub(super) struct Settings {
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    name: Option<Arc<str>>,
}

impl Settings {
    pub(super) fn make(&self, config: BreakerConfig) -> Breaker {
        let Settings { clock, observer, name } = self;
        Breaker { inner: Arc::new(Inner::new(config, clock.clone(), observer.clone(), name.clone())) }
    }
}

impl BreakerBuilder {
    pub(super) fn new(config: impl IntoConfig<BreakerConfig>) -> BreakerBuilder {
        let settings = Settings { clock: AnyClock::System, observer: None, name: None };
        BreakerBuilder { config: config.into_config(), settings }
    }

    /// Uses this clock instead of the system clock. For tests: [`crate::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> BreakerBuilder {
        self.settings.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Notifies this observer when the breaker opens, half-opens, closes or is forced.
    pub fn observer(mut self, observer: impl Observer + 'static) -> BreakerBuilder {
        self.settings.observer = Some(Arc::new(observer));
        self
    }

    /// Uses the clock and the observer of the enclosing guard.
    pub(crate) fn inherit(
        mut self,
        clock: &AnyClock,
        observer: Option<&Arc<dyn Observer>>,
    ) -> BreakerBuilder {
        (self.settings.clock, self.settings.observer) = (clock.clone(), observer.cloned());
        self
    }

    /// Sets the name in events.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> BreakerBuilder {
        self.settings.name = Some(name.into());
        self
    }

    /// Builds the breaker.
    ///
    /// # Errors
    /// If the text is not a valid breaker.
    pub fn build(self) -> Result<Breaker, BuildError> {
        let config = self.config.map_err(BuildError::Limit)?;
        Ok(self.settings.make(config))
    }
}

impl fmt::Debug for BreakerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerBuilder")
            .field("config", &self.config)
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}
