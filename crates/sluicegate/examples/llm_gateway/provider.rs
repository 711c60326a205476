//! A provider that streams tokens, and now and then fails, and gateways that die meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a call ended.
pub(crate) enum Outcome {
    /// The response is complete, with this many tokens.
    Finished(u64),
    /// The client went away after this many.
    Cut(u64),
    /// The provider failed, and bills nothing.
    Failed,
    /// The gateway died before the end.
    Died,
}

/// Streams at most `max_tokens`.
pub(crate) fn stream(prompt: u64, max_tokens: u64) -> Outcome {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let tokens = (prompt * 7 + call * 31) % (max_tokens + 1);
    match call % 8 {
        5 => Outcome::Cut(tokens / 2),
        6 => Outcome::Failed,
        7 => Outcome::Died,
        _ => Outcome::Finished(tokens),
    }
}
