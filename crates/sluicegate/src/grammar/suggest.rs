//! Which known name a misspelt one was meant to be.

use super::{SyntaxError, quoted};

/// The most typing errors between a word and its suggestion. Words of fewer than six letters may
/// have one: `foo` is two letters away from `log` and was not meant to be it.
const TYPOS_MAX: usize = 2;
const LETTERS_PER_TYPO: usize = 3;

/// Returns the known name that `word` is.
///
/// # Errors
/// If it is none of them: the error suggests the nearest name, or lists all of them if
/// none is near.
pub fn name(what: &str, word: &str, known: &[&'static str]) -> Result<&'static str, SyntaxError> {
    if let Some(known) = known.iter().find(|known| **known == word) {
        return Ok(known);
    }
    let advice = nearest(word, known.iter().copied())
        .map_or_else(|| format!("use {}", known.join(" ")), |meant| format!("did you mean {meant}?"));
    Err(SyntaxError::new(format!("unknown {what} {}", quoted(word)), advice))
}

/// Returns the known name that `word` is a misspelling of, if one is near enough. Case, hyphens and
/// other punctuation do not count: `NewYork` is `New_York`.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word: Vec<char> = letters(word).collect();
    let near = |name: &'k str| {
        // The difference in length is the least distance: it saves nearly every comparison.
        let letters: Vec<char> = letters(name).collect();
        let most = (word.len().max(letters.len()) / LETTERS_PER_TYPO).min(TYPOS_MAX);
        let distance = (word.len().abs_diff(letters.len()) <= most).then(|| distance(&word, &letters))?;
        (distance <= most).then_some((distance, name))
    };
    known.into_iter().filter_map(near).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// The letters and digits of a word, in lower case.
pub(crate) fn letters(word: &str) -> impl Iterator<Item = char> {
    word.chars().filter(|letter| letter.is_alphanumeric()).map(|letter| letter.to_ascii_lowercase())
}

/// How many letters must be changed, added, dropped or swapped with their neighbour to turn one
/// word into the other (the optimal string alignment distance).
fn distance(one: &[char], other: &[char]) -> usize {
    let mut before_last = vec![0; other.len() + 1];
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut cheapest = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                cheapest = cheapest.min(before_last[j - 1] + 1);
            }
            row.push(cheapest);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested() {
        let known = ["token-bucket", "sliding-log", "log", "burst", "ttl", "America/New_York"];
        for (word, meant) in [
            ("slding-log", "sliding-log"),
            ("sliding_log", "sliding-log"),
            ("SlidingLog", "sliding-log"),
            ("tokn-bukcet", "token-bucket"),
            ("brust", "burst"),
            ("bursts", "burst"),
            ("lgo", "log"),
            ("tll", "ttl"),
            ("America/NewYork", "America/New_York"),
        ] {
            assert_eq!(nearest(word, known), Some(meant), "{word}");
        }
    }

    #[test]
    fn unrelated_words_are_not_suggested() {
        let known = ["log", "rule", "store", "burst", "sliding-log", "pacer", "smooth"];
        for word in ["foo", "", "=", "x", "lo-fi", "policy", "bust-up", "tokens", "sliding"] {
            assert_eq!(nearest(word, known), None, "{word}");
        }
    }

    #[test]
    fn the_nearest_of_several_is_suggested() {
        assert_eq!(nearest("on-oof", ["no-off", "on-off"]), Some("on-off"));
    }

    #[test]
    fn swapped_neighbours_are_one_typing_error() {
        let distance = |one: &str, other: &str| {
            super::distance(&one.chars().collect::<Vec<_>>(), &other.chars().collect::<Vec<_>>())
        };
        assert_eq!(distance("brust", "burst"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("ca", "abc"), 3);
    }
}
