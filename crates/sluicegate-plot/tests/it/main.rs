//! Pictures in both formats, read back.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod figure;
mod inks;
mod png;
mod svg;

use sluicegate_plot::{Ink, Path, Scene, Text};

/// A square, a dashed line and words.
fn scene() -> Scene {
    let mut scene = Scene::new(100.0, 60.0, "A title", "What is to be seen");
    scene.fill(Path::rect(10.0, 10.0, 20.0, 20.0), Ink::Allowed);
    scene.dashed(Path::polyline([(0.0, 40.0), (100.0, 40.0)]), Ink::Limit, 2.0);
    scene.text(Text::new((10.0, 55.0), "twelve a minute", 10.0));
    scene
}
