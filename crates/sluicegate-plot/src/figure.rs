//! A simulation as a picture: a row for each limit that was tried, a column for each view, one axis
//! of time.
//!
//! ```text
//! title
//! where the calls come from
//!          view                       view                       view
//! label    ▁▂▅█▇▅▂▁                   ▁▂▅█▇▅▂▁                   ▁▂▅█▇▅▂▁
//! label    ▁▂▅█▇▅▂▁                   ▁▂▅█▇▅▂▁                   ▁▂▅█▇▅▂▁
//!          0 s   1 min                0 s   1 min                0 s   1 min
//! ```

mod axis;
mod overload;
mod panel;
mod view;

pub use overload::{OverloadFigure, OverloadView};
pub use view::View;

use crate::ink::Ink;
use crate::path::Path;
use crate::scene::{Anchor, Scene, Text};
use axis::TimeAxis;
use panel::Panel;
use sluicegate_sim::human::{self, about, count, cut, span};
use sluicegate_sim::report::{Report, Tried};

/// Around everything.
const MARGIN: f64 = 24.0;
/// The title, the source and the headings of the views.
const HEAD: f64 = 108.0;
/// The line above a row that says what was tried.
const LABEL: f64 = 24.0;
/// A panel without what stands around it.
const PANEL: f64 = 84.0;
/// The marks of single calls, below a panel that has them.
const RUG: f64 = 17.0;
/// What those marks mean, below the times.
const RUG_LEGEND: f64 = 18.0;
/// Between a row and the next.
const GAP: f64 = 14.0;
/// The times below the last row.
const FOOT: f64 = 40.0;
/// The numbers to the left of a panel.
const NUMBERS: f64 = 46.0;
/// Longer names of sources and keys are cut, in letters.
const SOURCE_MAX: usize = 64;
const KEY_MAX: usize = 24;
/// The width of the picture with one view.
const WIDTH: f64 = 860.0;
/// How much wider it gets by each further one.
const WIDTH_MORE: f64 = 250.0;

/// What a picture shows.
#[derive(Clone, Debug)]
pub struct Figure<'a> {
    /// The title; by default, what was compared.
    pub title: Option<&'a str>,
    /// The columns, at least one.
    pub views: &'a [View],
}

impl Figure<'_> {
    /// Draws a simulation.
    pub fn draw(&self, report: &Report<'_>) -> Scene {
        let columns = self.views.len().max(1);
        #[expect(clippy::cast_precision_loss, reason = "there are a handful of views and rows")]
        let (columns, rows) = (columns as f64, report.tried.len() as f64);
        let width = WIDTH + (columns - 1.0) * WIDTH_MORE;
        let rug = if self.has_rug(report) { RUG } else { 0.0 };
        let row_height = LABEL + PANEL + rug + GAP;
        let foot = if rug > 0.0 { FOOT + RUG_LEGEND } else { FOOT };
        let height = HEAD + rows * row_height - GAP + foot;
        let mut scene = Scene::new(width, height, self.title(report), description(report));
        self.head(&mut scene, report);
        let column_width = (width - 2.0 * MARGIN + GAP) / columns;
        let mut left = MARGIN;
        for view in self.views {
            let mut panel = Panel {
                x: left + NUMBERS,
                y: HEAD + LABEL,
                width: column_width - NUMBERS - GAP,
                height: PANEL,
            };
            let axis = TimeAxis::new(report, panel.x, panel.width);
            view.heading(&mut scene, report, panel.x, HEAD - 17.0);
            for tried in &report.tried {
                view.draw(&mut scene, report, tried, &panel, &axis);
                panel.y += row_height;
            }
            let below = panel.y - LABEL - GAP;
            axis.draw_times(&mut scene, below + 18.0);
            if *view == View::Window && rug > 0.0 {
                view::explain_marks(&mut scene, panel.x, below + 42.0);
            }
            left += column_width;
        }
        let mut y = HEAD + LABEL - 9.0;
        for tried in &report.tried {
            label(&mut scene, report, tried, y);
            y += row_height;
        }
        scene
    }

    fn title(&self, report: &Report<'_>) -> String {
        let what = match report.tried.as_slice() {
            [one] => one.label.clone(),
            several => format!("{} limits on the same calls", several.len()),
        };
        self.title.map_or(what, str::to_owned)
    }

    fn has_rug(&self, report: &Report<'_>) -> bool {
        self.views.contains(&View::Window)
            && report.tried.iter().any(|tried| !tried.outcome.focus.marks.is_empty())
    }

    fn head(&self, scene: &mut Scene, report: &Report<'_>) {
        let width = scene.width - 2.0 * MARGIN;
        scene.text(Text::new((MARGIN, 38.0), self.title(report), 20.0).bold().within(width));
        let said = source(report) + &self.close_look(report);
        scene.text(Text::new((MARGIN, 59.0), said, 12.5).ink(Ink::Faint).within(width));
    }

    /// Whose curves are shown if there are several keys, and how coarse they are if that hides
    /// something.
    fn close_look(&self, report: &Report<'_>) -> String {
        let simulation = &report.simulation;
        let Some(tried) =
            report.tried.first().filter(|_| self.views.iter().any(|view| *view != View::Traffic))
        else {
            return String::new();
        };
        let mut said = String::new();
        if simulation.keys().len() > 1 {
            said += &format!(
                "; the curves are {}'s",
                human::key(simulation.traffic().key(simulation.focus()), KEY_MAX)
            );
        }
        let piece = tried.outcome.focus.width;
        if tried.limits.iter().any(|limit| piece > limit.period()) {
            said += &format!("; each point is the tightest of {}", about(piece));
        }
        said
    }
}

