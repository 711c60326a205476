//! Receipts of a shared store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sluicegate::{Receipt, VerbError};

/// A parsed [`Receipt`] of a shared store. It carries its scope and key, and is valid in every
/// process that shares the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReceipt {
    pub(crate) scope: String,
    pub(crate) key: Vec<u8>,
    /// Random, so that it cannot be guessed.
    pub(crate) name: [u8; NAME_LEN],
}

const NAME_LEN: usize = 16;

impl StoredReceipt {
    pub(crate) fn new(scope: &str, key: &[u8]) -> StoredReceipt {
        StoredReceipt { scope: scope.to_owned(), key: key.to_owned(), name: random() }
    }

    /// Parses a receipt.
    ///
    /// # Errors
    /// If it is not a receipt of a shared store.
    pub fn read(receipt: &Receipt) -> Result<StoredReceipt, VerbError> {
        let read = || {
            let bytes = BASE64.decode(receipt.stored()?).ok()?;
            let (name, rest) = bytes.split_first_chunk::<NAME_LEN>()?;
            let (length, rest) = rest.split_first_chunk::<2>()?;
            let (scope, key) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let scope = String::from_utf8(scope.to_vec()).ok()?;
            Some(StoredReceipt { scope, key: key.to_vec(), name: *name })
        };
        read().ok_or(VerbError::BadReceipt)
    }

    /// The scope of the limiter that issued it.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The key of the reservation, as [`Key::to_bytes`](sluicegate::Key::to_bytes) wrote it.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Encodes the receipt: the name, the scope's length, the scope and the key.
    pub(crate) fn receipt(&self) -> Receipt {
        let mut bytes = self.name.to_vec();
        // A scope is a rule's name or a limit, and never that long; otherwise its receipts could
        // not be parsed.
        bytes.extend_from_slice(&u16::try_from(self.scope.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend_from_slice(self.scope.as_bytes());
        bytes.extend_from_slice(&self.key);
        Receipt::of_store(BASE64.encode(bytes))
    }
}

/// Returns unguessable bytes.
pub(crate) fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    // The system's randomness does not fail on any supported system. If it did, ids could be
    // guessed, no more.
    if getrandom::getrandom(&mut bytes).is_err() {
        fastrand::fill(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_parsed_from_its_text() {
        for (scope, key) in [("", &b""[..]), ("rule/api", b"user:42"), ("i/sliding-log 5/min", b"\0\xff{}|")]
        {
            let receipt = StoredReceipt::new(scope, key);
            let text = receipt.receipt().to_string();
            assert_eq!(StoredReceipt::read(&text.parse().unwrap()), Ok(receipt));
        }
    }

    #[test]
    fn other_texts_are_not_receipts() {
        let text = StoredReceipt::new("rule/api", b"user:42").receipt().to_string();
        for cut in 0..text.len() {
            // With only the key cut, it is a receipt of another key, where it is unknown.
            let read = text[..cut].parse().and_then(|receipt| StoredReceipt::read(&receipt));
            assert!(read.is_err() || read.is_ok_and(|read| read.scope == "rule/api"), "{cut}");
        }
        let memory = format!("m1.{}", "0".repeat(48));
        for bad in ["s1.AAAA", "s1.user42", &memory] {
            assert_eq!(StoredReceipt::read(&bad.parse().unwrap()), Err(VerbError::BadReceipt), "{bad}");
        }
    }
}
