//! Rows of cells that stand under each other.

use sluicegate_sim::human::{TIE, columns};

/// The first column to the left, the others to the right, two spaces apart.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let many = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |place: usize| rows.iter().filter_map(|row| row.get(place)).map(|cell| columns(cell)).max();
    let widths: Vec<usize> = (0..many).map(|place| width(place).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width.saturating_sub(columns(cell)));
            line += &if place == 0 { format!("{cell}{room}") } else { format!("  {room}{cell}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text.replace(TIE, " ")
}
