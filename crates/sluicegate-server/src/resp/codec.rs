//! Bytes to commands, and replies to bytes. Nothing here knows what a command means.
//!
//! `command.rs` parses commands, `inline.rs` the lines that people type, `reply.rs` writes replies.

mod command;
mod inline;
mod reply;

pub use command::{Command, CommandBounds, CommandQueue, Commands, Parser, ProtocolError};
pub use reply::{Replies, Version};

use std::fmt;

/// Displays bytes from a client in an error: escaped, and truncated if long.
pub(super) struct Shown<'a>(pub(super) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 64;
        match self.0.split_at_checked(SHOWN_MAX) {
            Some((begin, [_, ..])) => write!(f, "{}...", begin.escape_ascii()),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_truncated_bytes_end_in_dots() {
        for (len, dots) in [(0, ""), (63, ""), (64, ""), (65, "..."), (1_000, "...")] {
            let shown = Shown(&vec![b'x'; len]).to_string();
            assert_eq!(shown, "x".repeat(len.min(64)) + dots, "{len}");
        }
    }
}
