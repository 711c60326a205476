//! The same views in the terminal, from blocks an eighth of a letter high.
//!
//! ```text
//!  24 ┤            ▆█
//!  12 ┤┄┄┄┄▂▆░░░░░░░░┄┄┄┄┄┄┄┄
//!   0 ┼──────────────────────
//! ```
//!
//! A light block is what lies under a curve, a full one what lies above the limit.

use crate::figure::View;
use sluicegate_core::{Span, Time};
use sluicegate_sim::human::{self, TIE, cut, short};
use sluicegate_sim::report::{Report, Tried};

/// The rows of a drawing.
const ROWS: u64 = 6;
/// The numbers to the left.
const NUMBERS: usize = 7;
/// The numbers, a space and the axis.
const LEFT: usize = NUMBERS + 2;
/// No drawing is narrower, whatever is asked for.
const WIDTH_MIN: usize = 40;
/// Longer names of keys are cut, in columns.
const KEY_MAX: usize = 30;
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

/// Draws a simulation in at most `width` columns, or 40 if that is less.
pub fn draw(report: &Report<'_>, views: &[View], width: usize, colours: Colours) -> String {
    let width = width.max(WIDTH_MIN);
    let mut text = String::new();
    for view in views {
        let grid = Grid::new(*view, report, width - LEFT);
        text += &format!("\n{}\n", cut(&heading(*view, report, &grid), width));
        let has_marks = report.tried.iter().any(|tried| !tried.outcome.focus.marks.is_empty());
        if *view == View::Window && has_marks {
            text += "Calls: ● allowed · denied ◐ some of both\n";
        }
        for tried in &report.tried {
            text += &format!("\n{}\n", cut(&human::printable(&tried.label), width));
            text += &bars(*view, report, tried, &grid).draw(colours);
            if *view == View::Window {
                text += &marks(report, tried, &grid);
            }
        }
        text += &times(report, &grid);
    }
    text.replace(TIE, " ")
}

fn heading(view: View, report: &Report<'_>, grid: &Grid) -> String {
    let simulation = &report.simulation;
    let of_key = match simulation.keys().len() {
        1 => String::new(),
        _ => format!(" by {}", human::key(simulation.traffic().key(simulation.focus()), KEY_MAX)),
    };
    match view {
        View::Traffic => format!("{}: █ allowed ░ offered", View::traffic_title(report, grid.bar_width)),
        View::Window => format!("{}{of_key}: ░ within the limit █ above it", view.title(report)),
        View::Room => format!("{}{of_key}", view.title(report)),
    }
}

/// How time is laid out on columns.
struct Grid {
    /// How many columns there are.
    columns: usize,
    /// Bars that make one column, if there are more of them than columns.
    merged: usize,
    /// Columns that one bar takes, if there are fewer of them.
    repeated: usize,
    /// How long a bar is in the end.
    bar_width: Span,
    /// When the last column ends.
    end: Time,
}

impl Grid {
    /// The bars of the traffic are put together or widened by whole numbers, so that no call is
    /// shown twice or left out. Curves are squeezed into all columns there are.
    fn new(view: View, report: &Report<'_>, columns: usize) -> Grid {
        let timeline = report.simulation.timeline();
        let bar_width = timeline.width();
        if view != View::Traffic {
            return Grid { columns, merged: 1, repeated: 1, bar_width, end: timeline.end() };
        }
        let merged = timeline.len().div_ceil(columns);
        let bars = timeline.len().div_ceil(merged);
        let repeated = (columns / bars).max(1);
        Grid {
            columns: bars * repeated,
            merged,
            repeated,
            bar_width: Span::from_micros(bar_width.as_micros().saturating_mul(merged as u64)),
            end: timeline.begin_of(bars * merged),
        }
    }

    fn of_bars(&self, bars: &[u64]) -> Vec<u64> {
        let sums = bars.chunks(self.merged).map(|some| some.iter().sum::<u64>());
        sums.flat_map(|sum| std::iter::repeat_n(sum, self.repeated)).collect()
    }

    /// Of several pieces of a curve that fall into one column the one that matters.
    fn of_curve(&self, pieces: &[u64], pick: impl Fn(u64, u64) -> u64) -> Vec<u64> {
        let many = pieces.len();
        let column = |column: usize| {
            let from = column * many / self.columns;
            let to = ((column + 1) * many / self.columns).max(from + 1);
            pieces.get(from..to).unwrap_or_default().iter().copied().reduce(&pick).unwrap_or(0)
        };
        (0..self.columns).map(column).collect()
    }
}

/// Bars beside each other, one a column.
struct Bars {
    columns: Vec<Bar>,
    scale: Scale,
    /// Whether they are a curve: what lies under it is light, so that what is above the limit
    /// stands out.
    is_curve: bool,
}

#[derive(Clone, Copy)]
struct Bar {
    /// How high it is.
    amount: u64,
    /// How high the light part behind it is.
    behind: u64,
}

/// How high amounts are: `parts` of an eighth of a row for each `whole`.
#[derive(Clone, Copy)]
struct Scale {
    parts: u64,
    whole: u64,
    /// The amount at the top.
    top: u64,
    /// The limit and how many rows are below it.
    limit: Option<(u64, u64)>,
}

impl Scale {
    fn up_to(top: u64) -> Scale {
        let top = top.max(1);
        Scale { parts: 8 * ROWS, whole: top, top, limit: None }
    }

