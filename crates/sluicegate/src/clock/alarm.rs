//! What a clock rings when a turn has come.

use sluicegate_core::Time;
use std::fmt;
use std::sync::{Arc, Weak};

/// Who is to be told.
pub trait AlarmHandler: Send + Sync {
    /// It is time: the alarm that was set for `at` rings.
    fn ring(self: Arc<Self>, at: Time);

    /// The alarm for `at` was thrown away and will never ring, as when a runtime ends: somebody has to set another.
    fn lost(self: Arc<Self>, at: Time);
}

/// Wakes those whose turn has come. A [`Clock`](super::Clock) is given one with the time to ring it.
#[must_use = "an alarm that is dropped without ringing has to be set anew by those who wait"]
pub struct Alarm {
    /// `None` once it has rung.
    wakes: Option<Weak<dyn AlarmHandler>>,
    at: Time,
}

impl Alarm {
    pub(crate) fn new(wakes: Weak<dyn AlarmHandler>, at: Time) -> Alarm {
        Alarm { wakes: Some(wakes), at }
    }

    /// AlarmHandler it. Those whose turn has come by the limiter's clock are woken; nobody else is.
    pub fn ring(mut self) {
        if let Some(wakes) = self.wakes.take().and_then(|wakes| wakes.upgrade()) {
            wakes.ring(self.at);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(wakes) = self.wakes.take().and_then(|wakes| wakes.upgrade()) {
            wakes.lost(self.at);
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").finish_non_exhaustive()
    }
}
