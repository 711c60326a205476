//! Time from left to right.

use crate::ink::Ink;
use crate::path::Path;
use crate::scene::{Scene, Text};
use sluicegate_core::time::DAY;
use sluicegate_core::{Span, Time};
use sluicegate_sim::report::Report;
use sluicegate_sim::simulate::Timeline;
use sluicegate_sim::traffic::Clock;

/// Words reach beyond the panel by so much at most, to the left over its numbers and to the right.
const BEYOND: (f64, f64) = (40.0, 18.0);
/// Between the words of two moments.
const AIR: f64 = 14.0;
/// The size of the words.
const SIZE: f64 = 11.5;
/// Never more moments than this.
const MOMENTS_MAX: u64 = 9;
/// An axis as long as this tells the year.
const LONG: Span = Span::from_micros(300 * DAY);

/// Where on a picture a moment is.
pub(super) struct TimeAxis {
    start: Time,
    length: Span,
    x: f64,
    width: f64,
    clock: Clock,
}

impl TimeAxis {
    /// All the time of a simulation, from `x` on and over `width`.
    pub(super) fn new(report: &Report<'_>, x: f64, width: f64) -> TimeAxis {
        TimeAxis::over(report.simulation.timeline(), report.simulation.traffic().clock(), x, width)
    }

    /// All the time of a timeline.
    pub(super) fn over(timeline: Timeline, clock: Clock, x: f64, width: f64) -> TimeAxis {
        let length = timeline.end().since(timeline.start());
        TimeAxis { start: timeline.start(), length, x, width, clock }
    }

    #[expect(clippy::cast_precision_loss, reason = "a picture has far fewer points than a float has figures")]
    pub(super) fn x(&self, at: Time) -> f64 {
        let share = at.since(self.start).as_micros() as f64 / self.length.as_micros().max(1) as f64;
        self.x + share.min(1.0) * self.width
    }

    /// Round moments in words, as many as there is room for.
    fn moments(&self) -> Vec<(Time, Text)> {
        let end = self.start.saturating_add(self.length);
        let mut some = Vec::new();
        for most in (1..=MOMENTS_MAX).rev() {
            let round = Timeline::round(self.clock, self.start, end, most);
            let all = (0..=round.len()).map(|place| round.begin_of(place));
            some = all.filter(|at| *at >= self.start && *at <= end).map(|at| (at, self.words(at))).collect();
            let apart = |pair: &[(Time, Text)]| match pair {
                [(_, one), (_, next)] => one.left() + one.width() + AIR <= next.left(),
                _ => true,
            };
            if some.windows(2).all(apart) {
                return some;
            }
        }
        some.truncate(1);
        some
    }

    /// A moment in words, not yet at its height.
    fn words(&self, at: Time) -> Text {
        let words = if self.length > LONG { self.clock.tell_date(at) } else { self.clock.tell_on_axis(at) };
        let text = Text::new((0.0, 0.0), words, SIZE).ink(Ink::Faint);
        let left = (self.x(at) - text.width() / 2.0).min(self.x + self.width + BEYOND.1 - text.width());
        Text { at: (left.max(self.x - BEYOND.0), 0.0), ..text }
    }

    /// Thin lines from the top of a panel to its bottom.
    pub(super) fn draw_lines(&self, scene: &mut Scene, top: f64, bottom: f64) {
        let mut lines = Path::new();
        for (at, _) in self.moments() {
            lines.extend(Path::polyline([(self.x(at), top), (self.x(at), bottom)]));
        }
        scene.line(lines, Ink::Grid, 1.0);
    }

    /// The moments in words.
    pub(super) fn draw_times(&self, scene: &mut Scene, y: f64) {
        for (_, text) in self.moments() {
            scene.text(Text { at: (text.at.0, y), ..text });
        }
    }
}
