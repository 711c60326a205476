//! A scene as PNG.

use crate::font;
use crate::ink::{Ink, Rgb, Shade};
use crate::path::{Path, Step};
use crate::scene::{DASH, Item, Scene, Text};
use std::fmt;
use tiny_skia::{Color, FillRule, LineJoin, Paint, PathBuilder, Pixmap, Stroke, StrokeDash, Transform};

/// The most pixels of a picture. While it is drawn, each takes four bytes.
pub const PIXELS_MAX: u32 = 64_000_000;

/// Why a scene cannot be drawn: one line with the value and what to do instead.
#[derive(Clone, Debug, PartialEq)]
pub enum PngError {
    /// The picture would have too many pixels.
    TooLarge {
        /// In pixels.
        width: f64,
        /// In pixels.
        height: f64,
    },
    /// The picture would have no pixels.
    TooSmall {
        /// In pixels.
        width: f64,
        /// In pixels.
        height: f64,
    },
    /// It was drawn, but could not be written as PNG.
    NotWritten(String),
}

impl fmt::Display for PngError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PngError::TooLarge { width, height } => write!(
                f,
                "a picture of {width} × {height} pixels is above the maximum, {PIXELS_MAX} pixels in all; use a \
                 smaller scale, or SVG"
            ),
            PngError::TooSmall { width, height } => {
                write!(f, "a picture of {width} × {height} pixels shows nothing; use a larger scale")
            }
            PngError::NotWritten(problem) => {
                write!(f, "the picture cannot be written as PNG: {problem}; use a smaller scale, or SVG")
            }
        }
    }
}

impl std::error::Error for PngError {}

/// Draws a scene as PNG, `scale` pixels for each unit of the scene.
///
/// A character that the font does not have is drawn as an empty box.
///
/// # Errors
/// When the picture would have no pixels, or more than [`PIXELS_MAX`].
pub fn png(scene: &Scene, shade: Shade, scale: f64) -> Result<Vec<u8>, PngError> {
    let mut sheet = Sheet::new(scene, shade, scale)?;
    for item in &scene.items {
        match item {
            Item::Fill { path, ink } => sheet.fill(path, *ink),
            Item::Line { path, ink, width, dashed } => sheet.line(path, *ink, *width, *dashed),
            Item::Text(text) => sheet.text(text),
        }
    }
    sheet.pixels.encode_png().map_err(|problem| PngError::NotWritten(problem.to_string()))
}

/// A sheet of paper and how to draw on it.
struct Sheet {
    pixels: Pixmap,
    shade: Shade,
    to_pixels: Transform,
}

impl Sheet {
    fn new(scene: &Scene, shade: Shade, scale: f64) -> Result<Sheet, PngError> {
        let (width, height) = ((scene.width * scale).round(), (scene.height * scale).round());
        // Written so that what is not a number is rejected, too.
        if !(width >= 1.0 && height >= 1.0) {
            return Err(PngError::TooSmall { width, height });
        }
        if width * height > f64::from(PIXELS_MAX) {
            return Err(PngError::TooLarge { width, height });
        }
        let mut pixels =
            Pixmap::new(whole(width), whole(height)).ok_or(PngError::TooLarge { width, height })?;
        pixels.fill(colour(Ink::Paper.colour(shade)));
        Ok(Sheet { pixels, shade, to_pixels: Transform::from_scale(single(scale), single(scale)) })
    }

    fn fill(&mut self, path: &Path, ink: Ink) {
        self.fill_moved(path, ink, self.to_pixels);
    }

    fn fill_moved(&mut self, path: &Path, ink: Ink, transform: Transform) {
        if let Some(path) = outline(path) {
            self.pixels.fill_path(&path, &self.paint(ink), FillRule::Winding, transform, None);
        }
    }

    fn line(&mut self, path: &Path, ink: Ink, width: f64, dashed: bool) {
        let Some(path) = outline(path) else { return };
        let dash = if dashed { StrokeDash::new(DASH.map(single).to_vec(), 0.0) } else { None };
        let stroke = Stroke { width: single(width), line_join: LineJoin::Round, dash, ..Stroke::default() };
        self.pixels.stroke_path(&path, &self.paint(ink), &stroke, self.to_pixels, None);
    }

    fn text(&mut self, text: &Text) {
        let scale = text.size / font::units_per_em(text.bold);
        let (left, y) = (text.left(), text.at.1);
        for placed in font::placed(&text.words, text.bold) {
            let place = Transform::from_translate(single(left + placed.x * scale), single(y));
            let transform = self.to_pixels.pre_concat(place).pre_scale(single(scale), single(scale));
            self.fill_moved(&font::outline(placed.glyph, text.bold), text.ink, transform);
        }
    }

    fn paint(&self, ink: Ink) -> Paint<'static> {
        let mut paint = Paint { anti_alias: true, ..Paint::default() };
        paint.set_color(colour(ink.colour(self.shade)));
        paint
    }
}

fn colour(Rgb { red, green, blue }: Rgb) -> Color {
    Color::from_rgba8(red, green, blue, u8::MAX)
}

/// The path as the rasteriser has it; `None` if there is nothing to draw, or something is not a
/// number.
fn outline(path: &Path) -> Option<tiny_skia::Path> {
    let mut builder = PathBuilder::new();
    for step in path.steps() {
        match *step {
            Step::Move((x, y)) => builder.move_to(single(x), single(y)),
            Step::Line((x, y)) => builder.line_to(single(x), single(y)),
            Step::Quad((by_x, by_y), (x, y)) => {
                builder.quad_to(single(by_x), single(by_y), single(x), single(y));
            }
            Step::Close => builder.close(),
        }
    }
    builder.finish()
}

/// The rasteriser counts in single precision: within a hundredth of a pixel up to 100 000 pixels
/// from the corner.
#[allow(clippy::cast_possible_truncation, reason = "see above")]
fn single(number: f64) -> f32 {
    number as f32
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is rounded, from 1 to `PIXELS_MAX`"
)]
fn whole(pixels: f64) -> u32 {
    pixels as u32
}
