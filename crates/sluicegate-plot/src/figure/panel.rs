//! A rectangle that amounts are drawn in, from nothing at the bottom to the most at the top.

use crate::ink::Ink;
use crate::path::Path;
use crate::scene::{Anchor, Scene, Text};
use sluicegate_sim::human::short;

/// The top of a panel is this many times the largest value in it.
const AIR: f64 = 1.28;

/// Where a panel is.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// How high an amount is in a panel.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    panel: Panel,
    most: f64,
}

impl Panel {
    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    pub(super) fn draw_ground(&self, scene: &mut Scene) {
        scene.fill(Path::rect(self.x, self.y, self.width, self.height), Ink::Panel);
    }

    /// Amounts up to `most`, with room above it for a number.
    #[expect(clippy::cast_precision_loss, reason = "a picture has far fewer points than a float has figures")]
    pub(super) fn scale(&self, most: u64) -> Scale {
        Scale { panel: *self, most: most.max(1) as f64 * AIR }
    }
}

impl Scale {
    #[expect(clippy::cast_precision_loss, reason = "a picture has far fewer points than a float has figures")]
    pub(super) fn y(&self, amount: u64) -> f64 {
        self.panel.bottom() - self.panel.height * amount as f64 / self.most
    }

    /// A thin line at an amount, and the amount in figures to its left.
    pub(super) fn draw_tick(&self, scene: &mut Scene, amount: u64) {
        let (x, y) = (self.panel.x, self.y(amount));
        scene.line(Path::polyline([(x, y), (x + self.panel.width, y)]), Ink::Grid, 1.0);
        self.draw_number(scene, amount);
    }

    pub(super) fn draw_number(&self, scene: &mut Scene, amount: u64) {
        let at = (self.panel.x - 7.0, self.y(amount) + 4.0);
        scene.text(Text::new(at, short(amount), 11.5).anchor(Anchor::End).ink(Ink::Faint));
    }
}

/// The largest round number, 1, 2 or 5 and zeros, that is not more; 1 at least.
pub(super) fn round_below(amount: u64) -> u64 {
    let mut round = 1;
    for next in (0..18).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power))) {
        if next > amount {
            break;
        }
        round = next;
    }
    round
}
