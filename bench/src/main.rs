//! Ours beside the rivals, interleaved in one run: `cargo run --release` in this folder.
//!
//! Each contender is measured in short rounds, one after another, and the rounds are repeated; what is printed is
//! the median round, so that a noisy moment of the machine hits all alike and counts for none.

mod core_decision;
mod replay;

fn main() {
    core_decision::run();
    println!();
    replay::run();
}

/// The median of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
