//! One key looked at closely: what it was allowed lately, what it had left, and each of its calls.
//!
//! Keys do not touch each other, so the one key's calls are decided once more on their own, and
//! between them the core is asked what is left.

use super::{Simulation, Timeline};
use crate::traffic::Call;
use sluicegate::Limit;
use sluicegate_core::all_of::{check_list, peek_list};
use sluicegate_core::{Algorithm as _, AnyLimit, AnyState, Span, Time};

/// The pieces of the curves: about one a pixel.
const PIECES: u64 = 600;
/// More calls than this would be a blur, and are not kept one by one.
const MARKS_MAX: usize = 1500;

/// One key, looked at closely.
#[derive(Clone, Default, Debug)]
pub struct Focus {
    /// Where the curves begin.
    pub start: Time,
    /// How long each of their pieces is.
    pub width: Span,
    /// The most that was allowed, in each piece, in the stretch of the first limit's period before.
    pub window: Vec<u64>,
    /// The least that was left in each piece.
    pub room: Vec<u64>,
    /// The highest cost admitted at once for an idle key.
    pub room_max: u64,
    /// Each call and whether it was allowed, unless there are too many.
    pub marks: Vec<(Time, bool)>,
}

impl Focus {
    /// `acts` are what the key was allowed, in the order of their times.
    pub(super) fn look(
        simulation: &Simulation<'_>,
        made: &[AnyLimit],
        limits: &[Limit],
        acts: &[Call],
    ) -> Focus {
        let timeline = simulation.timeline().in_pieces(PIECES);
        let period = limits.first().map_or(Span::ZERO, Limit::period);
        let mut focus = Focus {
            start: timeline.start(),
            width: timeline.width(),
            window: window(acts, period, timeline),
            room: Vec::with_capacity(timeline.len()),
            // Of several limits the strictest bounds what is admitted at once.
            room_max: made.iter().map(AnyLimit::limit).min().unwrap_or(0),
            marks: Vec::new(),
        };
        focus.live_through(simulation, made, timeline);
        focus
    }

    /// Decides the key's calls once more, looking at what is left.
    fn live_through(&mut self, simulation: &Simulation<'_>, made: &[AnyLimit], timeline: Timeline) {
        let keeps_marks = simulation.focus_calls().len() <= MARKS_MAX;
        let mut states = vec![AnyState::default(); made.len()];
        let mut calls = simulation.focus_calls().iter().peekable();
        for piece in 0..timeline.len() {
            let (begin, end) = (timeline.begin_of(piece), timeline.begin_of(piece + 1));
            let mut least = peek_list(made, &states, begin, 0).remaining();
            // A call whose clock stepped back belongs to the piece in which it came.
            while let Some(call) = calls.next_if(|call| is_before(call.at, end)) {
                let decision = check_list(made, &mut states, call.at, call.cost);
                least = least.min(decision.remaining());
                if keeps_marks {
                    self.marks.push((call.at, decision.allowed()));
                }
            }
            self.room.push(least);
        }
    }
}

/// Returns `true` if a moment belongs to the interval with this end. The end of time belongs to the
/// last interval, since nothing comes after it.
fn is_before(at: Time, end: Time) -> bool {
    at < end || end == Time::MAX
}

/// The largest count in each piece of time: of the stretches that end within it.
fn window(acts: &[Call], length: Span, timeline: Timeline) -> Vec<u64> {
    let mut count = 0;
    let mut oldest = acts.iter().peekable();
    let mut next = acts.iter().peekable();
    let mut curve = Vec::with_capacity(timeline.len());
    for piece in 0..timeline.len() {
        let (begin, end) = (timeline.begin_of(piece), timeline.begin_of(piece + 1));
        while let Some(left) = oldest.next_if(|old| begin.since(old.at) >= length && old.at < begin) {
            count -= left.cost;
        }
        let mut most = count;
        while let Some(act) = next.next_if(|act| is_before(act.at, end)) {
            count += act.cost;
            while let Some(left) = oldest.next_if(|old| act.at.since(old.at) >= length) {
                count -= left.cost;
            }
            most = most.max(count);
        }
        curve.push(most);
    }
    curve
}
