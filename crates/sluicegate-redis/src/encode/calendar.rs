//! The windows of a calendar. A script does not know time zones, so it receives the windows around
//! a time.

use super::{EncodedKind, EncodedLimit, EncodedWindows};
use sluicegate::Time;
use sluicegate::limit::CalendarUnit;
use sluicegate_core::time::YEAR;
use sluicegate_core::{Algorithm as _, AnyState};
use std::sync::PoisonError;

/// Three bounds of calendar windows: when one began, when it ends, and when the next one ends.
#[derive(Clone, Copy, Default)]
pub(super) struct WindowBounds(pub(super) [u64; 3]);

impl EncodedLimit {
    /// Computes the calendar windows around a time of the store.
    pub(crate) fn learn_windows(&self, now: Time) {
        if let EncodedKind::FixedWindow { windows: EncodedWindows::Calendar { known, .. }, .. } = &self.kind {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = self.bounds_at(now);
        }
    }

    /// Returns the windows around the given time, or those computed last.
    pub(super) fn bounds(&self, now: Option<Time>) -> WindowBounds {
        match (now, &self.kind) {
            (Some(now), _) => self.bounds_at(now),
            (None, EncodedKind::FixedWindow { windows: EncodedWindows::Calendar { known, .. }, .. }) => {
                *known.lock().unwrap_or_else(PoisonError::into_inner)
            }
            (None, _) => WindowBounds::default(),
        }
    }

    fn bounds_at(&self, now: Time) -> WindowBounds {
        const DAY: u64 = YEAR / 365;
        let EncodedKind::FixedWindow { windows: EncodedWindows::Calendar { unit, .. }, .. } = &self.kind
        else {
            return WindowBounds::default();
        };
        // No calendar window is longer than this.
        let longest = match unit {
            CalendarUnit::Day => 2 * DAY,
            CalendarUnit::Week => 9 * DAY,
            CalendarUnit::Month => 33 * DAY,
            _ => 368 * DAY,
        };
        let end_after = |time: Time| self.limit.next_window(&AnyState::default(), time);
        let mut began = Time::saturating_from_micros(now.as_micros().saturating_sub(longest));
        while end_after(began) <= now && end_after(began) > began {
            began = end_after(began);
        }
        let ends = end_after(now);
        WindowBounds([began.as_micros(), ends.as_micros(), end_after(ends).as_micros()])
    }
}
