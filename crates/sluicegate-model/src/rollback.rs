//! How receipts keep their position when another charge is returned.
//!
//! The charges that still count lie end to end along an axis, and a receipt records where its own
//! charge ends: at a moment for a bucket, at a height in the count of a window. A return removes a
//! stretch of that axis, and what lies beyond it moves up. So nothing is returned twice, and no
//! receipt returns what was charged after it.

/// A stretch that was returned: its end and its length.
#[derive(Clone, Copy)]
pub(crate) struct Rollback {
    pub(crate) end: i128,
    pub(crate) length: i128,
}

impl Rollback {
    /// Returns where a position is after the removal. What lay inside the stretch is now at its
    /// beginning.
    pub(crate) fn shifted(self, position: i128) -> i128 {
        let begin = self.end - self.length;
        position - (position - begin).clamp(0, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::Rollback;

    #[test]
    fn positions_beyond_move_up_and_those_inside_move_to_the_beginning() {
        let rollback = Rollback { end: 7, length: 3 };
        let shifted: Vec<_> = (0..10).map(|position| rollback.shifted(position)).collect();
        assert_eq!(shifted, [0, 1, 2, 3, 4, 4, 4, 4, 5, 6]);
    }
}
