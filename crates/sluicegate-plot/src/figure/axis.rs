//! Time from left to right.

use crate::ink::Ink;
use crate::path::Path;
use crate::scene::{Anchor, Scene, Text};
use sluicegate::core::{Span, Time};
use sluicegate_sim::report::Report;
use sluicegate_sim::simulate::Timeline;
use sluicegate_sim::traffic::Clock;

/// Words keep this far from the edge of the paper.
const EDGE: f64 = 6.0;
/// A written time takes about so much room, with some air around it.
const ROOM: f64 = 95.0;

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
        let timeline = report.simulation.timeline();
        let length = timeline.end().since(timeline.start());
        TimeAxis { start: timeline.start(), length, x, width, clock: report.simulation.traffic().clock() }
    }

    #[expect(clippy::cast_precision_loss, reason = "a picture has far fewer points than a float has figures")]
    pub(super) fn x(&self, at: Time) -> f64 {
        let share = at.since(self.start).as_micros() as f64 / self.length.as_micros().max(1) as f64;
        self.x + share.min(1.0) * self.width
    }

    /// Round moments, as many as there is room to write.
    fn moments(&self) -> Vec<Time> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a handful")]
        let most = (self.width / ROOM).max(1.0) as u64;
        let end = self.start.after(self.length);
        let round = Timeline::round(self.start, end, most);
        let moments = (0..=round.len()).map(|place| round.begin_of(place));
        moments.filter(|at| *at >= self.start && *at <= end).collect()
    }

    /// Thin lines from the top of a panel to its bottom.
    pub(super) fn draw_lines(&self, scene: &mut Scene, top: f64, bottom: f64) {
        let mut lines = Path::new();
        for at in self.moments() {
            lines.extend(Path::polyline([(self.x(at), top), (self.x(at), bottom)]));
        }
        scene.line(lines, Ink::Grid, 1.0);
    }

    /// The moments in words.
    pub(super) fn draw_times(&self, scene: &mut Scene, y: f64) {
        for at in self.moments() {
            let words = self.clock.tell_on_axis(at);
            let text = Text::new((self.x(at), y), words, 11.5).anchor(Anchor::Middle).ink(Ink::Faint);
            // The last one would reach beyond the paper if it is long.
            let reach = self.x(at) + text.width() / 2.0 - (scene.width - EDGE);
            let at = (self.x(at) - reach.max(0.0), y);
            scene.text(Text { at, ..text });
        }
    }
}
