//! What a picture shows, before anyone has decided on a format or on colours.

use crate::font;
use crate::ink::Ink;
use crate::path::{Path, Point};

/// The lengths of a dash and of the gap after it, in lines that are dashed.
pub const DASH: [f64; 2] = [5.0, 4.0];

/// Words that do not fit are made this much smaller at most, and then cut.
const SMALLEST: f64 = 0.75;

/// A picture: shapes and words on [`Ink::Paper`], later ones above earlier ones.
#[derive(Clone, Debug)]
pub struct Scene {
    /// How wide.
    pub width: f64,
    /// How high.
    pub height: f64,
    /// What the picture is called, for those who do not see it.
    pub title: String,
    /// What is to be seen, for those who do not see it.
    pub description: String,
    /// What is drawn, in this order.
    pub items: Vec<Item>,
}

/// One thing in a picture.
#[derive(Clone, Debug)]
pub enum Item {
    /// A filled shape.
    Fill {
        /// Its outline.
        path: Path,
        /// What fills it.
        ink: Ink,
    },
    /// A line.
    Line {
        /// Where it goes.
        path: Path,
        /// What it is drawn with.
        ink: Ink,
        /// How thick it is.
        width: f64,
        /// Whether it is broken into dashes.
        dashed: bool,
    },
    /// Words.
    Text(Text),
}

/// Words in one line.
#[derive(Clone, Debug)]
pub struct Text {
    /// A point of the line that the letters stand on: which one is up to the anchor.
    pub at: Point,
    /// What is said.
    pub words: String,
    /// The size of the font.
    pub size: f64,
    /// Which part of the words is at the point.
    pub anchor: Anchor,
    /// What they are written with.
    pub ink: Ink,
    /// Whether they are heavy.
    pub bold: bool,
}

/// Which part of some words is at their point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// They begin there.
    Start,
    /// They are centred there.
    Middle,
    /// They end there.
    End,
}

impl Scene {
    /// An empty sheet of paper.
    pub fn new(width: f64, height: f64, title: impl Into<String>, description: impl Into<String>) -> Scene {
        Scene { width, height, title: title.into(), description: description.into(), items: Vec::new() }
    }

    /// Adds a filled shape.
    pub fn fill(&mut self, path: Path, ink: Ink) -> &mut Scene {
        self.items.push(Item::Fill { path, ink });
        self
    }

    /// Adds a line.
    pub fn line(&mut self, path: Path, ink: Ink, width: f64) -> &mut Scene {
        self.items.push(Item::Line { path, ink, width, dashed: false });
        self
    }

    /// Adds a line in dashes.
    pub fn dashed(&mut self, path: Path, ink: Ink, width: f64) -> &mut Scene {
        self.items.push(Item::Line { path, ink, width, dashed: true });
        self
    }

    /// Adds words.
    pub fn text(&mut self, text: Text) -> &mut Scene {
        self.items.push(Item::Text(text));
        self
    }
}

impl Text {
    /// Words that begin at a point, in [`Ink::Words`] and not bold.
    pub fn new(at: Point, words: impl Into<String>, size: f64) -> Text {
        Text { at, words: words.into(), size, anchor: Anchor::Start, ink: Ink::Words, bold: false }
    }

    /// The same, anchored otherwise.
    #[must_use]
    pub fn anchor(mut self, anchor: Anchor) -> Text {
        self.anchor = anchor;
        self
    }

    /// The same in another ink.
    #[must_use]
    pub fn ink(mut self, ink: Ink) -> Text {
        self.ink = ink;
        self
    }

    /// The same in bold.
    #[must_use]
    pub fn bold(mut self) -> Text {
        self.bold = true;
        self
    }

    /// The same within a width: smaller if need be, and cut if that is not enough.
    #[must_use]
    pub fn within(mut self, width: f64) -> Text {
        let least = self.size * SMALLEST;
        if self.width() > width {
            self.size = (self.size * width / self.width()).max(least);
        }
        if self.width() > width {
            self.words =
                cut_to(&self.words, width - font::width("…", self.size, self.bold), self.size, self.bold);
        }
        self
    }

    /// How wide the words are.
    pub fn width(&self) -> f64 {
        font::width(&self.words, self.size, self.bold)
    }

    /// Where the first letter begins, whatever the anchor.
    pub fn left(&self) -> f64 {
        let share = match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5,
            Anchor::End => 1.0,
        };
        self.at.0 - share * self.width()
    }
}

/// As many letters as fit, and a last one that says that there were more.
fn cut_to(words: &str, width: f64, size: f64, bold: bool) -> String {
    let mut used = 0.0;
    let fits = |letter: &char| {
        used += font::width(letter.encode_utf8(&mut [0; 4]), size, bold);
        used <= width
    };
    words.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_made_to_fit() {
        let text = Text::new((0.0, 0.0), "the quick brown fox jumps over the lazy dog", 20.0);
        let full = text.width();
        let same = text.clone().within(full);
        assert_eq!((same.size, same.words == text.words), (20.0, true));
        let smaller = text.clone().within(full * 0.8);
        assert!(smaller.size < 20.0 && smaller.words == text.words);
        let cut = text.within(full * 0.3);
        assert!(cut.words.ends_with('…') && cut.width() <= full * 0.3, "{}", cut.words);
        assert!(cut.words.starts_with("the quick"));
        assert_eq!(Text::new((0.0, 0.0), "words", 20.0).within(0.0).words, "…");
        let dots = Text::new((0.0, 0.0), "…".repeat(100), 20.0).within(100.0);
        assert!(dots.width() <= 100.0 && dots.words.chars().count() > 3, "{}", dots.words);
    }

    #[test]
    fn an_anchor_moves_the_words_and_not_the_point() {
        let text = Text::new((100.0, 50.0), "twelve a minute", 12.0);
        let width = text.width();
        let left = |anchor| text.clone().anchor(anchor).left();
        assert!((left(Anchor::Start) - 100.0).abs() < 1e-9);
        assert!((left(Anchor::Middle) - (100.0 - width / 2.0)).abs() < 1e-9);
        assert!((left(Anchor::End) - (100.0 - width)).abs() < 1e-9);
    }
}
