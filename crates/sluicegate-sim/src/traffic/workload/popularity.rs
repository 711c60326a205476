//! Who calls how often: the key of rank r in proportion to 1/r^exponent (Zipf's law).
//!
//! A number from 0 to 1 is looked up in the running sum of the shares. A small index in front of it
//! finds the few busy keys at once, which is where most numbers fall; the other ways of drawing
//! either compute a power each time or miss the cache each time, and took most of a simulation's
//! time.

use rand::{Rng, RngExt as _};

/// Entries of the index: enough for a million quiet keys to be some dozens to an entry, which lie
/// close together, and few enough to stay in the cache.
const INDEX: usize = 1 << 16;

pub(super) struct Popularity {
    /// The share of each key and of all before it. The last is 1.
    sums: Vec<f64>,
    /// For each part of the numbers from 0 to 1, the first key that one of them can belong to.
    index: Vec<u32>,
}

impl Popularity {
    pub(super) fn zipf(keys: u32, exponent: f64) -> Popularity {
        let mut sums: Vec<f64> = Vec::with_capacity(keys as usize);
        let mut sum = 0.0;
        for rank in 1..=keys {
            sum += libm::pow(f64::from(rank), -exponent);
            sums.push(sum);
        }
        for share in &mut sums {
            *share /= sum;
        }
        let first = |part: usize| {
            let place = sums.partition_point(|share| *share <= edge(part));
            u32::try_from(place).unwrap_or(keys)
        };
        let index = (0..=INDEX).map(first).collect();
        Popularity { sums, index }
    }

    /// The rank of a key, counted from 0.
    pub(super) fn draw(&self, random: &mut impl Rng) -> usize {
        let number: f64 = random.random();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below the number of entries"
        )]
        let part = (number * edge_count()) as usize;
        let first_of = |part: usize| self.index.get(part).map_or(self.sums.len(), |place| *place as usize);
        let (from, to) = (first_of(part), first_of(part + 1));
        let few = self.sums.get(from..to).unwrap_or_default();
        // Below the number of keys: rounding can leave the last sum a little under 1.
        (from + few.partition_point(|share| *share <= number)).min(self.sums.len() - 1)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a small whole number")]
fn edge_count() -> f64 {
    INDEX as f64
}

/// Where a part of the numbers from 0 to 1 begins.
#[expect(clippy::cast_precision_loss, reason = "a small whole number")]
fn edge(part: usize) -> f64 {
    part as f64 / edge_count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// With as many draws each of the first keys and the tail as a whole is drawn about as often as
    /// Zipf's law says.
    #[test]
    fn keys_are_drawn_as_often_as_their_rank_says() {
        let (keys, exponent, times) = (1000_u32, 1.2, 1_000_000_u32);
        let popularity = Popularity::zipf(keys, exponent);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut drawn = vec![0_u32; keys as usize];
        for _ in 0..times {
            drawn[popularity.draw(&mut random)] += 1;
        }
        let weight = |rank: u32| f64::from(rank).powf(-exponent);
        let all: f64 = (1..=keys).map(weight).sum();
        for rank in (1..=20).chain([100, 1000]) {
            let expected = weight(rank) / all * f64::from(times);
            let off = f64::from(drawn[rank as usize - 1]) - expected;
            // Five standard deviations: once in millions of seeds, and the seed is fixed.
            assert!(off.abs() < 5.0 * expected.sqrt(), "rank {rank}: {off} off {expected}");
        }
    }

    #[test]
    fn an_exponent_of_zero_makes_all_alike_and_a_steep_one_stays_in_bounds() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let alike = Popularity::zipf(3, 0.0);
        let mut drawn = [0; 3];
        for _ in 0..30_000 {
            drawn[alike.draw(&mut random)] += 1;
        }
        assert!(drawn.iter().all(|times| (9_500..10_500).contains(times)), "{drawn:?}");
        let steep = Popularity::zipf(5, 10.0);
        for _ in 0..10_000 {
            assert!(steep.draw(&mut random) < 5);
        }
        assert_eq!(Popularity::zipf(1, 1.0).draw(&mut random), 0);
    }
}
