//! How long each of very many calls took.

/// Times below this many nanoseconds are counted each by itself: 65 µs.
const COUNTED: usize = 1 << 16;

/// Counts of the short times, and a list of the few long ones, so that every percentile is exact.
pub struct Histogram {
    counts: Vec<u64>,
    longer: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        // Room beforehand, so that noting a time never has to wait for memory.
        Histogram { counts: vec![0; COUNTED], longer: Vec::with_capacity(COUNTED) }
    }
}

impl Histogram {
    #[inline]
    pub fn note(&mut self, nanos: u64) {
        match self.counts.get_mut(nanos as usize) {
            Some(count) => *count += 1,
            None => self.longer.push(nanos),
        }
    }

    /// What this share of the calls took at most: for each share, in nanoseconds.
    pub fn at_most<const N: usize>(&mut self, shares: [f64; N]) -> [u64; N] {
        self.longer.sort_unstable();
        let calls = self.counts.iter().sum::<u64>() + self.longer.len() as u64;
        shares.map(|share| self.at_place((calls as f64 * share).ceil() as u64))
    }

    /// The time of the call that is at that place when they stand in a row by their time, from 1.
    fn at_place(&self, place: u64) -> u64 {
        let mut before = 0;
        for (nanos, count) in (0..).zip(&self.counts) {
            before += count;
            if before >= place {
                return nanos;
            }
        }
        let place = (place - before) as usize - 1;
        self.longer.get(place).or(self.longer.last()).copied().unwrap_or_default()
    }
}
