//! An overload as a picture: a row for each protection, a column for each view, bad times shaded.

use super::axis::TimeAxis;
use super::panel::{Panel, round_below};
use super::{FOOT, GAP, HEAD, LABEL, MARGIN, NUMBERS, PANEL, SOURCE_MAX, WIDTH, WIDTH_MORE, legend};
use crate::ink::Ink;
use crate::path::Path;
use crate::scene::{Anchor, Scene, Text};
use sluicegate_core::Span;
use sluicegate_sim::human::{self, about, cut, percent, span};
use sluicegate_sim::overload::{Bin, Ran, Report, Trouble};

/// How high the strip is that says that a breaker is open.
const STRIP: f64 = 4.0;
/// The size of the words about bad times.
const SMALL: f64 = 10.5;

/// What a picture of an overload shows.
#[derive(Clone, Debug)]
pub struct OverloadFigure<'a> {
    /// The title; by default, what was compared.
    pub title: Option<&'a str>,
    /// The columns, at least one.
    pub views: &'a [OverloadView],
}

/// One way of looking at an overload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverloadView {
    /// What became of the calls, by when they were made.
    Calls,
    /// How long callers waited until they knew.
    Waits,
    /// How many the dependency had, and the limit.
    Limit,
}

impl OverloadFigure<'_> {
    /// Draws what was tried.
    pub fn draw(&self, report: &Report) -> Scene {
        let columns = self.views.len().max(1);
        #[expect(clippy::cast_precision_loss, reason = "there are a handful of views and rows")]
        let (columns, rows) = (columns as f64, report.ran.len() as f64);
        let width = WIDTH + (columns - 1.0) * WIDTH_MORE;
        let row_height = LABEL + PANEL + GAP;
        let height = HEAD + rows * row_height - GAP + FOOT;
        let title = self.title.map_or_else(|| usual_title(report), str::to_owned);
        let mut scene = Scene::new(width, height, title.clone(), description(report));
        let room = width - 2.0 * MARGIN;
        scene.text(Text::new((MARGIN, 38.0), title, 20.0).bold().within(room));
        let source = cut(&human::printable(&report.source), SOURCE_MAX * 3);
        scene.text(Text::new((MARGIN, 59.0), source, 12.5).ink(Ink::Faint).within(room));
        let column_width = (width - 2.0 * MARGIN + GAP) / columns;
        let mut left = MARGIN;
        for view in self.views {
            let (x, width) = (left + NUMBERS, column_width - NUMBERS - GAP);
            let axis = TimeAxis::over(report.timeline, report.clock, x, width);
            let mut panel = Panel { x, y: HEAD + LABEL, width, height: PANEL };
            view.heading(&mut scene, report, panel.x, HEAD - 17.0);
            for ran in &report.ran {
                view.draw(&mut scene, report, ran, &panel, &axis);
                panel.y += row_height;
            }
            axis.draw_times(&mut scene, panel.y - LABEL - GAP + 18.0);
            left += column_width;
        }
        let mut y = HEAD + LABEL - 9.0;
        for ran in &report.ran {
            label(&mut scene, ran, y);
            y += row_height;
        }
        scene
    }
}

fn usual_title(report: &Report) -> String {
    match report.ran.as_slice() {
        [one] => one.label.clone(),
        several => format!("{} protections on the same calls", several.len()),
    }
}

/// The limit or protection on the left, its result on the right.
fn label(scene: &mut Scene, ran: &Ran, y: f64) {
    let said =
        Text::new((scene.width - MARGIN, y), came_of_it(ran), 12.0).anchor(Anchor::End).ink(Ink::Faint);
    let label = Text::new((MARGIN, y), ran.label.clone(), 13.5).bold();
    scene.text(label.within(said.left() - MARGIN - GAP));
    scene.text(said);
}

fn came_of_it(ran: &Ran) -> String {
    let totals = &ran.outcome.totals;
    let part = |some| percent(some, totals.offered);
    format!(
        "{} good, {} denied, {} failed; {} of the work wasted; p99 {}",
        part(totals.good),
        part(totals.denied),
        part(totals.failed + totals.timed_out),
        percent(totals.wasted.as_micros(), totals.worked.as_micros().max(1)),
        about(totals.p99),
    )
}

/// For those who do not see the picture.
fn description(report: &Report) -> String {
    let mut said = format!("{}.", report.source);
    for ran in &report.ran {
        said += &format!(" {}: {}.", ran.label, came_of_it(ran));
    }
    said.replace(human::TIE, " ")
}

