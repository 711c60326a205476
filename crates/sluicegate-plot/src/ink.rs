//! Inks: colours named for what they mean.
//!
//! Nearly everyone with a colour-vision deficiency can tell blue from orange, and greys from both.
//! The hues are from the palette of Okabe and Ito. Tests compute that words can be read and that
//! what is compared stays apart.

use std::fmt;

/// What something is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ink {
    /// What lies behind everything.
    Paper,
    /// What lies behind the data.
    Panel,
    /// Words.
    Words,
    /// Words that matter less.
    Faint,
    /// Lines that help the eye.
    Grid,
    /// What callers asked for.
    Offered,
    /// What passed.
    Allowed,
    /// The area under what passed.
    AllowedSoft,
    /// What passed above a limit.
    Over,
    /// A limit.
    Limit,
    /// What was turned away.
    Denied,
    /// What lies behind the data of bad times.
    Trouble,
}

/// Whether a picture is dark on light or light on dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shade {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// A colour on a screen. It prints as `#0072b2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb {
    /// How much red.
    pub red: u8,
    /// How much green.
    pub green: u8,
    /// How much blue.
    pub blue: u8,
}

impl Ink {
    /// All of them.
    pub const ALL: [Ink; 12] = [
        Ink::Paper,
        Ink::Panel,
        Ink::Words,
        Ink::Faint,
        Ink::Grid,
        Ink::Offered,
        Ink::Allowed,
        Ink::AllowedSoft,
        Ink::Over,
        Ink::Limit,
        Ink::Denied,
        Ink::Trouble,
    ];

    /// What it looks like.
    pub fn colour(self, shade: Shade) -> Rgb {
        let (light, dark) = match self {
            Ink::Paper => (0xff_ff_ff, 0x0d_11_17),
            Ink::Panel => (0xf6_f8_fa, 0x15_1b_23),
            Ink::Words => (0x1f_23_28, 0xe6_ed_f3),
            Ink::Faint => (0x57_60_6a, 0x9d_a7_b3),
            Ink::Grid => (0xd8_de_e4, 0x2d_33_3b),
            Ink::Offered => (0x84_8d_97, 0x76_7e_88),
            Ink::Allowed => (0x00_72_b2, 0x56_b4_e9),
            Ink::AllowedSoft => (0xc9_e1_f0, 0x1b_3b_52),
            Ink::Over => (0xd5_5e_00, 0xe6_9f_00),
            Ink::Limit => (0x32_38_3f, 0xd1_d9_e0),
            Ink::Denied => (0x6e_77_81, 0x8b_94_9e),
            Ink::Trouble => (0xfd_f1_e6, 0x33_25_14),
        };
        match shade {
            Shade::Light => Rgb::from_hex(light),
            Shade::Dark => Rgb::from_hex(dark),
        }
    }

    /// A name for style sheets: `allowed-soft`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Ink::Paper => "paper",
            Ink::Panel => "panel",
            Ink::Words => "words",
            Ink::Faint => "faint",
            Ink::Grid => "grid",
            Ink::Offered => "offered",
            Ink::Allowed => "allowed",
            Ink::AllowedSoft => "allowed-soft",
            Ink::Over => "over",
            Ink::Limit => "limit",
            Ink::Denied => "denied",
            Ink::Trouble => "trouble",
        }
    }
}

impl Rgb {
    /// The colour that `#rrggbb` is.
    const fn from_hex(hex: u32) -> Rgb {
        let [_, red, green, blue] = hex.to_be_bytes();
        Rgb { red, green, blue }
    }
}

impl fmt::Display for Rgb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }
}
