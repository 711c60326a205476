//! The same views in the terminal, from blocks an eighth of a letter high.
//!
//! ```text
//!  24 ┤            ▆█
//!  12 ┤----▂▆░░░░░░██--------
//!   0 ┼──────────────────────
//! ```
//!
//! A light block is what lies under a curve, a full one what lies above the limit.

use crate::figure::View;
use sluicegate::core::{Span, Time};
use sluicegate_sim::human::{self, TIE, count, cut};
use sluicegate_sim::report::{Report, Tried};

/// The rows of a drawing.
const ROWS: u64 = 6;
/// The numbers to the left.
const NUMBERS: usize = 7;
/// The numbers, a space and the axis.
const LEFT: usize = NUMBERS + 2;
/// No drawing is narrower, whatever is asked for.
const WIDTH_MIN: usize = 40;
/// What is empty, an eighth ... full.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Whether a drawing may use colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colours {
    /// Blue and orange.
    Used,
    /// Shapes alone.
    None,
}

/// Draws a simulation in at most `width` columns.
pub fn draw(report: &Report<'_>, views: &[View], width: usize, colours: Colours) -> String {
    let width = width.max(WIDTH_MIN);
    let columns = width - LEFT;
    let mut text = String::new();
    for view in views {
        text += &format!("\n{}\n", cut(&heading(*view, report), width));
        for tried in &report.tried {
            text += &format!("\n{}\n", cut(&human::printable(&tried.label), width));
            let bars = bars(*view, report, tried, columns);
            text += &bars.draw(colours);
            if *view == View::Window {
                text += &marks(report, tried, columns);
            }
        }
        text += &times(report, columns);
    }
    text.replace(TIE, " ")
}

fn heading(view: View, report: &Report<'_>) -> String {
    let simulation = &report.simulation;
    let of_key = match simulation.keys().len() {
        1 => String::new(),
        _ => format!(" by {}", human::key(simulation.traffic().key(simulation.focus()), 30)),
    };
    let title = view.title(report);
    match view {
        View::Traffic => format!("{title}: █ allowed ░ offered"),
        View::Window => format!("{title}{of_key}: ░ within the limit █ above it"),
        View::Room => format!("{title}{of_key}"),
    }
}

/// Bars beside each other, one a column.
struct Bars {
    columns: Vec<Bar>,
    /// The amount at the top.
    top: u64,
    /// What is drawn above it is above the limit.
    limit: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Bar {
    /// How high it is.
    amount: u64,
    /// How high the light part above it is.
    behind: u64,
}

/// One letter of a drawing.
#[derive(Clone, Copy)]
enum Letter {
    /// Nothing, or the line of the limit.
    Ground(char),
    /// Something that is as it should be.
    Usual(char),
    /// Something above the limit.
    Above(char),
}

fn bars(view: View, report: &Report<'_>, tried: &Tried, columns: usize) -> Bars {
    let outcome = &tried.outcome;
    match view {
        View::Traffic => {
            let offered = squeeze(report.simulation.offered(), columns, u64::max);
            let allowed = squeeze(&outcome.allowed_bars, columns, u64::max);
            let bars = allowed.into_iter().zip(offered).map(|(amount, behind)| Bar { amount, behind });
            let bars: Vec<Bar> = bars.collect();
            let top = bars.iter().map(|bar| bar.amount.max(bar.behind)).max().unwrap_or(0);
            Bars { columns: bars, top: top.max(1), limit: None }
        }
        View::Window => {
            let limit = tried.limits.first().map_or(1, |limit| u64::from(limit.count()));
            let used = squeeze(&outcome.focus.window, columns, u64::max);
            let most = used.iter().copied().max().unwrap_or(0);
            // Twice the limit if that is enough, so that the limit lies between two rows.
            let top = most.max(2 * limit);
            let bars = used.into_iter().map(|amount| Bar { amount, behind: 0 }).collect();
            Bars { columns: bars, top, limit: Some(limit) }
        }
        View::Room => {
            let room: Vec<u64> = outcome.focus.room.iter().map(|room| u64::from(*room)).collect();
            let left = squeeze(&room, columns, u64::min);
            let bars = left.into_iter().map(|amount| Bar { amount, behind: 0 }).collect();
            Bars { columns: bars, top: u64::from(outcome.focus.room_max).max(1), limit: None }
        }
    }
}

/// As many amounts as there are columns: where several fall into one, the one that matters; where there are fewer, each
/// several times.
fn squeeze(amounts: &[u64], columns: usize, pick: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    let many = amounts.len();
    let column = |column: usize| {
        let from = column * many / columns;
        let to = ((column + 1) * many / columns).max(from + 1);
        amounts.get(from..to).unwrap_or_default().iter().copied().reduce(&pick).unwrap_or(0)
    };
    (0..columns).map(column).collect()
}

impl Bars {
    fn draw(&self, colours: Colours) -> String {
        let mut text = String::new();
        for row in (0..ROWS).rev() {
            let low = self.top * row / ROWS;
            let high = self.top * (row + 1) / ROWS;
            let holds_limit = self.limit.is_some_and(|limit| low < limit && limit <= high);
            let number = match self.limit {
                Some(limit) if holds_limit => Some(limit),
                _ => (row + 1 == ROWS).then_some(self.top),
            };
            let number = number.map_or_else(String::new, |number| cut(&count(number), NUMBERS));
            let axis = if number.is_empty() { '│' } else { '┤' };
            text += &format!("{number:>NUMBERS$} {axis}");
            let ground = if holds_limit { '┄' } else { ' ' };
            let letters = self.columns.iter().map(|bar| self.letter(*bar, row, ground));
            text += painted(letters, colours).trim_end();
            text.push('\n');
        }
        let floor = "─".repeat(self.columns.len());
        text + &format!("{:>NUMBERS$} ┼{floor}\n", 0)
    }

