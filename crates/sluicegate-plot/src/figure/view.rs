//! What a column of a picture shows.

use super::axis::TimeAxis;
use super::legend;
use super::panel::{Panel, Scale, round_below};
use crate::ink::Ink;
use crate::path::Path;
use crate::scene::{Anchor, Scene, Text};
use sluicegate_core::{Span, Time};
use sluicegate_sim::human::{count, cut, span};
use sluicegate_sim::report::{Report, Tried};

/// Longer periods are cut in headings, so that these stay within their column.
const PERIOD_MAX: usize = 16;

/// How wide and high the mark of a call is.
const MARK: (f64, f64) = (1.3, 6.0);

/// One way of looking at a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// What is offered and what is allowed, over time.
    Traffic,
    /// What one key was allowed in the period before, against the limit.
    Window,
    /// What one key has left.
    Room,
}

impl View {
    /// What it shows.
    pub(crate) fn title(self, report: &Report<'_>) -> String {
        match self {
            View::Traffic => View::traffic_title(report, report.simulation.timeline().width()),
            View::Window => {
                let period = one_period(report).map_or_else(|| "period".to_owned(), span);
                format!("Used in the last {}", cut(&period, PERIOD_MAX))
            }
            View::Room => "Left to use".to_owned(),
        }
    }

    /// What bars of that width show.
    pub(crate) fn traffic_title(report: &Report<'_>, width: Span) -> String {
        let what = if report.simulation.has_costs() { "Cost" } else { "Calls" };
        format!("{what} per {}", cut(&span(width), PERIOD_MAX))
    }

    /// The limit that the window of one is measured against.
    pub(crate) fn limit(tried: &Tried) -> u64 {
        tried.limits.first().map_or(0, sluicegate::Limit::count)
    }

    /// The most that the window of one has to show: of all, if they have one period and are there
    /// to be compared.
    pub(crate) fn most_used(report: &Report<'_>, tried: &Tried) -> u64 {
        let most = |tried: &Tried| {
            tried.outcome.focus.window.iter().copied().max().unwrap_or(0).max(View::limit(tried))
        };
        match one_period(report) {
            Some(_) => report.tried.iter().map(most).max().unwrap_or(0),
            None => most(tried),
        }
    }

    /// What the column shows, and what its colours mean.
    pub(super) fn heading(self, scene: &mut Scene, report: &Report<'_>, x: f64, y: f64) {
        let words = Text::new((x, y), self.title(report), 12.5).bold();
        let mut end = x + words.width() + 16.0;
        scene.text(words);
        let inks: &[(Ink, &str)] = match self {
            View::Traffic => &[(Ink::Offered, "offered"), (Ink::Allowed, "allowed")],
            View::Window => &[(Ink::AllowedSoft, "within"), (Ink::Over, "above")],
            View::Room => &[],
        };
        for (ink, words) in inks {
            end = legend(scene, end, y, *ink, words);
        }
        if self == View::Window {
            scene.dashed(Path::polyline([(end, y - 4.0), (end + 22.0, y - 4.0)]), Ink::Limit, 1.3);
            scene.text(Text::new((end + 28.0, y), "limit", 12.0).ink(Ink::Faint));
        }
    }

    /// The panel of one row.
    pub(super) fn draw(
        self,
        scene: &mut Scene,
        report: &Report<'_>,
        tried: &Tried,
        panel: &Panel,
        axis: &TimeAxis,
    ) {
        panel.draw_ground(scene);
        axis.draw_lines(scene, panel.y, panel.bottom());
        match self {
            View::Traffic => traffic(scene, report, tried, panel, axis),
            View::Window => window(scene, report, tried, panel, axis),
            View::Room => room(scene, tried, panel, axis),
        }
        let floor = [(panel.x, panel.bottom()), (panel.x + panel.width, panel.bottom())];
        scene.line(Path::polyline(floor), Ink::Faint, 1.0);
    }
}

/// The period of the first limit of each, if it is the same for all.
fn one_period(report: &Report<'_>) -> Option<Span> {
    let mut periods =
        report.tried.iter().filter_map(|tried| tried.limits.first()).map(sluicegate::Limit::period);
    let first = periods.next()?;
    periods.all(|period| period == first).then_some(first)
}

/// Bars: what was offered, and before it what was allowed.
fn traffic(scene: &mut Scene, report: &Report<'_>, tried: &Tried, panel: &Panel, axis: &TimeAxis) {
    let simulation = &report.simulation;
    let timeline = simulation.timeline();
    // One scale for all rows: the bars are there to be compared.
    let allowed = report.tried.iter().flat_map(|tried| &tried.outcome.allowed_bars);
    let most = simulation.offered().iter().chain(allowed).copied().max().unwrap_or(0);
    let scale = panel.scale(most);
    scale.draw_tick(scene, round_below(most));
    let (mut offered_bars, mut allowed_bars) = (Path::new(), Path::new());
    for (place, (offered, allowed)) in
        simulation.offered().iter().zip(&tried.outcome.allowed_bars).enumerate()
    {
        let (from, to) = (axis.x(timeline.begin_of(place)), axis.x(timeline.begin_of(place + 1)));
        // A little air between the bars, if they are wide enough to spare it.
        let width = if to - from > 4.0 { to - from - 1.0 } else { to - from };
        let bar = |amount: u64| Path::rect(from, scale.y(amount), width, panel.bottom() - scale.y(amount));
        if offered > allowed {
            offered_bars.extend(bar(*offered));
        }
        if *allowed > 0 {
            allowed_bars.extend(bar(*allowed));
        }
    }
    scene.fill(offered_bars, Ink::Offered);
    scene.fill(allowed_bars, Ink::Allowed);
}

