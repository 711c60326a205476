//! Rows of cells that stand under each other.

use sluicegate_sim::human::{TIE, columns, cut};

/// How wide a table is, if the first column can be cut so far.
const WIDTH: usize = 80;
/// Between two columns.
const GAP: usize = 2;

/// The first column to the left, cut to `first_min` if need be, the others to the right.
pub(super) fn align(rows: &[Vec<String>], first_min: usize) -> String {
    let many = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |place: usize| rows.iter().filter_map(|row| row.get(place)).map(|cell| columns(cell)).max();
    let mut widths: Vec<usize> = (0..many).map(|place| width(place).unwrap_or_default()).collect();
    let others: usize = widths.iter().skip(1).map(|width| width + GAP).sum();
    if let Some(first) = widths.first_mut() {
        *first = (*first).min(WIDTH.saturating_sub(others).max(first_min));
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = if place == 0 { cut(cell, *width) } else { cell.clone() };
            let room = " ".repeat(width.saturating_sub(columns(&cell)));
            line += &if place == 0 { cell + &room } else { " ".repeat(GAP) + &room + &cell };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text.replace(TIE, " ")
}
