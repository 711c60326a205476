//! How receipts keep their place when something is given back.
//!
//! The charges that still count lie end to end along an axis, and a receipt knows where its own charge ends: at
//! a moment in the queue of a bucket, at a height in the count of a window. What is given back is cut out of
//! that row, and what lies beyond the cut moves up to close it. So no stretch is ever given back twice, and no
//! receipt reaches into what was charged after it.

/// A stretch that was given back: so long, and up to this place.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) end: i128,
    pub(crate) length: i128,
}

impl Cut {
    /// Where a place is after the cut. What lay inside the stretch is now where it began.
    pub(crate) fn moved(self, place: i128) -> i128 {
        let begin = self.end - self.length;
        place - (place - begin).clamp(0, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::Cut;

    #[test]
    fn what_lies_beyond_a_cut_moves_up_and_what_lies_inside_to_its_beginning() {
        let cut = Cut { end: 7, length: 3 };
        let moved: Vec<_> = (0..10).map(|place| cut.moved(place)).collect();
        assert_eq!(moved, [0, 1, 2, 3, 4, 4, 4, 4, 5, 6]);
    }
}