    /// The letter of a bar in a row, counted from the bottom.
    fn letter(&self, bar: Bar, row: u64, ground: char) -> Letter {
        let eighths = |amount: u64| {
            // Rounded up: even a little is seen. Cannot wrap: costs of a simulation sum up far below 2^58.
            let filled = (amount * ROWS * 8).div_ceil(self.top).saturating_sub(row * 8).min(8);
            usize::try_from(filled).unwrap_or(8)
        };
        let (filled, behind) = (eighths(bar.amount), eighths(bar.behind));
        let letter = EIGHTHS.get(filled).copied().unwrap_or(' ');
        // What lies under a curve is light, so that what is above the limit stands out.
        let is_curve = bar.behind == 0;
        let is_above = self.limit.is_some_and(|limit| self.top * (row + 1) / ROWS > limit);
        match filled {
            0 if behind > 2 => Letter::Ground('░'),
            0 => Letter::Ground(ground),
            _ if is_above => Letter::Above(letter),
            8 if is_curve => Letter::Usual('░'),
            _ => Letter::Usual(letter),
        }
    }
}

/// Letters in a line; with colours, blue for the usual and orange for what is above the limit.
fn painted(letters: impl Iterator<Item = Letter>, colours: Colours) -> String {
    const PLAIN: &str = "\x1b[0m";
    const BLUE: &str = "\x1b[34m";
    const ORANGE: &str = "\x1b[33m";
    let mut text = String::new();
    let mut current = PLAIN;
    for letter in letters {
        let (paint, letter) = match letter {
            Letter::Ground(letter) => (PLAIN, letter),
            Letter::Usual(letter) => (BLUE, letter),
            Letter::Above(letter) => (ORANGE, letter),
        };
        if colours == Colours::Used && paint != current {
            text += paint;
            current = paint;
        }
        text.push(letter);
    }
    if current != PLAIN {
        text += PLAIN;
    }
    text
}

/// A row of marks: ● allowed, · denied, ◐ some of both.
fn marks(report: &Report<'_>, tried: &Tried, columns: usize) -> String {
    let marks = &tried.outcome.focus.marks;
    if marks.is_empty() {
        return String::new();
    }
    let pieces = report.simulation.timeline().in_pieces(columns as u64);
    let mut row = vec![(false, false); columns];
    for (at, allowed) in marks {
        if let Some(place) = pieces.place(*at).and_then(|place| row.get_mut(place)) {
            if *allowed { place.0 = true } else { place.1 = true }
        }
    }
    let letter = |seen: &(bool, bool)| match seen {
        (false, false) => ' ',
        (true, false) => '●',
        (false, true) => '·',
        (true, true) => '◐',
    };
    let row: String = row.iter().map(letter).collect();
    format!("{:>NUMBERS$}  {}\n", "calls", row.trim_end())
}

/// The beginning, the middle and the end.
fn times(report: &Report<'_>, columns: usize) -> String {
    let timeline = report.simulation.timeline();
    let length = timeline.end().since(timeline.start()).as_micros();
    let tell = |at: Time| report.simulation.traffic().clock().tell_briefly(at);
    let middle = timeline.start().after(Span::from_micros(length / 2));
    let [first, middle, last] = [timeline.start(), middle, timeline.end()].map(tell);
    let room = columns.saturating_sub(first.chars().count() + last.chars().count());
    format!("{}{first}{middle:^room$}{last}\n", " ".repeat(LEFT))
}
