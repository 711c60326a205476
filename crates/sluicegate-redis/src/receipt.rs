//! What names a reservation, wherever it is cancelled or settled.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as TEXT;
use std::fmt;
use std::str::FromStr;

/// Names one reservation, good for one cancel or settle in any process that shares the store. As text it can be handed to
/// others and read back; it says its scope and key, and nobody can make one up.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Receipt {
    pub(crate) scope: String,
    pub(crate) key: Vec<u8>,
    /// Random, so that it cannot be guessed.
    pub(crate) name: [u8; NAME_LEN],
}

const NAME_LEN: usize = 16;
/// What a receipt's text begins with: which version of it this is.
const VERSION: &str = "s1.";

impl Receipt {
    pub(crate) fn new(scope: &str, key: &[u8]) -> Receipt {
        let mut name = [0; NAME_LEN];
        // The system's randomness fails on no system that we run on; if it did, the receipt could be guessed, no more.
        if getrandom::getrandom(&mut name).is_err() {
            fastrand::fill(&mut name);
        }
        Receipt { scope: scope.to_owned(), key: key.to_owned(), name }
    }

    /// The scope of the limiter that gave it.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Whose reservation it is.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

/// A text that is not a receipt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadReceipt;

impl fmt::Display for BadReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is not a receipt; hand back the text that the reservation gave, unchanged")
    }
}

impl std::error::Error for BadReceipt {}

impl fmt::Display for Receipt {
    /// The name, the scope's length, the scope and the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.name.to_vec();
        // A scope is a name or a limit; if it were longer than this, its receipts would not be read back.
        bytes.extend_from_slice(&u16::try_from(self.scope.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend_from_slice(self.scope.as_bytes());
        bytes.extend_from_slice(&self.key);
        write!(f, "{VERSION}{}", TEXT.encode(bytes))
    }
}

impl FromStr for Receipt {
    type Err = BadReceipt;

    fn from_str(text: &str) -> Result<Receipt, BadReceipt> {
        let read = || {
            let bytes = TEXT.decode(text.strip_prefix(VERSION)?).ok()?;
            let (name, rest) = bytes.split_first_chunk::<NAME_LEN>()?;
            let (length, rest) = rest.split_first_chunk::<2>()?;
            let (scope, key) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            Some(Receipt { scope: String::from_utf8(scope.to_vec()).ok()?, key: key.to_vec(), name: *name })
        };
        read().ok_or(BadReceipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_back_from_its_text() {
        for (scope, key) in [("", &b""[..]), ("rule/api", b"Harry"), ("i/sliding-log 5/m", b"\0\xff{}|")] {
            let receipt = Receipt::new(scope, key);
            assert_eq!(receipt.to_string().parse(), Ok(receipt));
        }
    }

    #[test]
    fn other_texts_are_no_receipts() {
        let text = Receipt::new("rule/api", b"Harry").to_string();
        for cut in 0..text.len() {
            // What is cut from the key alone is a receipt of another key, which is unknown there.
            assert!(
                text[..cut].parse::<Receipt>().is_ok_and(|read| read.scope == "rule/api")
                    || text[..cut].parse::<Receipt>() == Err(BadReceipt)
            );
        }
        for bad in ["", "s1.", "s1.AAAA", "s2.AAAA", "Harry", "s1.\u{e4}"] {
            assert_eq!(bad.parse::<Receipt>(), Err(BadReceipt), "{bad}");
        }
    }
}
