//! A bar for long work, on standard error and only if that is a terminal; it is gone when the work is done.

use indicatif::{ProgressBar, ProgressStyle};

/// Less is done before anyone could read a bar.
const BYTES_WORTH_A_BAR: u64 = 50_000_000;
/// The same in decisions.
const CALLS_WORTH_A_BAR: u64 = 5_000_000;

pub(super) fn of_bytes(bytes: u64) -> ProgressBar {
    bar(bytes, bytes >= BYTES_WORTH_A_BAR, "reading  {wide_bar} {bytes} of {total_bytes}, {eta} left")
}

pub(super) fn of_calls(calls: u64) -> ProgressBar {
    bar(calls, calls >= CALLS_WORTH_A_BAR, "deciding {wide_bar} {human_pos} of {human_len}, {eta} left")
}

fn bar(length: u64, is_worth_it: bool, template: &str) -> ProgressBar {
    if !is_worth_it {
        return ProgressBar::hidden();
    }
    // Draws nothing unless standard error is a terminal.
    let bar = ProgressBar::new(length);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("█▉▊▋▌▍▎▏ ")),
        Err(_) => bar,
    }
}
