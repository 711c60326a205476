//! Colours, by the numbers: contrast as WCAG 2 computes it, and what people see who lack red or
//! green cones.

use sluicegate_plot::{Ink, Rgb, Shade};

const SHADES: [Shade; 2] = [Shade::Light, Shade::Dark];

type Vector = [f64; 3];
type Matrix = [Vector; 3];

/// Everyone else.
const COMPLETE: Matrix = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
/// Machado, Oliveira and Fernandes 2009, severity 1.0, in linear light.
const NO_RED_CONES: Matrix = [
    [0.152_286, 1.052_583, -0.204_868],
    [0.114_503, 0.786_281, 0.099_216],
    [-0.003_882, -0.048_116, 1.051_998],
];
const NO_GREEN_CONES: Matrix = [
    [0.367_322, 0.860_646, -0.227_968],
    [0.280_085, 0.672_501, 0.047_413],
    [-0.011_820, 0.042_940, 0.968_881],
];

const LINEAR_TO_XYZ: Matrix =
    [[0.412_456, 0.357_576, 0.180_438], [0.212_673, 0.715_152, 0.072_175], [0.019_334, 0.119_192, 0.950_304]];
/// Daylight.
const WHITE: Vector = [0.950_470, 1.0, 1.088_830];

fn times(matrix: Matrix, vector: Vector) -> Vector {
    matrix.map(|row| row.iter().zip(vector).map(|(factor, value)| factor * value).sum())
}

fn linear(Rgb { red, green, blue }: Rgb) -> Vector {
    [red, green, blue].map(|byte| {
        let share = f64::from(byte) / 255.0;
        if share <= 0.040_45 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    })
}

fn contrast(one: Rgb, other: Rgb) -> f64 {
    let [_, one, _] = times(LINEAR_TO_XYZ, linear(one));
    let [_, other, _] = times(LINEAR_TO_XYZ, linear(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Lightness and two colour axes, in which distances are about what the eye makes of them (CIE
/// 1976).
fn lab(eyes: Matrix, colour: Rgb) -> Vector {
    let seen = times(eyes, linear(colour)).map(|share| share.clamp(0.0, 1.0));
    let xyz = times(LINEAR_TO_XYZ, seen);
    let [x, y, z] = [0, 1, 2].map(|axis| {
        let share: f64 = xyz[axis] / WHITE[axis];
        if share > 216.0 / 24389.0 { share.cbrt() } else { (share * 24389.0 / 27.0 + 16.0) / 116.0 }
    });
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn distance(eyes: Matrix, one: Rgb, other: Rgb) -> f64 {
    let (one, other) = (lab(eyes, one), lab(eyes, other));
    one.iter().zip(other).map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn the_yardsticks_measure_what_is_known() {
    let (black, white) = (Rgb { red: 0, green: 0, blue: 0 }, Rgb { red: 255, green: 255, blue: 255 });
    assert!((contrast(black, white) - 21.0).abs() < 0.01);
    assert!((distance(COMPLETE, black, white) - 100.0).abs() < 0.01);
    let (red, green) = (Rgb { red: 200, green: 80, blue: 40 }, Rgb { red: 110, green: 125, blue: 30 });
    assert!(distance(COMPLETE, red, green) > 60.0);
    assert!(distance(NO_GREEN_CONES, red, green) < 20.0, "red and green are what is confused");
}

#[test]
fn words_can_be_read() {
    for shade in SHADES {
        for words in [Ink::Words, Ink::Faint] {
            for ground in [Ink::Paper, Ink::Panel, Ink::Trouble] {
                let contrast = contrast(words.colour(shade), ground.colour(shade));
                assert!(contrast >= 4.5, "{words:?} on {ground:?} in {shade:?}: {contrast:.2}");
            }
        }
    }
}

#[test]
fn data_can_be_seen() {
    for shade in SHADES {
        for data in [Ink::Offered, Ink::Allowed, Ink::Over, Ink::Limit, Ink::Denied] {
            for ground in [Ink::Paper, Ink::Panel, Ink::Trouble] {
                let contrast = contrast(data.colour(shade), ground.colour(shade));
                assert!(contrast >= 3.0, "{data:?} on {ground:?} in {shade:?}: {contrast:.2}");
            }
        }
    }
}

#[test]
fn what_is_compared_stays_apart_for_every_eye() {
    // A difference of 2.3 is just noticed side by side; ten times that is another colour at a
    // glance.
    const APART: f64 = 23.0;
    let pairs = [
        (Ink::Allowed, Ink::Over),
        (Ink::Allowed, Ink::Offered),
        (Ink::Over, Ink::Offered),
        (Ink::Allowed, Ink::Denied),
        (Ink::Over, Ink::Denied),
        (Ink::Allowed, Ink::Limit),
        (Ink::Over, Ink::Limit),
        (Ink::AllowedSoft, Ink::Over),
    ];
    for shade in SHADES {
        for (name, eyes) in
            [("all cones", COMPLETE), ("no red cones", NO_RED_CONES), ("no green cones", NO_GREEN_CONES)]
        {
            for (one, other) in pairs {
                let distance = distance(eyes, one.colour(shade), other.colour(shade));
                assert!(distance >= APART, "{one:?} and {other:?} in {shade:?} with {name}: {distance:.1}");
            }
        }
    }
}

#[test]
fn no_two_inks_are_the_same() {
    for shade in SHADES {
        for (place, one) in Ink::ALL.iter().enumerate() {
            for other in &Ink::ALL[place + 1..] {
                assert_ne!(one.colour(shade), other.colour(shade), "{one:?} and {other:?} in {shade:?}");
            }
        }
    }
}
