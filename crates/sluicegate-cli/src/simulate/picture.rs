//! Pictures of a report, as the arguments ask for them.

use crate::Problem;
use crate::args::{SimulateArgs, ThemeName, View as ViewName};
use sluicegate_plot::terminal::{self, Colours};
use sluicegate_plot::{Figure, Scene, Shade, Theme, View};
use sluicegate_sim::report::Report;
use std::io::{self, IsTerminal as _};

/// A PNG has so many pixels for each unit of length: sharp on today's screens.
const PNG_SCALE: f64 = 2.0;
/// How wide the drawing in the terminal is, in columns.
const TERMINAL_WIDTH: usize = 80;

pub(super) fn svg(report: &Report<'_>, args: &SimulateArgs) -> String {
    let theme = match args.theme {
        ThemeName::Auto => Theme::Auto,
        ThemeName::Light => Theme::Light,
        ThemeName::Dark => Theme::Dark,
    };
    sluicegate_plot::svg(&scene(report, args), theme)
}

pub(super) fn png(report: &Report<'_>, args: &SimulateArgs) -> Result<Vec<u8>, Problem> {
    let shade = if args.theme == ThemeName::Dark { Shade::Dark } else { Shade::Light };
    sluicegate_plot::png(&scene(report, args), shade, PNG_SCALE).map_err(|error| error.to_string())
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
    args.show.iter().map(view).collect()
}
