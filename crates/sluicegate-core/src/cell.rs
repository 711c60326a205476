//! The state of one key under one limit, in 16 bytes.
//!
//! Every algorithm but the log fits into one moment and two integers; the "State" line of its file
//! says what they mean. A cell of zeros is an unseen key, so a store may drop a fully recovered key
//! and return zeros when it calls again.

/// The state of a key: a moment in microseconds and two integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Cell {
    /// When a bucket is full again, when a window ends, or when a call was last allowed.
    pub at: u64,
    /// A bucket's fraction of a microsecond, what was used in a window, or the previous window's
    /// count.
    pub a: u32,
    /// Whether a bucket has been charged, or the current window's count.
    pub b: u32,
}

impl Cell {
    /// The state of an unseen key.
    pub const UNSEEN: Cell = Cell { at: 0, a: 0, b: 0 };
}

/// Stores rely on this size.
const _: () = assert!(size_of::<Cell>() == 16);
