//! Receipts as outsiders see them: nobody can read the hash of a key in one, or make up another.
//!
//! In plain words: three words are shuffled by a keyed function, over and over, in a way that can be run backwards by whoever
//! has the key (a Feistel network). What comes out tells nothing of what went in, and a made-up one comes out as nonsense, which
//! no store knows. The function is the standard library's keyed hash (`SipHash`), its keys are the operating system's randomness.

use std::hash::{BuildHasher as _, RandomState};

/// Every word is changed four times, by a function of the two others.
const ROUNDS: u64 = 12;

/// What receipts are sealed with. Every limiter, or store that limiters share, has its own.
#[derive(Default)]
pub(crate) struct Seal(RandomState);

impl Seal {
    pub(crate) fn seal(&self, words: [u64; 3]) -> [u64; 3] {
        (0..ROUNDS).fold(words, |[a, b, c], round| [b, c, a ^ self.mix(round, b, c)])
    }

    pub(crate) fn unseal(&self, words: [u64; 3]) -> [u64; 3] {
        (0..ROUNDS).rev().fold(words, |[b, c, sealed], round| [sealed ^ self.mix(round, b, c), b, c])
    }

    fn mix(&self, round: u64, left: u64, right: u64) -> u64 {
        self.0.hash_one((round, left, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_can_be_unsealed_and_looks_like_noise() {
        let seal = Seal::default();
        let mut changed = 0;
        for number in 0..1_000 {
            let words = [number, 7, 0];
            let sealed = seal.seal(words);
            assert_eq!(seal.unseal(sealed), words);
            assert_ne!(Seal::default().unseal(sealed), words, "another's seal");
            // One bit more changes half of all bits, wherever it is.
            let other = seal.seal([number, 7, 1]);
            changed += sealed.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum::<u32>();
        }
        assert!((95_000..97_000).contains(&changed), "{changed} of 192,000 bits");
    }
}
