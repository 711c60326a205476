//! Decodes states, and converts a state of another limit.

use super::packed::{Packed, Unpacked};
use super::{EncodedKind, EncodedLimit, RawState, VERSION, time_for};
use sluicegate::{Limit, Span, Time};
use sluicegate_core::bounds::Ratio;
use sluicegate_core::cell::WideCell;
use sluicegate_core::leaky_bucket::LeakyBucket;
use sluicegate_core::min_interval::MinInterval;
use sluicegate_core::pacer::Pacer;
use sluicegate_core::rollback::Times;
use sluicegate_core::sliding_log::Log;
use sluicegate_core::sliding_window::Counts as _;
use sluicegate_core::smooth::Smooth;
use sluicegate_core::token_bucket::TokenBucket;
use sluicegate_core::{Algorithm as _, AnyLimit, AnyState, Cell, CellLimit, Rate};

/// The length of a bucket's state without its tag.
const BUCKET_LEN: usize = 20;

/// The length of a `smooth` state without its tag.
const SMOOTH_LEN: usize = 32;

impl EncodedLimit {
    /// Decodes the state in a script's reply.
    pub(crate) fn read(&self, raw: &RawState, now: Time, preserve_recovery_time: bool) -> Option<AnyState> {
        match (&self.kind, raw) {
            (EncodedKind::SlidingLog { .. }, Some(text)) => log(text),
            (_, None) => Some(AnyState::default()),
            (EncodedKind::SlidingWindow { .. }, Some(state)) => {
                self.counters(state.strip_suffix(self.tag.as_bytes())?)
            }
            (_, Some(state)) => match state.strip_suffix(self.tag.as_bytes()) {
                Some(packed) => Some(AnyState::Cell(self.cell(packed, None)?.0)),
                // As the script has converted it, or would.
                None => Some(AnyState::Cell(self.converted(state, now, preserve_recovery_time)?.0)),
            },
        }
    }

    /// Decodes a state without its tag, and for a bucket when it last changed. A bucket may have
    /// been written at another rate.
    fn cell(&self, packed: &[u8], written_at: Option<Ratio>) -> Option<(Cell, u64)> {
        let mut packed = Unpacked(packed);
        let at = packed.f64()?;
        let cell = match self.kind {
            EncodedKind::Bucket { ratio, .. } => {
                let latest = packed.f64()?;
                let part = packed.u32().filter(|part| *part < written_at.unwrap_or(ratio).parts)?;
                (Cell { at, a: part, b: 1 }, latest)
            }
            EncodedKind::FixedWindow { .. } => (Cell::of_number(at, packed.u48()?), 0),
            EncodedKind::Smooth { .. } => {
                let cell = Smooth::state_of(Time::from_micros(at)?, packed.permits()?);
                // The parameters that a script needs to convert it.
                packed.permits()?;
                packed.permits()?;
                (cell, 0)
            }
            EncodedKind::SlidingWindow { .. } | EncodedKind::SlidingLog { .. } => return None,
        };
        packed.0.is_empty().then_some(cell)
    }

    /// Decodes the counters of a sliding window, in the kind of state that its limit has.
    fn counters(&self, packed: &[u8]) -> Option<AnyState> {
        let mut packed = Unpacked(packed);
        let (at, prev, cur) = (packed.f64()?, packed.u48()?, packed.u48()?);
        packed.0.is_empty().then(|| match self.limit {
            AnyLimit::Wide(_) => AnyState::Wide(Box::new(WideCell::new(at, prev, cur))),
            _ => AnyState::Cell(Cell::new(at, prev, cur)),
        })
    }

