//! PNG, decoded.

use crate::scene;
use sluicegate_plot::{Ink, Path, PngError, Scene, Shade, Text, png};
use tiny_skia::Pixmap;

fn drawn(scene: &Scene, shade: Shade, scale: f64) -> Pixmap {
    Pixmap::decode_png(&png(scene, shade, scale).unwrap()).unwrap()
}

fn has_colour(picture: &Pixmap, (x, y): (u32, u32), ink: Ink, shade: Shade) -> bool {
    let pixel = picture.pixel(x, y).unwrap();
    let colour = ink.colour(shade);
    (pixel.red(), pixel.green(), pixel.blue(), pixel.alpha())
        == (colour.red, colour.green, colour.blue, u8::MAX)
}

/// How many pixels are not paper.
fn marked(picture: &Pixmap) -> usize {
    let paper = picture.pixel(0, 0).unwrap();
    picture.pixels().iter().filter(|pixel| **pixel != paper).count()
}

#[test]
fn the_picture_is_as_large_as_the_scene_times_the_scale() {
    for (scale, width, height) in [(1.0, 100, 60), (2.0, 200, 120), (1.5, 150, 90), (0.333, 33, 20)] {
        let picture = drawn(&scene(), Shade::Light, scale);
        assert_eq!((picture.width(), picture.height()), (width, height));
        assert!(marked(&picture) > 0);
    }
}

#[test]
fn shapes_have_the_colour_of_their_ink() {
    for shade in [Shade::Light, Shade::Dark] {
        let picture = drawn(&scene(), shade, 2.0);
        assert!(has_colour(&picture, (40, 40), Ink::Allowed, shade));
        assert!(has_colour(&picture, (20, 20), Ink::Allowed, shade), "its corner is inside");
        assert!(has_colour(&picture, (19, 20), Ink::Paper, shade), "beside it is paper");
        assert!(has_colour(&picture, (199, 0), Ink::Paper, shade));
        assert!(has_colour(&picture, (4, 80), Ink::Limit, shade), "in a dash");
        assert!(has_colour(&picture, (14, 80), Ink::Paper, shade), "between dashes");
    }
}

#[test]
fn letters_are_drawn_upright_where_they_belong() {
    // An L has its bar at the bottom, from its stem to the right.
    let mut scene = Scene::new(40.0, 40.0, "", "");
    scene.text(Text::new((5.0, 35.0), "L", 40.0));
    let picture = drawn(&scene, Shade::Light, 1.0);
    assert!(has_colour(&picture, (11, 10), Ink::Words, Shade::Light), "the stem");
    assert!(has_colour(&picture, (22, 33), Ink::Words, Shade::Light), "the bar");
    assert!(has_colour(&picture, (22, 10), Ink::Paper, Shade::Light), "right of the stem");
    assert!(has_colour(&picture, (11, 37), Ink::Paper, Shade::Light), "below the line");
}

#[test]
fn words_that_the_font_lacks_leave_a_mark() {
    let mut scene = Scene::new(60.0, 20.0, "", "");
    scene.text(Text::new((5.0, 15.0), "令牌桶", 12.0));
    assert!(marked(&drawn(&scene, Shade::Dark, 1.0)) > 30);
}

#[test]
fn the_same_scene_is_the_same_bytes() {
    assert_eq!(png(&scene(), Shade::Dark, 2.0).unwrap(), png(&scene(), Shade::Dark, 2.0).unwrap());
}

#[test]
fn what_is_not_a_number_is_left_out() {
    let mut scene = Scene::new(10.0, 10.0, "", "");
    scene.fill(Path::rect(f64::NAN, 0.0, 5.0, 5.0), Ink::Over);
    scene.line(Path::polyline([(0.0, 0.0), (f64::INFINITY, 5.0)]), Ink::Over, 1.0);
    assert_eq!(marked(&drawn(&scene, Shade::Light, 1.0)), 0);
}

#[test]
fn too_large_a_picture_is_refused_before_it_takes_memory() {
    let refused = png(&scene(), Shade::Light, 1000.0).unwrap_err();
    assert_eq!(refused, PngError::TooLarge { width: 100_000.0, height: 60_000.0 });
    assert_eq!(
        refused.to_string(),
        "a picture of 100000 × 60000 pixels is above the maximum, 64000000 pixels in all; use a smaller scale, or SVG"
    );
    let endless = png(&scene(), Shade::Light, f64::INFINITY).unwrap_err();
    assert!(matches!(endless, PngError::TooLarge { .. }));
}

#[test]
fn a_picture_without_pixels_is_refused() {
    let refused = png(&scene(), Shade::Light, 0.0).unwrap_err();
    assert_eq!(refused.to_string(), "a picture of 0 × 0 pixels shows nothing; use a larger scale");
    for scale in [-1.0, 0.001, f64::NAN] {
        assert!(matches!(png(&scene(), Shade::Light, scale), Err(PngError::TooSmall { .. })), "{scale}");
    }
}
