//! What a clock rings when a waiter is due.

use sluicegate_core::Time;
use std::fmt;
use std::sync::{Arc, Weak};

/// Handles an alarm.
pub trait AlarmHandler: Send + Sync {
    /// The alarm that was set for `at` rings.
    fn ring(self: Arc<Self>, at: Time);

    /// The alarm for `at` was dropped and will never ring, as when a runtime shuts down: another
    /// has to be set.
    fn lost(self: Arc<Self>, at: Time);
}

/// Wakes the waiters that are due. A [`Clock`](super::Clock) receives one with the time to ring it.
#[must_use = "an alarm dropped without ringing makes its waiters set another"]
pub struct Alarm {
    /// `None` once it has rung.
    handler: Option<Weak<dyn AlarmHandler>>,
    at: Time,
}

impl Alarm {
    pub(crate) fn new(handler: Weak<dyn AlarmHandler>, at: Time) -> Alarm {
        Alarm { handler: Some(handler), at }
    }

    /// Rings the alarm. It wakes only the waiters that are due by the limiter's clock.
    pub fn ring(mut self) {
        if let Some(handler) = self.handler.take().and_then(|handler| handler.upgrade()) {
            handler.ring(self.at);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(handler) = self.handler.take().and_then(|handler| handler.upgrade()) {
            handler.lost(self.at);
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").finish_non_exhaustive()
    }
}
