//! What an open receipt stands for.

/// A reservation that was not settled, cancelled or voided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) cost: i128,
    /// Whether each limit of the list still has its part of the reservation.
    parts: Vec<bool>,
}

impl Receipt {
    /// Creates the receipt of a reservation under this many limits.
    pub(crate) fn new(cost: i128, limits: usize) -> Self {
        Self { cost, parts: vec![true; limits] }
    }

    /// Returns `true` if the limit at a position has its part of the reservation.
    pub(crate) fn has_part(&self, position: usize) -> bool {
        self.parts.get(position) == Some(&true)
    }

    /// Keeps only the parts at these positions. Returns `false` if none is left.
    pub(crate) fn keep_parts(&mut self, kept: impl Fn(usize) -> bool) -> bool {
        for (position, part) in self.parts.iter_mut().enumerate() {
            *part &= kept(position);
        }
        self.parts.contains(&true)
    }
}
