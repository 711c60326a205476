//! The alarms that are set for several due times under one lock: one alarm, for the soonest,
//! suffices.

use sluicegate_core::Time;

/// The times of the set alarms, the soonest last: each was set because it was sooner than all
/// before it.
#[derive(Default)]
pub struct Alarms(Vec<Time>);

impl Alarms {
    /// The time for which the caller has to set an alarm now, given the soonest due time; `None` if
    /// one rings by then. The alarm counts as set from then on.
    #[inline]
    pub fn arm(&mut self, soonest: Option<Time>) -> Option<Time> {
        let next = soonest.filter(|next| self.0.last().is_none_or(|rings_at| next < rings_at))?;
        self.0.push(next);
        Some(next)
    }

    /// Removes an alarm that has rung or is lost.
    pub fn disarm(&mut self, at: Time) {
        if let Some(index) = self.0.iter().rposition(|rings_at| *rings_at == at) {
            self.0.remove(index);
        }
    }
}
