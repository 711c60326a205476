//! The state of one key under one limit in 16 bytes.
//!
//! Every algorithm but the log fits: one moment and two small numbers, whose meaning is the algorithm's own
//! (its file's "State" line). A cell of zeros is a key that has never called, so a store may drop a key that
//! has recovered and hand out zeros when it comes back.

/// A key's state: a moment in microseconds and two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Cell {
    /// The moment that matters: when a bucket is full again, when a window ends, when a call was last allowed.
    pub at: u64,
    /// A bucket's part of a microsecond, what was used in a window, the last window's count.
    pub a: u32,
    /// Whether a bucket has been charged, this window's count.
    pub b: u32,
}

impl Cell {
    /// The state of a key that has never called.
    pub const UNSEEN: Cell = Cell { at: 0, a: 0, b: 0 };
}

/// A store relies on this: see the table in the crate's documentation.
const _: () = assert!(size_of::<Cell>() == 16);
