//! The binary searches that find every reported number.

/// Longer than any wait within the bounds of limits and clocks.
const LONGEST_WAIT: i128 = 1 << 62;

/// Returns the shortest wait for which `holds` is true, if there is one.
///
/// Once `holds` is true it must stay true for all longer waits.
pub(crate) fn shortest_wait(holds: impl Fn(i128) -> bool) -> Option<i128> {
    if holds(0) {
        return Some(0);
    }
    let mut too_short = 0;
    let mut enough = 1;
    while !holds(enough) {
        too_short = enough;
        enough *= 2;
        if enough > LONGEST_WAIT {
            return None;
        }
    }
    while enough - too_short > 1 {
        let middle = too_short + (enough - too_short) / 2;
        if holds(middle) {
            enough = middle;
        } else {
            too_short = middle;
        }
    }
    Some(enough)
}

/// Returns the largest cost from 1 to `limit` that `fits`, or 0 if none does.
///
/// If a cost fits, every smaller one must.
pub(crate) fn largest_cost(limit: i128, fits: impl Fn(i128) -> bool) -> i128 {
    let mut fitting = 0;
    let mut too_large = limit + 1;
    while too_large - fitting > 1 {
        let middle = fitting + (too_large - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            too_large = middle;
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::{largest_cost, shortest_wait};

    #[test]
    fn the_shortest_wait_is_found() {
        for first in 0..70 {
            assert_eq!(shortest_wait(|wait| wait >= first), Some(first));
        }
        let long = 260_000_000_000_000_001;
        assert_eq!(shortest_wait(|wait| wait >= long), Some(long));
        assert_eq!(shortest_wait(|_| false), None);
    }

    #[test]
    fn the_largest_cost_is_found() {
        for last in 0..=20 {
            assert_eq!(largest_cost(20, |cost| cost <= last), last);
        }
        assert_eq!(largest_cost(20, |_| true), 20);
    }
}
