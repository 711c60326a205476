//! Which alarms are set, for whoever keeps several moments under one lock: one does for all of them, that of the soonest.

use sluicegate_core::Time;

/// When the clock is going to ring, the soonest last: each was set because it was sooner than all before it.
#[derive(Default)]
pub struct Alarms(Vec<Time>);

impl Alarms {
    /// The time for which the caller has to set an alarm now, if the soonest moment is this and none rings before; from then on it is taken
    /// to be set.
    #[inline]
    pub fn arm(&mut self, soonest: Option<Time>) -> Option<Time> {
        let next = soonest.filter(|next| self.0.last().is_none_or(|rings_at| next < rings_at))?;
        self.0.push(next);
        Some(next)
    }

    /// The alarm for a time has rung, or is lost.
    pub fn disarm(&mut self, at: Time) {
        if let Some(place) = self.0.iter().rposition(|rings_at| *rings_at == at) {
            self.0.remove(place);
        }
    }
}
