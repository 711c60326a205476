//! A scene as SVG.
//!
//! Letters are drawn as outlines, so that a picture does not depend on the reader's fonts. The same
//! words are there a second time as text that is not seen, so that they can be searched, selected
//! and read aloud. Every shape carries its colour itself; a style sheet for the dark comes on top,
//! and a viewer that does not know such rules shows the light picture.

mod data;
mod escape;

use crate::font;
use crate::ink::{Ink, Shade};
use crate::path::Path;
use crate::scene::{Anchor, DASH, Item, Scene, Text};
use data::{Hundredths, data, ratio};
use escape::Escaped;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Which colours an SVG has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Those that the viewer prefers; light ones if it does not say.
    Auto,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// Draws a scene as SVG. The same scene is the same text, byte for byte.
pub fn svg(scene: &Scene, theme: Theme) -> String {
    // The style sheet and the glyphs come first in the file, but only the items tell which are
    // needed.
    let mut drawing = Drawing::new(theme);
    drawing.fill(&Path::rect(0.0, 0.0, scene.width, scene.height), Ink::Paper);
    for item in &scene.items {
        match item {
            Item::Fill { path, ink } => drawing.fill(path, *ink),
            Item::Line { path, ink, width, dashed } => drawing.line(path, *ink, *width, *dashed),
            Item::Text(text) => drawing.text(text),
        }
    }

    let (width, height) = (Hundredths::from(scene.width), Hundredths::from(scene.height));
    // Without kerning the words that are not seen lie where their outlines are.
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"DejaVu Sans,Verdana,sans-serif\" \
         style=\"font-kerning:none\" stroke-linejoin=\"round\">\n<title>{}</title>\n<desc>{}</desc>\n{}{}{}</svg>\n",
        Escaped(&scene.title),
        Escaped(&scene.description),
        drawing.style_sheet(),
        drawing.glyphs(),
        drawing.body,
    )
}

/// What an ink is used for: an attribute of SVG.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Fill,
    Stroke,
}

impl Use {
    fn attribute(self) -> &'static str {
        match self {
            Use::Fill => "fill",
            Use::Stroke => "stroke",
        }
    }
}

/// The items that have been drawn, and what they need. The sets are ordered, so that the output is.
struct Drawing {
    theme: Theme,
    body: String,
    inks: BTreeSet<(Use, Ink)>,
    /// Whether bold, and the glyph's number.
    glyphs: BTreeSet<(bool, u16)>,
}

impl Drawing {
    fn new(theme: Theme) -> Drawing {
        Drawing { theme, body: String::new(), inks: BTreeSet::new(), glyphs: BTreeSet::new() }
    }

    fn fill(&mut self, path: &Path, ink: Ink) {
        let ink = self.ink(Use::Fill, ink);
        self.write(format_args!("<path{ink} d=\"{}\"/>\n", data(path)));
    }

    fn line(&mut self, path: &Path, ink: Ink, width: f64, dashed: bool) {
        let ink = self.ink(Use::Stroke, ink);
        let [dash, gap] = DASH.map(Hundredths::from);
        let pattern = if dashed { format!(" stroke-dasharray=\"{dash} {gap}\"") } else { String::new() };
        let width = Hundredths::from(width);
        self.write(format_args!(
            "<path fill=\"none\"{ink} stroke-width=\"{width}\"{pattern} d=\"{}\"/>\n",
            data(path)
        ));
    }

    fn text(&mut self, text: &Text) {
        if text.words.is_empty() {
            return;
        }
        if font::covers(&text.words, text.bold) {
            self.outlines(text);
            self.hidden_words(text);
        } else {
            self.visible_words(text);
        }
    }

    /// The letters as shapes.
    fn outlines(&mut self, text: &Text) {
        let ink = self.ink(Use::Fill, text.ink);
        let (x, y) = (Hundredths::from(text.left()), Hundredths::from(text.at.1));
        let scale = ratio(text.size / font::units_per_em(text.bold));
        self.write(format_args!(
            "<g aria-hidden=\"true\"{ink} transform=\"translate({x} {y})scale({scale})\">"
        ));
        for placed in font::placed(&text.words, text.bold) {
            if font::outline(placed.glyph, text.bold).is_empty() {
                continue;
            }
            self.glyphs.insert((text.bold, placed.glyph));
            let (id, x) = (glyph_id(text.bold, placed.glyph), Hundredths::from(placed.x));
            self.write(format_args!("<use href=\"#{id}\" x=\"{x}\"/>"));
        }
        self.write(format_args!("</g>\n"));
    }

    /// The words where their outlines are, stretched to their width by whatever font the viewer
    /// has.
    fn hidden_words(&mut self, text: &Text) {
        let (x, width) = (Hundredths::from(text.left()), Hundredths::from(text.width()));
        self.words(text, x, format_args!(" textLength=\"{width}\" fill-opacity=\"0\""));
    }

    /// Words that our font does not have, in one of the viewer's. How wide they become, only the
    /// viewer knows.
    fn visible_words(&mut self, text: &Text) {
        let ink = self.ink(Use::Fill, text.ink);
        let anchor = match text.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.words(text, Hundredths::from(text.at.0), format_args!("{anchor}{ink}"));
    }

    fn words(&mut self, text: &Text, x: Hundredths, attributes: std::fmt::Arguments<'_>) {
        let (y, size) = (Hundredths::from(text.at.1), Hundredths::from(text.size));
        let weight = if text.bold { " font-weight=\"bold\"" } else { "" };
        let words = Escaped(&text.words);
        self.write(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{weight}{attributes}>{words}</text>\n"
        ));
    }

    /// The attributes that give something its colour.
    fn ink(&mut self, used: Use, ink: Ink) -> String {
        self.inks.insert((used, ink));
        let attribute = used.attribute();
        match self.theme {
            Theme::Auto => {
                format!(" class=\"{}\" {attribute}=\"{}\"", class(used, ink), ink.colour(Shade::Light))
            }
            Theme::Light => format!(" {attribute}=\"{}\"", ink.colour(Shade::Light)),
            Theme::Dark => format!(" {attribute}=\"{}\"", ink.colour(Shade::Dark)),
        }
    }

    /// The rules for viewers that prefer the dark, if they may choose.
    fn style_sheet(&self) -> String {
        if self.theme != Theme::Auto {
            return String::new();
        }
        let mut rules = String::new();
        for &(used, ink) in &self.inks {
            let colour = ink.colour(Shade::Dark);
            let _ = write!(rules, ".{}{{{}:{colour}}}", class(used, ink), used.attribute());
        }
        format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n")
    }

    /// The outlines of all letters, each once, in font units.
    fn glyphs(&self) -> String {
        if self.glyphs.is_empty() {
            return String::new();
        }
        let mut paths = String::new();
        for &(bold, glyph) in &self.glyphs {
            let outline = data(&font::outline(glyph, bold));
            let _ = writeln!(paths, "<path id=\"{}\" d=\"{outline}\"/>", glyph_id(bold, glyph));
        }
        format!("<defs>\n{paths}</defs>\n")
    }

    fn write(&mut self, piece: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.body.write_fmt(piece);
    }
}

/// The same in every picture, so that several can be put into one page.
fn class(used: Use, ink: Ink) -> String {
    format!("sluice-{}-{}", used.attribute(), ink.name())
}

/// The same in every picture, as the glyph is: several can be put into one page.
fn glyph_id(bold: bool, glyph: u16) -> String {
    format!("{}{glyph}", if bold { "b" } else { "r" })
}
