//! Seals receipts and lease ids: outsiders can neither read the key's hash in one nor forge
//! another.
//!
//! Three words are encrypted with a Feistel network: a keyed function of two of them changes the
//! third, over and over, which can be reversed only with the key. The result reveals nothing, and a
//! forged id decrypts to nonsense that no store knows. The function is the standard library's keyed
//! hash (`SipHash`), with keys from the operating system's random source.

use std::hash::{BuildHasher as _, RandomState};

/// Every word is changed four times.
const ROUNDS: u64 = 12;

/// The key that seals receipts and lease ids. Every limiter, or store that limiters share, has its
/// own.
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
    fn sealed_words_look_random_and_can_be_unsealed() {
        let seal = Seal::default();
        let mut changed = 0;
        for number in 0..1_000 {
            let words = [number, 7, 0];
            let sealed = seal.seal(words);
            assert_eq!(seal.unseal(sealed), words);
            assert_ne!(Seal::default().unseal(sealed), words, "the seal of another store");
            // One flipped bit changes half of all bits.
            let other = seal.seal([number, 7, 1]);
            changed += sealed.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum::<u32>();
        }
        assert!((95_000..97_000).contains(&changed), "{changed} of 192,000 bits");
    }
}
