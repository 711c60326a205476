//! Time cut into equal pieces, for bars and curves.

use crate::traffic::Clock;
use sluicegate_core::time::{DAY, SECOND};
use sluicegate_core::{Span, Time};

const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Widths that people count time in, above a second. Below, they are 1, 2 or 5 times a power of ten
/// microseconds.
const WIDTHS: [u64; 18] = [
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
];

/// Time from `start` on, in pieces of one width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeline {
    start: Time,
    width: Span,
    len: usize,
}

impl Timeline {
    /// Pieces of a round width whose edges are round times too, as `clock` tells them: at most
    /// `most` of them, and one more for the edges.
    pub fn round(clock: Clock, first: Time, last: Time, most: u64) -> Timeline {
        let width = round_width(last.since(first).as_micros().div_ceil(most.max(1)).max(1));
        let origin = match clock {
            Clock::Since(start) => start.min(first),
            Clock::Utc => Time::EPOCH,
        };
        let start = first.as_micros() - first.since(origin).as_micros() % width;
        let len = (last.as_micros() - start) / width + 1;
        Timeline {
            start: Time::saturating_from_micros(start),
            width: Span::from_micros(width),
            len: usize::try_from(len).unwrap_or(1),
        }
    }

    /// This timeline's whole time in `len` pieces, or fewer if they would be less than a
    /// microsecond wide.
    #[must_use]
    pub fn in_pieces(self, len: u64) -> Timeline {
        let whole = self.end().since(self.start).as_micros();
        let width = whole.div_ceil(len.max(1)).max(1);
        let len = whole.div_ceil(width);
        Timeline { width: Span::from_micros(width), len: usize::try_from(len).unwrap_or(1), ..self }
    }

    /// How many pieces there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There is always at least one piece.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// When the first begins.
    pub fn start(&self) -> Time {
        self.start
    }

    /// When the last ends.
    pub fn end(&self) -> Time {
        self.begin_of(self.len)
    }

    /// How long each is.
    pub fn width(&self) -> Span {
        self.width
    }

    /// When the piece at that place begins.
    pub fn begin_of(&self, place: usize) -> Time {
        self.start.saturating_add(Span::from_micros(self.width.as_micros().saturating_mul(place as u64)))
    }

    /// Which piece holds that time, if one does.
    pub fn place(&self, at: Time) -> Option<usize> {
        let place = (at >= self.start).then(|| at.since(self.start).as_micros() / self.width.as_micros())?;
        usize::try_from(place).ok().filter(|place| *place < self.len)
    }
}

/// The smallest round width that is not less.
fn round_width(least: u64) -> u64 {
    if least > DAY {
        return least.div_ceil(DAY) * DAY;
    }
    let below_a_second = (0..6).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    below_a_second.chain(WIDTHS).find(|width| *width >= least).unwrap_or(DAY)
}
