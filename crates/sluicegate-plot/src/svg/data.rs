//! Numbers and outlines in the notation of SVG.

use crate::path::{Path, Point, Step};
use std::fmt::{self, Write as _};
use std::ops::Sub;

/// Far outside of any picture. Differences of numbers within it cannot wrap.
const FARTHEST: f64 = 1e15;

/// A number in whole hundredths.
///
/// Rounded once, and exact from then on: relative coordinates do not drift.
/// It prints as `12.5`, `-3` or `0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hundredths(i64);

impl From<f64> for Hundredths {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "it is rounded and within bounds; not-a-number becomes 0"
    )]
    fn from(number: f64) -> Hundredths {
        debug_assert!(number.is_finite(), "{number} cannot be drawn");
        Hundredths((number * 100.0).round().clamp(-FARTHEST, FARTHEST) as i64)
    }
}

impl Sub for Hundredths {
    type Output = Hundredths;

    fn sub(self, other: Hundredths) -> Hundredths {
        Hundredths(self.0 - other.0)
    }
}

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.unsigned_abs() / 100, self.0.unsigned_abs() % 100);
        match rest {
            0 => write!(f, "{sign}{whole}"),
            _ if rest % 10 == 0 => write!(f, "{sign}{whole}.{}", rest / 10),
            _ => write!(f, "{sign}{whole}.{rest:02}"),
        }
    }
}

/// How large a font unit is in a text; never negative. Hundredths would be too coarse: this is
/// below 0.01, and what it is multiplied with is in the tens of thousands.
pub(super) fn ratio(number: f64) -> String {
    debug_assert!(number.is_finite(), "{number} cannot be drawn");
    let number = if number.is_finite() { number.abs() } else { 0.0 };
    let decimals = format!("{number:.8}");
    decimals.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A path as the attribute `d` has it, every step relative to the one before.
pub(super) fn data(path: &Path) -> String {
    let mut pen = Pen::default();
    for step in path.steps() {
        match *step {
            Step::Move(to) => pen.move_to(to),
            Step::Line(to) => pen.line_to(to),
            Step::Quad(by, to) => pen.quad_to(by, to),
            Step::Close => pen.close(),
        }
    }
    pen.text
}

/// What is written, where the pen is, and where the piece began.
#[derive(Default)]
struct Pen {
    text: String,
    at: (Hundredths, Hundredths),
    began: (Hundredths, Hundredths),
}

impl Pen {
    fn move_to(&mut self, to: Point) {
        let (x, y) = self.go_to(to);
        self.began = self.at;
        self.step('m', &[x, y]);
    }

    fn line_to(&mut self, to: Point) {
        match self.go_to(to) {
            // Too short to be seen.
            (Hundredths(0), Hundredths(0)) => {}
            (x, Hundredths(0)) => self.step('h', &[x]),
            (Hundredths(0), y) => self.step('v', &[y]),
            (x, y) => self.step('l', &[x, y]),
        }
    }

    fn quad_to(&mut self, by: Point, to: Point) {
        let (by_x, by_y) = self.way_to(by);
        let (x, y) = self.go_to(to);
        self.step('q', &[by_x, by_y, x, y]);
    }

    fn close(&mut self) {
        self.at = self.began;
        self.text.push('z');
    }

    fn way_to(&self, (x, y): Point) -> (Hundredths, Hundredths) {
        (Hundredths::from(x) - self.at.0, Hundredths::from(y) - self.at.1)
    }

    fn go_to(&mut self, to: Point) -> (Hundredths, Hundredths) {
        let way = self.way_to(to);
        self.at = (Hundredths::from(to.0), Hundredths::from(to.1));
        way
    }

    fn step(&mut self, letter: char, numbers: &[Hundredths]) {
        self.text.push(letter);
        for (place, number) in numbers.iter().enumerate() {
            // A minus sign is enough to tell two numbers apart.
            let space = if place > 0 && number.0 >= 0 { " " } else { "" };
            // Writing to a string does not fail.
            let _ = write!(self.text, "{space}{number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = |number: f64| Hundredths::from(number).to_string();
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(-0.0), "0");
        assert_eq!(shown(-0.004), "0");
        assert_eq!(shown(-0.05), "-0.05");
        assert_eq!(shown(12.5), "12.5");
        assert_eq!(shown(12.345), "12.35");
        assert_eq!(shown(640.0), "640");
        assert_eq!(shown(-1.999), "-2");
        assert_eq!(shown(1e300), "10000000000000");
        assert_eq!(ratio(12.0 / 2048.0), "0.00585938");
        assert_eq!(ratio(1.0), "1");
        assert_eq!(ratio(-0.0), "0");
    }

    #[test]
    fn a_rectangle_is_four_short_steps() {
        assert_eq!(data(&Path::rect(10.0, 20.0, 2.5, 5.0)), "m10 20h2.5v5h-2.5z");
    }

    #[test]
    fn a_piece_begins_relative_to_where_the_last_one_began() {
        let mut path = Path::rect(10.0, 20.0, 2.0, 5.0);
        path.extend(Path::rect(14.0, 18.0, 2.0, 5.0));
        assert_eq!(data(&path), "m10 20h2v5h-2zm4-2h2v5h-2z");
    }

    #[test]
    fn a_curve_is_written_by_its_bend_and_its_end() {
        let mut path = Path::polyline([(1.0, 1.0)]);
        path.quad_to((3.0, 0.0), (5.0, 1.0));
        assert_eq!(data(&path), "m1 1q2-1 4 0");
    }

    #[test]
    fn a_long_line_of_thirds_ends_where_it_should() {
        let path = Path::polyline((0..=3000_u32).map(|step| (f64::from(step) / 3.0, f64::from(step % 2))));
        let text = data(&path);
        let steps = text.split('l').skip(1);
        let right: f64 = steps.filter_map(|way| way.split([' ', '-']).next()?.parse::<f64>().ok()).sum();
        assert!((right - 1000.0).abs() < 1e-6, "{right}");
    }
}
