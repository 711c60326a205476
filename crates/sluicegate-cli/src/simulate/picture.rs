//! Pictures of a report, as the arguments ask for them.

use crate::Problem;
use crate::args::{SimulateArgs, ThemeName, View as ViewName};
use sluicegate_plot::font::covers;
use sluicegate_plot::terminal::{self, Colours};
use sluicegate_plot::{Figure, Scene, Shade, Theme, View};
use sluicegate_sim::human::printable;
use sluicegate_sim::report::Report;
use std::io::{self, IsTerminal as _, Write as _};

/// Pixels per unit of length in a PNG: sharp on today's screens.
pub(crate) const PNG_SCALE: f64 = 2.0;
/// How wide the drawing in the terminal is, in columns.
const TERMINAL_WIDTH: usize = 80;

pub(super) fn svg(report: &Report<'_>, args: &SimulateArgs) -> String {
    sluicegate_plot::svg(&scene(report, args), theme(args.theme))
}

/// The colours of an SVG.
pub(crate) fn theme(name: ThemeName) -> Theme {
    match name {
        ThemeName::Auto => Theme::Auto,
        ThemeName::Light => Theme::Light,
        ThemeName::Dark => Theme::Dark,
    }
}

/// The colours of a PNG, which cannot follow anybody's screen.
pub(crate) fn shade(name: ThemeName) -> Shade {
    if name == ThemeName::Dark { Shade::Dark } else { Shade::Light }
}

pub(super) fn png(report: &Report<'_>, args: &SimulateArgs) -> Result<Vec<u8>, Problem> {
    let labels = report.tried.iter().map(|tried| tried.label.as_str());
    warn_of_boxes(labels.chain(args.title.as_deref()));
    let picture = sluicegate_plot::png(&scene(report, args), shade(args.theme), PNG_SCALE);
    picture.map_err(|error| error.to_string())
}

/// A PNG has only the letters of its own font; an SVG leaves the others to the reader's.
pub(crate) fn warn_of_boxes<'a>(all_words: impl Iterator<Item = &'a str>) {
    for words in all_words.filter(|words| !covers(words, true)) {
        let words = printable(words);
        // Standard error is closed: there is no one to report this to.
        let _ = writeln!(
            io::stderr(),
            "sluice: the PNG shows boxes in {words:?}, as its font lacks letters; draw an SVG"
        );
    }
}

pub(super) fn in_terminal(report: &Report<'_>, args: &SimulateArgs) -> String {
    let plain =
        !io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let colours = if plain { Colours::None } else { Colours::Used };
    terminal::draw(report, &views(args), TERMINAL_WIDTH, colours)
}

fn scene(report: &Report<'_>, args: &SimulateArgs) -> Scene {
    Figure { title: args.title.as_deref(), views: &views(args) }.draw(report)
}

fn views(args: &SimulateArgs) -> Vec<View> {
    let view = |view: &ViewName| match view {
        ViewName::Traffic => View::Traffic,
        ViewName::Window => View::Window,
        ViewName::Room => View::Room,
    };
    match args.show.as_slice() {
        [] => vec![View::Traffic, View::Window, View::Room],
        some => some.iter().map(view).collect(),
    }
}
