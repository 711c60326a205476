//! A bar for long work, on standard error and only if that is a terminal; it is gone when the work
//! is done.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// Fewer bytes are read before a progress bar could be noticed.
const BYTES_WORTH_A_BAR: u64 = 50_000_000;
/// Fewer decisions are made before a progress bar could be noticed.
const CALLS_WORTH_A_BAR: u64 = 5_000_000;

/// Progress through a file of this length, or through a pipe of unknown length.
pub(super) fn of_bytes(bytes: Option<u64>) -> ProgressBar {
    match bytes {
        None => bar(None, "reading  {bytes}, {bytes_per_sec}"),
        Some(bytes) if bytes >= BYTES_WORTH_A_BAR => {
            bar(Some(bytes), "reading  {wide_bar} {bytes} of {total_bytes}, {eta} left")
        }
        Some(_) => ProgressBar::hidden(),
    }
}

/// Of calls that are made up, as many as there may be: it hears how many more there are, and is
/// drawn when it takes long.
pub(super) fn of_making() -> impl FnMut(u64) {
    let (mut made, mut shown) = (0, ProgressBar::hidden());
    move |more| {
        let was_short = made < CALLS_WORTH_A_BAR;
        made += more;
        if was_short && made >= CALLS_WORTH_A_BAR {
            shown = bar(None, "making up {human_pos} calls");
        }
        shown.set_position(made);
    }
}

pub(super) fn of_calls(calls: u64) -> ProgressBar {
    if calls < CALLS_WORTH_A_BAR {
        return ProgressBar::hidden();
    }
    bar(Some(calls), "deciding {wide_bar} {human_pos} of {human_len}, {eta} left")
}

/// Draws nothing unless standard error is a terminal, and is gone when it is dropped.
fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar =
        length.map_or_else(ProgressBar::no_length, ProgressBar::new).with_finish(ProgressFinish::AndClear);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("█▉▊▋▌▍▎▏ ")),
        Err(_) => bar,
    }
}
