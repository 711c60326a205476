//! Outlines: straight lines, and the curves that glyphs and round corners need.

/// Right and down from the upper left corner of the scene.
pub type Point = (f64, f64);

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Begin a new piece here.
    Move(Point),
    /// Go straight to here.
    Line(Point),
    /// Bend towards the first point on the way to the second.
    Quad(Point, Point),
    /// Go straight back to where the piece began.
    Close,
}

/// Any number of pieces, each a line or an outline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    steps: Vec<Step>,
}

impl Path {
    /// Nothing yet.
    pub fn new() -> Path {
        Path::default()
    }

    /// A rectangle.
    pub fn rect(x: f64, y: f64, width: f64, height: f64) -> Path {
        Path::polygon([(x, y), (x + width, y), (x + width, y + height), (x, y + height)])
    }

    /// A rectangle with round corners. A radius too large for it is made smaller.
    pub fn rounded(x: f64, y: f64, width: f64, height: f64, radius: f64) -> Path {
        let radius = radius.min(width / 2.0).min(height / 2.0);
        if radius <= 0.0 {
            return Path::rect(x, y, width, height);
        }
        let (right, bottom) = (x + width, y + height);
        let mut path = Path::new();
        path.move_to((x + radius, y));
        path.line_to((right - radius, y));
        path.quad_to((right, y), (right, y + radius));
        path.line_to((right, bottom - radius));
        path.quad_to((right, bottom), (right - radius, bottom));
        path.line_to((x + radius, bottom));
        path.quad_to((x, bottom), (x, bottom - radius));
        path.line_to((x, y + radius));
        path.quad_to((x, y), (x + radius, y));
        path.close();
        path
    }

    /// A line through these points.
    pub fn polyline(points: impl IntoIterator<Item = Point>) -> Path {
        let mut path = Path::new();
        for point in points {
            path.line_to(point);
        }
        path
    }

    /// The outline through these points and back to the first.
    pub fn polygon(points: impl IntoIterator<Item = Point>) -> Path {
        let mut path = Path::polyline(points);
        path.close();
        path
    }

    /// Adds the pieces of another path: a thousand small rectangles in one path are drawn as one
    /// shape.
    pub fn extend(&mut self, other: Path) {
        self.steps.extend(other.steps);
    }

    /// Begins a new piece.
    pub fn move_to(&mut self, point: Point) {
        self.steps.push(Step::Move(point));
    }

    /// Goes straight to a point. A path that has not begun begins there.
    pub fn line_to(&mut self, point: Point) {
        self.steps.push(if self.is_empty() { Step::Move(point) } else { Step::Line(point) });
    }

    /// Bends towards `by` on the way to `point`. A path that has not begun begins at `point`.
    pub fn quad_to(&mut self, by: Point, point: Point) {
        self.steps.push(if self.is_empty() { Step::Move(point) } else { Step::Quad(by, point) });
    }

    /// Goes back to where the piece began. There is nothing to close in a path that has not begun.
    pub fn close(&mut self) {
        if !self.is_empty() {
            self.steps.push(Step::Close);
        }
    }

    /// All steps; the first, if any, is a [`Step::Move`].
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns `true` if there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_always_begins_with_a_move() {
        let mut bent = Path::new();
        bent.close();
        bent.quad_to((1.0, 1.0), (2.0, 0.0));
        assert_eq!(bent.steps(), [Step::Move((2.0, 0.0))]);
        assert_eq!(Path::polyline([(1.0, 2.0)]).steps(), [Step::Move((1.0, 2.0))]);
        assert!(Path::polygon([]).is_empty());
    }

    #[test]
    fn pieces_are_added_one_after_another() {
        let mut both = Path::rect(0.0, 0.0, 1.0, 1.0);
        both.extend(Path::rect(5.0, 0.0, 1.0, 1.0));
        assert_eq!(both.steps().len(), 10);
        assert_eq!(both.steps()[5], Step::Move((5.0, 0.0)));
    }

    #[test]
    fn round_corners_never_overlap() {
        let pill = Path::rounded(0.0, 0.0, 20.0, 4.0, 100.0);
        assert_eq!(pill.steps()[0], Step::Move((2.0, 0.0)));
        assert_eq!(Path::rounded(0.0, 0.0, 20.0, 4.0, 0.0), Path::rect(0.0, 0.0, 20.0, 4.0));
    }
}
