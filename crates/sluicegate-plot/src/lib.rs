//! Pictures of simulations: one scene, drawn as SVG and PNG; and the same in the terminal.
//!
//! A [`Figure`] lays a simulation out as a scene; [`terminal`] draws it in letters.
//!
//! A [`Scene`] is a list of filled shapes, lines and words, each in an [`Ink`] that is named for
//! what it means. [`svg()`] and [`png()`] draw it. Both bring their own font, so that a picture
//! looks the same everywhere.

mod figure;
pub mod font;
mod ink;
mod path;
mod png;
mod scene;
mod svg;
pub mod terminal;

pub use figure::{Figure, OverloadFigure, OverloadView, View};
pub use ink::{Ink, Rgb, Shade};
pub use path::{Path, Point, Step};
pub use png::{PIXELS_MAX, PngError, png};
pub use scene::{Anchor, DASH, Item, Scene, Text};
pub use svg::{Theme, svg};
