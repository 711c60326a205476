//! Seals receipts and lease ids: outsiders can neither read the key's hash in one nor forge
//! another.
//!
//! Three words are encrypted with a Feistel network: a keyed function of two of them changes the
//! third, over and over, which can be reversed only with the key. The result reveals nothing, and a
//! forged id decrypts to nonsense that no store knows. The function is the standard library's keyed
//! hash (`SipHash`), with keys from the operating system's random source.
//!
//! The receipt of several calls has more words. Its name, which cannot be guessed, is masked by a
//! keyed hash of all words, and each word by one of the masked name. So a receipt that was changed
//! anywhere has a name that no store knows.

use std::hash::{BuildHasher as _, Hash, RandomState};

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

    /// Seals words and a name that cannot be guessed, and returns the sealed name. A change of a
    /// word, of the name or of the `context` yields another name.
    pub(crate) fn seal_all(&self, name: u64, words: &mut [u64], context: &impl Hash) -> u64 {
        let sealed = name ^ self.0.hash_one((&*words, context));
        self.mask(sealed, words);
        sealed
    }

    /// Unseals words, and returns the name.
    pub(crate) fn unseal_all(&self, sealed: u64, words: &mut [u64], context: &impl Hash) -> u64 {
        self.mask(sealed, words);
        sealed ^ self.0.hash_one((&*words, context))
    }

    fn mask(&self, sealed: u64, words: &mut [u64]) {
        for (index, word) in words.iter_mut().enumerate() {
            *word ^= self.0.hash_one(("word", sealed, index));
        }
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

    #[test]
    fn a_change_of_any_word_or_of_the_context_changes_the_name() {
        let seal = Seal::default();
        let words = [7, 0, u64::MAX, 7];
        let mut sealed = words;
        let name = seal.seal_all(1, &mut sealed, &"context");
        assert!(sealed.iter().zip(words).all(|(sealed, word)| *sealed != word) && sealed[0] != sealed[3]);
        let mut unsealed = sealed;
        assert_eq!((seal.unseal_all(name, &mut unsealed, &"context"), unsealed), (1, words));
        for bit in 0..64 {
            for word in 0..words.len() {
                let mut forged = sealed;
                forged[word] ^= 1 << bit;
                assert_ne!(seal.unseal_all(name, &mut forged, &"context"), 1);
            }
            assert_ne!(seal.unseal_all(name ^ (1 << bit), &mut sealed.clone(), &"context"), 1);
        }
        assert_ne!(seal.unseal_all(name, &mut sealed.clone(), &"other"), 1);
        assert_ne!(seal.unseal_all(name, &mut sealed[..2].to_vec(), &"context"), 1);
        assert_ne!(Seal::default().unseal_all(name, &mut sealed.clone(), &"context"), 1);
    }
}