impl OverloadView {
    fn title(self, report: &Report) -> String {
        match self {
            OverloadView::Calls => format!("Calls per {}", span(report.timeline.width())),
            OverloadView::Waits => "How long callers waited".to_owned(),
            OverloadView::Limit => "At the dependency".to_owned(),
        }
    }

    /// What the column shows, and what its colours mean.
    fn heading(self, scene: &mut Scene, report: &Report, x: f64, y: f64) {
        let words = Text::new((x, y), self.title(report), 12.5).bold();
        let mut end = x + words.width() + 16.0;
        scene.text(words);
        let inks: &[(Ink, &str)] = match self {
            OverloadView::Calls => &[(Ink::Allowed, "good"), (Ink::Denied, "denied"), (Ink::Over, "failed")],
            OverloadView::Waits => &[(Ink::AllowedSoft, "p50"), (Ink::Over, "p99")],
            OverloadView::Limit => &[(Ink::AllowedSoft, "calls")],
        };
        for (ink, words) in inks {
            end = legend(scene, end, y, *ink, words);
        }
        if self == OverloadView::Limit {
            if report.ran.iter().any(|ran| ran.outcome.totals.limit.is_some()) {
                scene.line(Path::polyline([(end, y - 4.0), (end + 22.0, y - 4.0)]), Ink::Limit, 1.6);
                scene.text(Text::new((end + 28.0, y), "limit", 12.0).ink(Ink::Faint));
                end += 68.0;
            }
            if report.ran.iter().flat_map(|ran| &ran.outcome.bins).any(|bin| bin.is_open) {
                legend(scene, end, y, Ink::Over, "breaker open");
            }
        }
    }

    fn draw(self, scene: &mut Scene, report: &Report, ran: &Ran, panel: &Panel, axis: &TimeAxis) {
        panel.draw_ground(scene);
        let is_first = report.ran.first().is_some_and(|first| std::ptr::eq(first, ran));
        troubles(scene, report, panel, axis);
        axis.draw_lines(scene, panel.y, panel.bottom());
        if is_first && self == OverloadView::Calls {
            explain_troubles(scene, report, panel, axis);
        }
        match self {
            OverloadView::Calls => calls(scene, report, ran, panel, axis),
            OverloadView::Waits => waits(scene, report, ran, panel, axis),
            OverloadView::Limit => limit(scene, report, ran, panel, axis),
        }
        let floor = [(panel.x, panel.bottom()), (panel.x + panel.width, panel.bottom())];
        scene.line(Path::polyline(floor), Ink::Faint, 1.0);
    }
}

/// Bad times behind everything.
fn troubles(scene: &mut Scene, report: &Report, panel: &Panel, axis: &TimeAxis) {
    for (from, to, _) in bad_times(report, axis) {
        scene.fill(Path::rect(from, panel.y, to - from, panel.height), Ink::Trouble);
    }
}

/// What is bad about them, in words that never reach into those before them.
fn explain_troubles(scene: &mut Scene, report: &Report, panel: &Panel, axis: &TimeAxis) {
    let mut free = panel.x;
    for (from, _, trouble) in bad_times(report, axis) {
        let words = match trouble {
            Trouble::Slow(times) => format!("{times} times as slow"),
            Trouble::Fail(100) => "all fail".to_owned(),
            Trouble::Fail(part) => format!("{part} % fail"),
        };
        let text = Text::new((from + 4.0, panel.y + 12.0), words, SMALL).ink(Ink::Faint);
        let end = from + 4.0 + text.width();
        if from >= free && end <= panel.x + panel.width {
            scene.text(text);
            free = end + 6.0;
        }
    }
}

/// From where to where, and what is bad.
fn bad_times(report: &Report, axis: &TimeAxis) -> impl Iterator<Item = (f64, f64, Trouble)> {
    let start = report.first;
    let mut episodes: Vec<_> = report.episodes.iter().collect();
    episodes.sort_by_key(|episode| episode.from);
    episodes.into_iter().map(move |episode| {
        (
            axis.x(start.saturating_add(episode.from)),
            axis.x(start.saturating_add(episode.to)),
            episode.trouble,
        )
    })
}

