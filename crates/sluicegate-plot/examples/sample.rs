//! Draws a sample in every format and shade: `cargo run -p sluicegate-plot --example sample -- FOLDER`.

use sluicegate_plot::{Anchor, Ink, Path, Point, Scene, Shade, Text, Theme, png, svg};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("name the folder to draw into")?);
    std::fs::create_dir_all(&folder)?;
    let scene = sample();
    for (name, theme) in [("auto", Theme::Auto), ("light", Theme::Light), ("dark", Theme::Dark)] {
        std::fs::write(folder.join(format!("{name}.svg")), svg(&scene, theme))?;
    }
    for (name, shade) in [("light", Shade::Light), ("dark", Shade::Dark)] {
        std::fs::write(folder.join(format!("{name}.png")), png(&scene, shade, 2.0)?)?;
    }
    Ok(())
}

/// A panel with what was offered, what passed, and a limit that it went over; below it, single calls.
fn sample() -> Scene {
    const LEFT: f64 = 60.0;
    const RIGHT: f64 = 600.0;
    const BOTTOM: f64 = 230.0;
    let at = |minute: f64, calls: f64| -> Point { (LEFT + minute * 54.0, BOTTOM - calls * 7.0) };
    let offered = [4.0, 9.0, 15.0, 20.0, 22.0, 21.0, 16.0, 11.0, 8.0, 5.0, 4.0];
    let passed = [4.0, 9.0, 12.0, 14.5, 16.0, 13.0, 12.0, 11.0, 8.0, 5.0, 4.0];
    let line = |calls: [f64; 11]| {
        calls.into_iter().zip(0_u32..).map(move |(calls, minute)| at(minute.into(), calls))
    };

    let mut scene =
        Scene::new(640.0, 320.0, "Twelve a minute", "Calls a minute for ten minutes, with a limit of 12.");
    scene.fill(Path::rounded(LEFT, 62.0, RIGHT - LEFT, BOTTOM - 62.0, 4.0), Ink::Panel);
    for calls in [0.0, 6.0, 12.0, 18.0, 24.0] {
        let (x, y) = at(0.0, calls);
        scene.line(Path::polyline([(x, y), (RIGHT, y)]), Ink::Grid, 1.0);
        scene
            .text(Text::new((x - 8.0, y + 4.0), calls.to_string(), 11.0).anchor(Anchor::End).ink(Ink::Faint));
    }
    scene.fill(Path::polygon(line(passed).chain([at(10.0, 0.0), at(0.0, 0.0)])), Ink::AllowedSoft);
    scene.fill(
        Path::polygon([at(2.0, 12.0), at(3.0, 14.5), at(4.0, 16.0), at(5.0, 13.0), at(6.0, 12.0)]),
        Ink::OverSoft,
    );
    scene.line(Path::polyline(line(offered)), Ink::Offered, 1.5);
    scene.line(Path::polyline(line(passed)), Ink::Allowed, 2.0);
    scene.line(
        Path::polyline([at(2.0, 12.0), at(3.0, 14.5), at(4.0, 16.0), at(5.0, 13.0), at(6.0, 12.0)]),
        Ink::Over,
        2.5,
    );
    scene.dashed(Path::polyline([at(0.0, 12.0), at(10.0, 12.0)]), Ink::Limit, 1.5);

    let (mut allowed, mut denied) = (Path::new(), Path::new());
    for call in 0..135_u32 {
        let mark = Path::rect(LEFT + f64::from(call) * 4.0, 262.0, 2.5, 14.0);
        if call * 7 % 12 < 5 { allowed.extend(mark) } else { denied.extend(mark) }
    }
    scene.fill(allowed, Ink::Allowed).fill(denied, Ink::Denied);

    scene.text(
        Text::new((20.0, 30.0), "sliding-window 12/60s — AVAToffWiggle @ & <%> \"quoted\"", 17.0).bold(),
    );
    scene.text(
        Text::new((20.0, 50.0), "142\u{a0}ms 858\u{a0}µs → ≤ 10 000 × ● · Größe Ελληνικά Русский", 12.0)
            .ink(Ink::Faint),
    );
    for minute in [0_u32, 2, 4, 6, 8, 10] {
        let (x, _) = at(minute.into(), 0.0);
        let words = format!("{minute} min");
        scene.text(Text::new((x, 248.0), words, 11.0).anchor(Anchor::Middle).ink(Ink::Faint));
    }
    for (x, words, ink) in [
        (60.0, "offered", Ink::Offered),
        (180.0, "allowed", Ink::Allowed),
        (300.0, "over the limit", Ink::Over),
    ] {
        scene.fill(Path::rounded(x, 292.0, 12.0, 12.0, 3.0), ink);
        scene.text(Text::new((x + 18.0, 302.0), words, 12.0));
    }
    scene.text(Text::new((RIGHT, 302.0), "令牌桶", 12.0).anchor(Anchor::End));
    scene
}
