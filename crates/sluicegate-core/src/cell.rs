//! The state of one key under one limit, in 16 bytes.
//!
//! Every algorithm but the log fits into one moment and two integers; the "State" line of its file
//! says what they mean. (A sliding window with a count above 2^32 - 1 needs a [`WideCell`].) A cell
//! of zeros is an unseen key, so a store may drop a fully recovered key and return zeros when it
//! calls again.

/// The state of a key: a moment in microseconds and two integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Cell {
    /// When a bucket is full again, when a window ends, or when a call was last allowed.
    pub at: u64,
    /// A bucket's fraction of a microsecond, the low half of what was used in a window, or the
    /// previous window's count.
    pub a: u32,
    /// Whether a bucket has been charged, the high half of what was used in a window, or the
    /// current window's count.
    pub b: u32,
}

impl Cell {
    /// The state of an unseen key.
    pub const UNSEEN: Cell = Cell { at: 0, a: 0, b: 0 };

    /// Creates a cell of a moment and one number, whose halves are `a` and `b`.
    #[inline]
    pub fn of_number(at: u64, number: u64) -> Cell {
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Cell { at, a: half(number), b: half(number >> 32) }
    }

    /// Returns the number whose halves are `a` and `b`.
    #[inline]
    pub fn number(&self) -> u64 {
        u64::from(self.a) | u64::from(self.b) << 32
    }
}

/// The state of a key under a sliding window whose counts do not fit into a [`Cell`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct WideCell {
    /// When a call was last allowed.
    pub at: u64,
    /// The previous window's count.
    pub prev: u64,
    /// The current window's count.
    pub cur: u64,
}

impl WideCell {
    /// The state of an unseen key.
    pub const UNSEEN: WideCell = WideCell { at: 0, prev: 0, cur: 0 };
}

/// Stores rely on these sizes. (A slot has another 8 bytes.)
const _: () = assert!(size_of::<Cell>() == 16 && size_of::<WideCell>() == 24);
