//! The font, `DejaVu` Sans in regular and bold: how wide words are and what their letters look
//! like.
//!
//! Letters stand side by side: no kerning, no ligatures, and no scripts whose letters change with
//! their neighbours or run from right to left.

use crate::path::Path;
use std::sync::LazyLock;
use ttf_parser::{Face, GlyphId, OutlineBuilder};

// That both can be read is tested. Otherwise nothing would be covered, and words would be left to
// the viewer.
static REGULAR: LazyLock<Option<Face<'static>>> =
    LazyLock::new(|| Face::parse(dejavu::sans::regular(), 0).ok());
static BOLD: LazyLock<Option<Face<'static>>> = LazyLock::new(|| Face::parse(dejavu::sans::bold(), 0).ok());

/// What is drawn for a character without a glyph: by the rules of TrueType the first glyph, here an
/// empty box.
const MISSING: GlyphId = GlyphId(0);

/// What the font's lengths are measured in, if the font cannot say it.
const UNITS_PER_EM: u16 = 2048;

/// How wide words are. A character without a glyph counts as a square, which is what Chinese
/// characters are.
pub fn width(words: &str, size: f64, bold: bool) -> f64 {
    let units: f64 = words.chars().map(|letter| advance(letter, bold)).sum();
    units / units_per_em(bold) * size
}

/// Returns `true` if this font can draw the words, each letter by a glyph of its own.
pub fn covers(words: &str, bold: bool) -> bool {
    // The font has glyphs for control characters, but there is nothing to see in them.
    let drawn =
        |letter: char| !letter.is_control() && !needs_neighbours(letter) && glyph(letter, bold).is_some();
    words.chars().all(drawn)
}

/// A glyph and where it begins, in font units from the beginning of the words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placed {
    /// The glyph's number in the font.
    pub(crate) glyph: u16,
    /// How far right.
    pub(crate) x: f64,
}

/// The glyphs of some words, one for each character.
pub(crate) fn placed(words: &str, bold: bool) -> impl Iterator<Item = Placed> {
    words.chars().scan(0.0, move |end, letter| {
        let x = *end;
        *end += advance(letter, bold);
        Some(Placed { glyph: glyph(letter, bold).unwrap_or(MISSING).0, x })
    })
}

/// What a glyph looks like, in font units down and right from where it begins on the line; empty
/// for a space.
pub(crate) fn outline(glyph: u16, bold: bool) -> Path {
    let mut outline = Outline(Path::new());
    if let Some(face) = face(bold) {
        // `None` says that there is nothing to draw, as the empty path does.
        let _ = face.outline_glyph(GlyphId(glyph), &mut outline);
    }
    outline.0
}

/// How many font units the size of a font is.
pub(crate) fn units_per_em(bold: bool) -> f64 {
    f64::from(face(bold).map_or(UNITS_PER_EM, Face::units_per_em))
}

fn face(bold: bool) -> Option<&'static Face<'static>> {
    if bold { BOLD.as_ref() } else { REGULAR.as_ref() }
}

fn glyph(letter: char, bold: bool) -> Option<GlyphId> {
    face(bold)?.glyph_index(letter)
}

/// How far the next letter is, in font units.
fn advance(letter: char, bold: bool) -> f64 {
    let known = glyph(letter, bold).and_then(|glyph| face(bold)?.glyph_hor_advance(glyph));
    known.map_or(units_per_em(bold), f64::from)
}

/// Returns `true` if a letter cannot simply be placed after the previous one, even if the font has
/// a glyph for it.
fn needs_neighbours(letter: char) -> bool {
    matches!(letter,
        // Marks that sit on the letter before them.
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}'
        // Hebrew, Arabic, the scripts of India and South East Asia, and Mongolian.
        | '\u{590}'..='\u{109f}' | '\u{1780}'..='\u{18af}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}'
        // Joiners and marks of direction.
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// Collects an outline. Fonts measure upwards and pictures downwards, so it is turned over.
struct Outline(Path);

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to((x.into(), (-y).into()));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to((x.into(), (-y).into()));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to((x1.into(), (-y1).into()), (x.into(), (-y).into()));
    }

    // TrueType outlines, which DejaVu has, bend only by one point.
    fn curve_to(&mut self, _: f32, _: f32, _: f32, _: f32, x: f32, y: f32) {
        self.line_to(x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Step;

    #[test]
    fn both_weights_can_be_read() {
        for bold in [false, true] {
            assert!(face(bold).is_some());
            assert!((units_per_em(bold) - 2048.0).abs() < 1e-9);
        }
    }

    #[test]
    fn words_are_as_wide_as_their_letters() {
        let (a, b) = (width("a", 12.0, false), width("b", 12.0, false));
        assert!((width("ab", 12.0, false) - (a + b)).abs() < 1e-9);
        assert!((width("ab", 24.0, false) - 2.0 * (a + b)).abs() < 1e-9);
        assert!(width("ab", 12.0, true) > a + b, "bold is wider");
        // The advance of a digit in DejaVu Sans is 1303 of 2048 units.
        assert!((width("0", 2048.0, false) - 1303.0).abs() < 1e-9);
        assert!(width("", 12.0, false).abs() < 1e-9);
    }

    #[test]
    fn what_the_command_prints_is_covered() {
        for bold in [false, true] {
            assert!(covers("sliding-window 10/60s, 142\u{a0}ms 858\u{a0}µs × ÷ ≤ ≥ → … – — ● ·", bold));
            assert!(covers("Größe, año, Žižkov, Ελληνικά, Русский", bold));
        }
    }

    #[test]
    fn what_would_come_out_wrong_is_not_covered() {
        for words in ["令牌桶", "שלום", "سلام", "e\u{301}", "ab\u{200d}", "a\nb", "\u{0}"] {
            assert!(!covers(words, false), "{words:?}");
        }
    }

    #[test]
    fn an_unknown_character_is_a_box_in_a_square() {
        assert!((width("令牌桶", 10.0, false) - 30.0).abs() < 1e-9);
        let glyphs: Vec<Placed> = placed("令a", false).collect();
        assert_eq!(glyphs[0], Placed { glyph: 0, x: 0.0 });
        assert!((glyphs[1].x - 2048.0).abs() < 1e-9);
        assert!(!outline(0, false).is_empty());
    }

    #[test]
    fn letters_stand_on_the_line() {
        let drawn = placed("H", false).map(|placed| outline(placed.glyph, false)).next().unwrap_or_default();
        let heights = drawn.steps().iter().filter_map(|step| match *step {
            Step::Move((_, y)) | Step::Line((_, y)) => Some(y),
            _ => None,
        });
        let (top, bottom) =
            heights.fold((0.0_f64, -2048.0_f64), |(top, bottom), y| (top.min(y), bottom.max(y)));
        // A capital is 1493 units high, and up is negative.
        assert!((top + 1493.0).abs() < 1e-9 && bottom.abs() < 1e-9, "from {top} to {bottom}");
    }

    #[test]
    fn a_space_has_a_width_and_no_outline() {
        let space = placed(" ", false).next().map(|placed| outline(placed.glyph, false));
        assert_eq!(space, Some(Path::new()));
        assert!(width(" ", 12.0, false) > 3.0);
    }
}