/// The count of the period before as a curve, the limit as a dashed line, what is above it filled;
/// below the panel a mark for each call.
fn window(scene: &mut Scene, report: &Report<'_>, tried: &Tried, panel: &Panel, axis: &TimeAxis) {
    let limit = View::limit(tried);
    let scale = panel.scale(View::most_used(report, tried));
    let focus = &tried.outcome.focus;
    let runs = runs(&focus.window, |place| piece_at(focus.start, focus.width, place), axis);
    draw_area(scene, &runs, &scale, panel);
    let mut above = Path::new();
    for run in runs.iter().filter(|run| run.amount > limit) {
        above.extend(Path::rect(
            run.from,
            scale.y(run.amount),
            run.to - run.from,
            scale.y(limit) - scale.y(run.amount),
        ));
    }
    scene.fill(above, Ink::Over);
    draw_edge(scene, &runs, &scale);
    let y = scale.y(limit);
    scene.dashed(Path::polyline([(panel.x, y), (panel.x + panel.width, y)]), Ink::Limit, 1.3);
    scale.draw_number(scene, limit);
    let mut highest: Option<&Run> = None;
    for run in &runs {
        if highest.is_none_or(|highest| run.amount > highest.amount) {
            highest = Some(run);
        }
    }
    if let Some(run) = highest.filter(|run| run.amount > limit) {
        let number =
            Text::new((0.0, scale.y(run.amount) - 5.0), count(run.amount), 13.0).anchor(Anchor::Middle);
        let half = number.width() / 2.0;
        let x = f64::midpoint(run.from, run.to).clamp(panel.x + half, panel.x + panel.width - half);
        scene.text(Text { at: (x, number.at.1), ..number }.ink(Ink::Over).bold());
    }
    marks(scene, tried, panel, axis);
}

/// What the marks below the panels mean.
pub(super) fn explain_marks(scene: &mut Scene, x: f64, y: f64) {
    scene.fill(Path::rect(x, y - 8.0, MARK.0, MARK.1), Ink::Allowed);
    let allowed = Text::new((x + 8.0, y), "a call that was allowed", 12.0).ink(Ink::Faint);
    let end = x + 8.0 + allowed.width() + 18.0;
    scene.text(allowed);
    scene.fill(Path::rect(end, y - 6.0, MARK.0, MARK.1), Ink::Denied);
    scene.text(Text::new((end + 8.0, y), "one that was denied", 12.0).ink(Ink::Faint));
}

/// The calls one by one, below a panel: those allowed in one lane, those denied in another, so that
/// none hides another.
fn marks(scene: &mut Scene, tried: &Tried, panel: &Panel, axis: &TimeAxis) {
    let (mut allowed_marks, mut denied_marks) = (Path::new(), Path::new());
    for &(at, allowed) in &tried.outcome.focus.marks {
        let x = axis.x(at) - MARK.0 / 2.0;
        let (marks, lane) =
            if allowed { (&mut allowed_marks, 0.0) } else { (&mut denied_marks, MARK.1 + 1.0) };
        marks.extend(Path::rect(x, panel.bottom() + 3.0 + lane, MARK.0, MARK.1));
    }
    scene.fill(denied_marks, Ink::Denied);
    scene.fill(allowed_marks, Ink::Allowed);
}

/// What is left as a curve under the most there can be.
fn room(scene: &mut Scene, tried: &Tried, panel: &Panel, axis: &TimeAxis) {
    let focus = &tried.outcome.focus;
    let most = focus.room_max;
    let scale = panel.scale(most);
    scale.draw_tick(scene, most);
    let runs = runs(&focus.room, |place| piece_at(focus.start, focus.width, place), axis);
    draw_area(scene, &runs, &scale, panel);
    draw_edge(scene, &runs, &scale);
}

fn piece_at(start: Time, width: Span, place: usize) -> Time {
    start.saturating_add(Span::from_micros(width.as_micros().saturating_mul(place as u64)))
}

/// A stretch of one amount, from left to right.
struct Run {
    from: f64,
    to: f64,
    amount: u64,
}

/// Pieces of a curve with the same amount put together.
fn runs(amounts: &[u64], begin_of: impl Fn(usize) -> Time, axis: &TimeAxis) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (place, amount) in amounts.iter().enumerate() {
        let (from, to) = (axis.x(begin_of(place)), axis.x(begin_of(place + 1)));
        match runs.last_mut() {
            Some(last) if last.amount == *amount => last.to = to,
            _ => runs.push(Run { from, to, amount: *amount }),
        }
    }
    runs
}

/// The corners of the steps.
fn steps<'a>(runs: &'a [Run], scale: &'a Scale) -> impl Iterator<Item = (f64, f64)> + 'a {
    runs.iter().flat_map(|run| [(run.from, scale.y(run.amount)), (run.to, scale.y(run.amount))])
}

fn draw_area(scene: &mut Scene, runs: &[Run], scale: &Scale, panel: &Panel) {
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return };
    let floor = [(last.to, panel.bottom()), (first.from, panel.bottom())];
    scene.fill(Path::polygon(steps(runs, scale).chain(floor)), Ink::AllowedSoft);
}

fn draw_edge(scene: &mut Scene, runs: &[Run], scale: &Scale) {
    scene.line(Path::polyline(steps(runs, scale)), Ink::Allowed, 1.6);
}