/// Where the calls come from: `poisson 20/s, 12 000 calls of 100 keys`.
fn source(report: &Report<'_>) -> String {
    format!("{}: {}", cut(&human::printable(&report.source), SOURCE_MAX), report.calls_and_keys())
}

/// The limit or protection on the left, its result on the right.
fn label(scene: &mut Scene, report: &Report<'_>, tried: &Tried, y: f64) {
    let right = scene.width - MARGIN;
    let outcome = &tried.outcome;
    let mut said = format!("{} allowed, {} denied", count(outcome.allowed), count(outcome.denied));
    if let Some((_, worst)) = tried.worst() {
        said += &format!(", at most {} in any {}", count(worst.count), span(worst.length));
        if report.simulation.keys().len() > 1 {
            said += &format!(" by {}", human::key(report.simulation.traffic().key(worst.key), KEY_MAX));
        }
    }
    let said = Text::new((right, y), said, 12.0).anchor(Anchor::End).ink(Ink::Faint);
    let label = Text::new((MARGIN, y), tried.label.clone(), 13.5).bold();
    scene.text(label.within(said.left() - MARGIN - GAP));
    scene.text(said);
}

/// For those who do not see the picture.
fn description(report: &Report<'_>) -> String {
    let mut said = source(report) + ".";
    for tried in &report.tried {
        said +=
            &format!(" {}: {} allowed, {} denied", tried.label, tried.outcome.allowed, tried.outcome.denied);
        if let Some((limit, worst)) = tried.worst() {
            said += &format!(", at most {} of {} in any {}", worst.count, limit.count(), span(worst.length));
        }
        said.push('.');
    }
    said.replace(human::TIE, " ")
}

/// A small square of an ink and what it stands for; how far it reaches.
fn legend(scene: &mut Scene, x: f64, y: f64, ink: Ink, words: &str) -> f64 {
    let square = Path::rounded(x, y - 8.5, 9.0, 9.0, 2.0);
    scene.fill(square.clone(), ink);
    if ink == Ink::AllowedSoft {
        // Too soft to be seen without the edge that it has in the panels too.
        scene.line(square, Ink::Allowed, 1.2);
    }
    let text = Text::new((x + 13.0, y), words, 12.0).ink(Ink::Faint);
    let end = x + 13.0 + text.width() + 14.0;
    scene.text(text);
    end
}
