//! Rows of cells that stand under each other.

use sluicegate_sim::human::TIE;

/// The first column to the left, the others to the right, two spaces apart.
pub(super) fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| letters(cell)).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(width - letters(cell));
            line += &if column == 0 { format!("{cell}{room}") } else { format!("  {room}{cell}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text.replace(TIE, " ")
}

fn letters(cell: &str) -> usize {
    cell.chars().count()
}