    /// Converts a state of another limit to this one, and for a bucket also returns when it last
    /// changed. `None` if it cannot be read: a newer version or something else wrote it.
    fn converted(&self, old: &[u8], now: Time, preserve_recovery_time: bool) -> Option<(Cell, u64)> {
        let (packed, tag) = old.split_at_checked(if self.is_smooth() { SMOOTH_LEN } else { BUCKET_LEN })?;
        let parameters = std::str::from_utf8(tag).ok()?.strip_prefix(VERSION)?.strip_suffix(' ')?;
        let (before, written_at) = if self.is_smooth() {
            (format!("smooth {parameters}").parse::<Limit>().ok()?.made_at(Time::EPOCH)?, None)
        } else {
            let (count, period) = parameters.split_once('/')?;
            let rate = Rate::new(count.parse().ok()?, Span::from_micros(period.parse().ok()?)).ok()?;
            (self.with_rate(rate)?, Some(rate.ratio().ok()?))
        };
        let (cell, latest) = self.cell(packed, written_at)?;
        let mut state = AnyState::Cell(cell);
        if preserve_recovery_time {
            self.limit.adopt_recovery_time(&before, &mut state);
        } else {
            self.limit.adopt(&before, &mut state, Times { now, latest: Time::from_micros(latest)? });
        }
        match state {
            AnyState::Cell(cell) => Some((cell, latest)),
            AnyState::Wide(_) | AnyState::Log(_) => None,
        }
    }

    /// Converts a state of another limit to this one and encodes it, and returns when it is fully
    /// recovered.
    pub(crate) fn convert(
        &self,
        old: &[u8],
        now: Time,
        preserve_recovery_time: bool,
    ) -> Option<(Vec<u8>, u64)> {
        let (cell, latest) = self.converted(old, now, preserve_recovery_time)?;
        let latest = latest.max(now.as_micros());
        let packed = Packed::new().f64(cell.at).f64(latest).u32(cell.a);
        // While unseen keys are still filling, a key that has called must not be dropped.
        let filled = match &self.kind {
            EncodedKind::Bucket { ratio, initial: Some((start, missing)), .. } => {
                start.as_micros() + time_for(*ratio, *missing).whole
            }
            EncodedKind::Bucket { .. } => 0,
            // Scripts convert all other states.
            _ => return None,
        };
        Some(([&packed.0, self.tag.as_bytes()].concat(), cell.at.max(filled)))
    }

    fn is_smooth(&self) -> bool {
        matches!(self.kind, EncodedKind::Smooth { .. })
    }

    /// Returns the same kind of bucket at another rate. Its capacity does not matter for decoding.
    fn with_rate(&self, rate: Rate) -> Option<AnyLimit> {
        let AnyLimit::Cell(limit) = &self.limit else { return None };
        Some(AnyLimit::Cell(match limit {
            CellLimit::TokenBucket(_) => CellLimit::TokenBucket(TokenBucket::new(rate, 1).ok()?),
            CellLimit::LeakyBucket(_) => CellLimit::LeakyBucket(LeakyBucket::new(rate, 1).ok()?),
            CellLimit::MinInterval(_) => CellLimit::MinInterval(MinInterval::new(rate.period()).ok()?),
            CellLimit::Pacer(_) => CellLimit::Pacer(Pacer::new(rate, 0).ok()?),
            CellLimit::FixedWindow(_) | CellLimit::SlidingWindow(_) | CellLimit::Smooth(_) => return None,
        }))
    }
}

/// Decodes the slots that a script returns of a log: the one before the oldest call that counts,
/// the last one, and those that the answer depends on.
fn log(slots: &[u8]) -> Option<AnyState> {
    const SLOT: usize = 13;
    let read = |slot: &[u8]| {
        let (at, total) = slot.split_at_checked(7)?;
        Some((little_endian(at), little_endian(total)))
    };
    let mut slots = slots.chunks(SLOT).map(|slot| read(slot).filter(|_| slot.len() == SLOT));
    let ((_, base), (latest, total)) = (slots.next()??, slots.next()??);
    let entry = |slot: Option<(u64, u64)>| {
        let (at, total) = slot?;
        Some((Time::from_micros(at)?, total.checked_sub(base)?))
    };
    let mut entries: Vec<(Time, u64)> = slots.map(entry).collect::<Option<_>>()?;
    // The last slot is the newest call, unless that was returned and counts nothing.
    let (latest, used) = entry(Some((latest, total)))?;
    if entries.last().map_or(0, |(_, total)| *total) < used {
        entries.push((latest, used));
    }
    Some(AnyState::Log(Box::new(Log::from_entries(latest, entries))))
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