    /// A scale on which the limit lies between two rows, if there is room for that below `most`.
    fn with_limit(most: u64, limit: u64) -> Scale {
        let limit = limit.max(1);
        // In the middle if that is enough.
        let below = (ROWS * limit / most.max(1)).min(ROWS / 2);
        if below == 0 {
            return Scale { limit: Some((limit, 1)), ..Scale::up_to(most) };
        }
        Scale { parts: 8 * below, whole: limit, top: limit * ROWS / below, limit: Some((limit, below)) }
    }

    /// The eighths of a row that an amount reaches into it. Rounded up: even a little is seen.
    fn eighths(&self, amount: u64, row: u64) -> usize {
        // In 128 bits: amounts are up to 2^62.
        let all = (u128::from(amount) * u128::from(self.parts)).div_ceil(u128::from(self.whole));
        usize::try_from(all.saturating_sub(u128::from(8 * row)).min(8)).unwrap_or(8)
    }
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

fn bars(view: View, report: &Report<'_>, tried: &Tried, grid: &Grid) -> Bars {
    let outcome = &tried.outcome;
    let curve = |amounts: Vec<u64>| amounts.into_iter().map(|amount| Bar { amount, behind: 0 }).collect();
    match view {
        View::Traffic => {
            let (allowed, offered) =
                (grid.of_bars(&outcome.allowed_bars), grid.of_bars(report.simulation.offered()));
            // One scale for all: the bars are there to be compared.
            let all_allowed = report.tried.iter().flat_map(|tried| grid.of_bars(&tried.outcome.allowed_bars));
            let top = offered.iter().copied().chain(all_allowed).max().unwrap_or(0);
            let columns = allowed.into_iter().zip(offered).map(|(amount, behind)| Bar { amount, behind });
            Bars { columns: columns.collect(), scale: Scale::up_to(top), is_curve: false }
        }
        View::Window => {
            let scale = Scale::with_limit(View::most_used(report, tried), View::limit(tried));
            Bars { columns: curve(grid.of_curve(&outcome.focus.window, u64::max)), scale, is_curve: true }
        }
        View::Room => {
            let scale = Scale::up_to(outcome.focus.room_max);
            Bars { columns: curve(grid.of_curve(&outcome.focus.room, u64::min)), scale, is_curve: true }
        }
    }
}

impl Bars {
    fn draw(&self, colours: Colours) -> String {
        let mut text = String::new();
        for row in (0..ROWS).rev() {
            let limit = self.scale.limit.filter(|(_, below)| *below == row + 1).map(|(limit, _)| limit);
            let number = limit.or_else(|| (row + 1 == ROWS).then_some(self.scale.top)).map(short);
            let axis = if number.is_some() { '┤' } else { '│' };
            text += &format!("{:>NUMBERS$} {axis}", number.unwrap_or_default());
            let ground = if limit.is_some() { '┄' } else { ' ' };
            let letters = self.columns.iter().map(|bar| self.letter(*bar, row, ground));
            text += painted(letters, colours).trim_end();
            text.push('\n');
        }
        let floor = "─".repeat(self.columns.len());
        text + &format!("{:>NUMBERS$} ┼{floor}\n", 0)
    }

    /// The letter of a bar in a row, counted from the bottom.
    fn letter(&self, bar: Bar, row: u64, ground: char) -> Letter {
        let filled = self.scale.eighths(bar.amount, row);
        let letter = EIGHTHS.get(filled).copied().unwrap_or(' ');
        let is_above = self.scale.limit.is_some_and(|(_, below)| row >= below);
        match filled {
            // Less than half a row would look like more.
            0 if self.scale.eighths(bar.behind, row) > 3 => Letter::Ground('░'),
            0 => Letter::Ground(ground),
            _ if is_above => Letter::Above(letter),
            8 if self.is_curve => Letter::Usual('░'),
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

/// A row of marks, if there are few enough to be seen.
fn marks(report: &Report<'_>, tried: &Tried, grid: &Grid) -> String {
    let marks = &tried.outcome.focus.marks;
    if marks.is_empty() {
        return String::new();
    }
    let start = report.simulation.timeline().start();
    let length = u128::from(grid.end.since(start).as_micros()).max(1);
    let mut row = vec![(false, false); grid.columns];
    for (at, allowed) in marks {
        let column = u128::from(at.since(start).as_micros()) * grid.columns as u128 / length;
        if let Some(place) = usize::try_from(column).ok().and_then(|column| row.get_mut(column)) {
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

/// The beginning, the middle and the end, as far as there is room.
fn times(report: &Report<'_>, grid: &Grid) -> String {
    let start = report.simulation.timeline().start();
    let middle = start.saturating_add(Span::from_micros(grid.end.since(start).as_micros() / 2));
    let [first, middle, last] = [start, middle, grid.end].map(|at| report.brief_time(at));
    let [first_columns, middle_columns, last_columns] =
        [&first, &middle, &last].map(|text| human::columns(text));
    let room = grid.columns.saturating_sub(first_columns + last_columns);
    let rest = match room {
        0..2 => String::new(),
        _ if room < middle_columns + 4 => " ".repeat(room) + &last,
        _ => format!("{middle:^room$}{last}"),
    };
    format!("{}{first}{rest}\n", " ".repeat(LEFT))
}
