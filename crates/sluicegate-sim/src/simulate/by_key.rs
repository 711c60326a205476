//! The calls of a traffic key by key.
//!
//! Keys do not touch each other, so a limit can be tried on one after another. Then a key's state
//! stays where the processor has it, however many keys there are; in the order of time each call
//! would wait for memory.

use crate::traffic::{BYTES_A_CALL, Call};
use sluicegate_core::Time;

#[derive(Debug)]
pub(super) struct ByKey {
    calls: Vec<Call>,
    /// The place of each in the order in which they came. There are never more calls than fit.
    came: Vec<u32>,
    /// Where each key's calls end; they begin where those of the key before end.
    ends: Vec<usize>,
}

// A call as it came, once more here, and its place.
const _: () = assert!(BYTES_A_CALL == 2 * size_of::<Call>() + size_of::<u32>());

impl ByKey {
    /// Sorts calls by counting; those of one key stay in their order.
    pub(super) fn new(calls: &[Call], keys: usize) -> ByKey {
        let mut ends = vec![0; keys];
        for call in calls {
            if let Some(count) = ends.get_mut(call.key as usize) {
                *count += 1;
            }
        }
        let mut begin = 0;
        for place in &mut ends {
            begin += std::mem::replace(place, begin);
        }
        let mut grouped = vec![Call { at: Time::EPOCH, key: 0, cost: 0 }; calls.len()];
        let mut came = vec![0; calls.len()];
        for (place, call) in (0..).zip(calls) {
            let Some(end) = ends.get_mut(call.key as usize) else { continue };
            if let (Some(free), Some(from)) = (grouped.get_mut(*end), came.get_mut(*end)) {
                (*free, *from) = (*call, place);
                *end += 1;
            }
        }
        ByKey { calls: grouped, came, ends }
    }

    /// The calls of one key, and the place of each in the order in which all came.
    pub(super) fn of(&self, key: u32) -> (&[Call], &[u32]) {
        let end_of = |key: usize| self.ends.get(key).copied().unwrap_or_default();
        let key = key as usize;
        let range = key.checked_sub(1).map_or(0, end_of)..end_of(key);
        (self.calls.get(range.clone()).unwrap_or_default(), self.came.get(range).unwrap_or_default())
    }
}