/// Stacked bars: calls that succeeded, were denied, and failed or timed out.
fn calls(scene: &mut Scene, report: &Report, ran: &Ran, panel: &Panel, axis: &TimeAxis) {
    // One scale for all rows: the bars are there to be compared.
    let most = all_bins(report).map(|bin| bin.offered).max().unwrap_or(0);
    let scale = panel.scale(most);
    scale.draw_tick(scene, round_below(most));
    let mut bars = [Path::new(), Path::new(), Path::new()];
    for (place, bin) in ran.outcome.bins.iter().enumerate() {
        let (from, to) = (x_of(report, axis, place), x_of(report, axis, place + 1));
        // A little air between the bars, if they are wide enough to spare it.
        let width = if to - from > 4.0 { to - from - 1.0 } else { to - from };
        let mut below = 0;
        for (bar, amount) in bars.iter_mut().zip([bin.good, bin.denied, bin.failed + bin.timed_out]) {
            if amount > 0 {
                let (top, bottom) = (scale.y(below + amount), scale.y(below));
                bar.extend(Path::rect(from, top, width, bottom - top));
            }
            below += amount;
        }
    }
    for (bar, ink) in bars.into_iter().zip([Ink::Allowed, Ink::Denied, Ink::Over]) {
        scene.fill(bar, ink);
    }
}

/// The wait of the caller in the middle as an area, and that of nearly all as a line.
fn waits(scene: &mut Scene, report: &Report, ran: &Ran, panel: &Panel, axis: &TimeAxis) {
    let micros = |wait: Span| wait.as_micros();
    let most = all_bins(report).map(|bin| micros(bin.p99)).max().unwrap_or(0).max(micros(report.timeout));
    let scale = panel.scale(most);
    let timeout = micros(report.timeout);
    let y = scale.y(timeout);
    scene.line(Path::polyline([(panel.x, y), (panel.x + panel.width, y)]), Ink::Grid, 1.0);
    let words = Text::new((panel.x - 7.0, y + 4.0), span(report.timeout), 11.5).anchor(Anchor::End);
    scene.text(words.ink(Ink::Faint).within(NUMBERS - 10.0));
    let curve = |of: fn(&Bin) -> Span| steps(report, ran, axis, move |bin| scale.y(of(bin).as_micros()));
    area(scene, &curve(|bin| bin.p50), panel);
    scene.line(Path::polyline(curve(|bin| bin.p99)), Ink::Over, 1.6);
}

/// How many calls the dependency had, and under which limit.
fn limit(scene: &mut Scene, report: &Report, ran: &Ran, panel: &Panel, axis: &TimeAxis) {
    let bins = &ran.outcome.bins;
    let most = bins.iter().map(|bin| bin.at_work.max(bin.limit.unwrap_or(0))).max().unwrap_or(0);
    let most = u64::from(most.max(report.workers));
    let scale = panel.scale(most);
    scale.draw_tick(scene, round_below(most));
    area(scene, &steps(report, ran, axis, |bin| scale.y(bin.at_work.into())), panel);
    if bins.iter().any(|bin| bin.limit.is_some()) {
        let line = steps(report, ran, axis, |bin| scale.y(bin.limit.unwrap_or(0).into()));
        scene.line(Path::polyline(line), Ink::Limit, 1.6);
    }
    let mut open = Path::new();
    for (place, _) in bins.iter().enumerate().filter(|(_, bin)| bin.is_open) {
        let (from, to) = (x_of(report, axis, place), x_of(report, axis, place + 1));
        open.extend(Path::rect(from, panel.bottom() - STRIP, to - from, STRIP));
    }
    scene.fill(open, Ink::Over);
}

fn all_bins(report: &Report) -> impl Iterator<Item = &Bin> {
    report.ran.iter().flat_map(|ran| &ran.outcome.bins)
}

fn x_of(report: &Report, axis: &TimeAxis, place: usize) -> f64 {
    axis.x(report.timeline.begin_of(place))
}

/// The corners of a curve of steps.
fn steps(report: &Report, ran: &Ran, axis: &TimeAxis, y: impl Fn(&Bin) -> f64) -> Vec<(f64, f64)> {
    let corners = |(place, bin): (usize, &Bin)| {
        let y = y(bin);
        [(x_of(report, axis, place), y), (x_of(report, axis, place + 1), y)]
    };
    ran.outcome.bins.iter().enumerate().flat_map(corners).collect()
}

fn area(scene: &mut Scene, curve: &[(f64, f64)], panel: &Panel) {
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return };
    let floor = [(last.0, panel.bottom()), (first.0, panel.bottom())];
    scene.fill(Path::polygon(curve.iter().copied().chain(floor)), Ink::AllowedSoft);
    scene.line(Path::polyline(curve.iter().copied()), Ink::Allowed, 1.2);
}
