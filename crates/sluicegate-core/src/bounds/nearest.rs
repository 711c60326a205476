//! The count to write instead of one that a bucket cannot keep exactly.

use super::{COUNT_MAX, PARTS_MAX};
use alloc::vec;
use alloc::vec::Vec;

/// All primes that trial division finds are below this.
const SMALL: u64 = 1 << 10;

/// Returns the count nearest to one that needs too many parts, the smaller one on a tie.
///
/// A count fits if it is at most [`PARTS_MAX`] times a divisor of the period.
pub(super) fn nearest_exact(count: u64, period: u64) -> u64 {
    let most = u64::from(PARTS_MAX);
    let candidates =
        divisors(period).into_iter().filter(|divisor| *divisor <= COUNT_MAX).flat_map(|divisor| {
            let times = count / divisor;
            // Cannot wrap: at most the count and another divisor, both at most 10^12.
            [times.min(most), (times + 1).min(most)].map(|times| times * divisor)
        });
    let exact = candidates.filter(|candidate| (1..=COUNT_MAX).contains(candidate));
    exact.min_by_key(|candidate| (candidate.abs_diff(count), *candidate)).unwrap_or(most)
}

/// Returns all divisors of a number below 2^49, in no order: a few ten thousand at most.
fn divisors(number: u64) -> Vec<u64> {
    let mut primes = Vec::new();
    let mut rest = number;
    for prime in 2..SMALL {
        while rest.is_multiple_of(prime) {
            rest /= prime;
            primes.push(prime);
        }
    }
    push_prime_factors(rest, &mut primes);
    primes.sort_unstable();
    let mut divisors = vec![1];
    for equal in primes.chunk_by(|left, right| left == right) {
        let smaller = divisors.clone();
        let mut power = 1;
        for prime in equal {
            power *= prime;
            divisors.extend(smaller.iter().map(|divisor| divisor * power));
        }
    }
    divisors
}

/// Splits a number without prime factors below [`SMALL`]. Such a number has at most four.
fn push_prime_factors(number: u64, primes: &mut Vec<u64>) {
    match (number > 1 && !is_prime(number)).then(|| factor(number)).flatten() {
        Some(factor) => {
            push_prime_factors(factor, primes);
            push_prime_factors(number / factor, primes);
        }
        None => primes.extend((number > 1).then_some(number)),
    }
}

/// The test of Miller and Rabin. These bases are enough for odd numbers from 19 to 3.4 * 10^14.
fn is_prime(number: u64) -> bool {
    let twos = (number - 1).trailing_zeros();
    [2, 3, 5, 7, 11, 13, 17].into_iter().all(|base| {
        let mut power = power_modulo(base, (number - 1) >> twos, number);
        let mut is_witness = power != 1;
        for _ in 0..twos {
            is_witness &= power != number - 1;
            power = product_modulo(power, power, number);
        }
        !is_witness
    })
}

/// Finds a factor of a composite number by Pollard's rho method: a pseudorandom sequence repeats
/// sooner modulo a factor than modulo the number. The few addends that fail are skipped.
fn factor(number: u64) -> Option<u64> {
    (1..SMALL).find_map(|addend| {
        let next = |value| (product_modulo(value, value, number) + addend) % number;
        let (mut slow, mut fast) = (next(2), next(next(2)));
        while slow != fast {
            let divisor = super::greatest_common_divisor(slow.abs_diff(fast), number);
            if divisor > 1 {
                return Some(divisor);
            }
            (slow, fast) = (next(slow), next(next(fast)));
        }
        None
    })
}

fn power_modulo(base: u64, exponent: u64, modulus: u64) -> u64 {
    let (mut result, mut square, mut rest) = (1, base % modulus, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = product_modulo(result, square, modulus);
        }
        square = product_modulo(square, square, modulus);
        rest >>= 1;
    }
    result
}

fn product_modulo(left: u64, right: u64, modulus: u64) -> u64 {
    let product = u128::from(left) * u128::from(right) % u128::from(modulus);
    // Always fits: it is below the modulus.
    u64::try_from(product).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{PERIOD_MAX, greatest_common_divisor};

    fn fits(count: u64, period: u64) -> bool {
        count / greatest_common_divisor(count, period) <= PARTS_MAX.into()
    }

    #[test]
    fn the_divisors_of_a_number_are_found_whatever_its_factors() {
        for number in (1..2_000).chain(1_000_000..1_000_200).chain(1 << 20..(1 << 20) + 200) {
            let mut found = divisors(number);
            found.sort_unstable();
            let expected: Vec<u64> = (1..=number).filter(|divisor| number.is_multiple_of(*divisor)).collect();
            assert_eq!(found, expected, "{number}");
        }
        // Squares and products of primes that trial division does not reach, and the most divisors.
        for (number, expected) in [
            (PERIOD_MAX.as_micros(), 1_320),
            (17_758_189 * 17_758_189, 3),
            (17_758_189 * 17_758_177, 4),
            (1_031 * 1_031 * 1_031, 4),
            (1_031 * 1_033 * 1_039 * 1_049, 16),
            (315_359_999_999_999, 2),
            (97_821_761_637_600, 17_280),
        ] {
            let found = divisors(number);
            assert!(found.iter().all(|divisor| number.is_multiple_of(*divisor)), "{number}");
            assert_eq!(found.len(), expected, "{number}");
        }
    }

    /// Compared with all counts in order of their distance.
    #[test]
    fn no_count_that_fits_is_nearer() {
        let mut rejected = 0;
        for period in [1, 7, 1_000, 999_983, 1_000_000, 60_000_000, 86_400_000_000, 17_758_189 * 17_758_177] {
            for count in [1_000_000_001, 1_000_000_007, 2_500_000_001, 123_456_789_011, 999_999_999_989] {
                if fits(count, period) {
                    continue;
                }
                rejected += 1;
                let nearest = nearest_exact(count, period);
                assert!(fits(nearest, period), "{count}/{period}us: {nearest}");
                let distance = nearest.abs_diff(count);
                for nearer in (1..distance.min(20_000)).flat_map(|step| [count - step, count + step]) {
                    assert!(nearer > COUNT_MAX || !fits(nearer, period), "{count}/{period}us: {nearer}");
                }
                let below = count.saturating_sub(distance);
                assert!(nearest < count || below == 0 || !fits(below, period), "{count}/{period}us");
            }
        }
        assert!(rejected > 20, "{rejected}");
    }
}
