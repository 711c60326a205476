//! Receipts of a shared store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sluicegate::{CALLS_MAX, Receipt, VerbError};

/// A parsed [`Receipt`] of a shared store. It carries the scope and the key of each of its calls,
/// and is valid in every process that shares the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredReceipt {
    /// Random, so that it cannot be guessed.
    pub(crate) name: [u8; NAME_LEN],
    /// The keys that it has a part on, each once.
    pub(crate) keys: Vec<ReceiptKey>,
    /// For each call the index of its key; `None` if its key has no limit.
    pub(crate) calls: Vec<Option<u8>>,
    /// Whether it was issued for several calls. That may have been one.
    of_several: bool,
}

/// A key of a receipt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReceiptKey {
    pub(crate) scope: String,
    pub(crate) key: Vec<u8>,
}

const NAME_LEN: usize = 16;

/// In the text of a receipt: a call on a key without a limit.
const NO_KEY: u8 = 0xff;

impl ReceiptKey {
    pub(crate) fn new(scope: &str, key: &[u8]) -> ReceiptKey {
        ReceiptKey { scope: scope.to_owned(), key: key.to_owned() }
    }
}

impl StoredReceipt {
    /// A new receipt of one call.
    pub(crate) fn new(scope: &str, key: &[u8]) -> StoredReceipt {
        let keys = vec![ReceiptKey::new(scope, key)];
        StoredReceipt { name: random(), keys, calls: vec![Some(0)], of_several: false }
    }

    /// A new receipt of several calls, with the index of each call's key.
    pub(crate) fn of_several(keys: Vec<ReceiptKey>, calls: Vec<Option<u8>>) -> StoredReceipt {
        StoredReceipt { name: random(), keys, calls, of_several: true }
    }

    /// Parses a receipt.
    ///
    /// # Errors
    /// If it is not a receipt of a shared store.
    pub fn read(receipt: &Receipt) -> Result<StoredReceipt, VerbError> {
        let read = || match receipt.stored() {
            Some(text) => {
                let bytes = BASE64.decode(text).ok()?;
                let (name, rest) = bytes.split_first_chunk()?;
                let (scope, key) = read_scope(rest)?;
                let keys = vec![ReceiptKey { scope, key: key.to_vec() }];
                Some(StoredReceipt { name: *name, keys, calls: vec![Some(0)], of_several: false })
            }
            None => read_several(&BASE64.decode(receipt.stored_of_several()?).ok()?),
        };
        read().ok_or(VerbError::BadReceipt)
    }

    /// The scope of the limiter that issued it; of several calls, that of the first with a limit.
    pub fn scope(&self) -> &str {
        self.keys.first().map_or("", |key| &key.scope)
    }

    /// The key of the reservation, as [`Key::to_bytes`](sluicegate::Key::to_bytes) wrote it; of
    /// several calls, that of the first with a limit.
    pub fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], |key| &key.key)
    }

    /// The scope and the key of each call, in their order; `None` for a call on a key without a
    /// limit.
    pub fn calls(&self) -> impl ExactSizeIterator<Item = Option<(&str, &[u8])>> {
        self.calls.iter().map(|index| {
            let key = self.keys.get(usize::from((*index)?))?;
            Some((key.scope.as_str(), key.key.as_slice()))
        })
    }

    /// Returns the number of each key: the sum of those of its calls. There is one number for each
    /// call, or a single one that applies to each.
    ///
    /// # Errors
    /// If there is another count of numbers.
    pub(crate) fn per_key(&self, numbers: &[u64]) -> Result<Vec<u64>, VerbError> {
        let of_call = |call: usize| match numbers {
            [for_each] => *for_each,
            _ => numbers[call],
        };
        if numbers.len() != 1 && numbers.len() != self.calls.len() {
            return Err(VerbError::WrongCount { numbers: numbers.len(), calls: self.calls.len() });
        }
        let mut per_key = vec![0_u64; self.keys.len()];
        for (call, key) in self.calls.iter().enumerate() {
            if let Some(sum) = key.and_then(|key| per_key.get_mut(usize::from(key))) {
                *sum = sum.saturating_add(of_call(call));
            }
        }
        Ok(per_key)
    }

    /// Encodes the receipt. Of one call: the name, the scope's length, the scope and the key. Of
    /// several: the name, the number of calls, the key of each, and then each key: the scope's
    /// length, the scope, the key's length and the key.
    pub(crate) fn receipt(&self) -> Receipt {
        let mut bytes = self.name.to_vec();
        if !self.of_several {
            add_scope(&mut bytes, self.scope());
            bytes.extend_from_slice(self.key());
            return Receipt::of_store(BASE64.encode(bytes));
        }
        bytes.push(u8::try_from(self.calls.len()).unwrap_or(NO_KEY));
        bytes.extend(self.calls.iter().map(|index| index.unwrap_or(NO_KEY)));
        for ReceiptKey { scope, key } in &self.keys {
            add_scope(&mut bytes, scope);
            bytes.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend_from_slice(key);
        }
        Receipt::of_store_of_several(BASE64.encode(bytes))
    }
}

/// A scope is a rule's name or a limit, and never so long that its length does not fit; otherwise
/// its receipts could not be parsed.
fn add_scope(bytes: &mut Vec<u8>, scope: &str) {
    bytes.extend_from_slice(&u16::try_from(scope.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(scope.as_bytes());
}

/// Parses a scope. Returns what follows it, too.
fn read_scope(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (scope, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((String::from_utf8(scope.to_vec()).ok()?, rest))
}

/// Parses a receipt of several calls. A key belongs to at least one call, and is named once.
fn read_several(bytes: &[u8]) -> Option<StoredReceipt> {
    let (name, rest) = bytes.split_first_chunk()?;
    let (calls, rest) = rest.split_first()?;
    let (calls, mut rest) = rest.split_at_checked(usize::from(*calls))?;
    let calls: Vec<Option<u8>> = calls.iter().map(|&index| (index != NO_KEY).then_some(index)).collect();
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (scope, after) = read_scope(rest)?;
        let (length, after) = after.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (key, after) = after.split_at_checked(length)?;
        keys.push(ReceiptKey { scope, key: key.to_vec() });
        rest = after;
    }
    let has_call = |key: usize| calls.iter().flatten().any(|index| usize::from(*index) == key);
    let is_whole = calls.len() <= CALLS_MAX
        && !keys.is_empty()
        && calls.iter().flatten().all(|index| usize::from(*index) < keys.len())
        && (0..keys.len()).all(|key| has_call(key) && !keys[..key].contains(&keys[key]));
    is_whole.then_some(StoredReceipt { name: *name, keys, calls, of_several: true })
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
    fn a_receipt_of_several_calls_is_parsed_from_its_text() {
        let keys = vec![
            ReceiptKey::new("rule/api", b"user:42"),
            ReceiptKey::new("", b""),
            ReceiptKey::new("rule/api", &[0; 70_000]),
        ];
        let receipt = StoredReceipt::of_several(keys, vec![Some(1), None, Some(0), Some(2), Some(0)]);
        let text = receipt.receipt().to_string();
        assert!(text.starts_with("s2."), "{text}");
        let read = StoredReceipt::read(&text.parse().unwrap()).unwrap();
        assert_eq!(read, receipt);
        let calls: Vec<_> = read.calls().take(3).collect();
        assert_eq!(calls, [Some(("", &b""[..])), None, Some(("rule/api", b"user:42"))]);
    }

    #[test]
    fn other_texts_are_not_receipts() {
        let text = StoredReceipt::new("rule/api", b"user:42").receipt().to_string();
        for cut in 0..text.len() {
            // With only the key cut, it is a receipt of another key, where it is unknown.
            let read = text[..cut].parse().and_then(|receipt| StoredReceipt::read(&receipt));
            assert!(read.is_err() || read.is_ok_and(|read| read.scope() == "rule/api"), "{cut}");
        }
        let memory = format!("m1.{}", "0".repeat(48));
        for bad in ["s1.AAAA", "s1.user42", &memory] {
            assert_eq!(StoredReceipt::read(&bad.parse().unwrap()), Err(VerbError::BadReceipt), "{bad}");
        }
    }

    #[test]
    fn other_texts_are_not_receipts_of_several_calls() {
        let key = |key: &[u8]| ReceiptKey::new("api", key);
        let good = StoredReceipt::of_several(vec![key(b"a"), key(b"b")], vec![Some(0), Some(1)]);
        let text = good.receipt().to_string();
        for cut in 0..text.len() {
            assert!(text[..cut].parse().and_then(|receipt| StoredReceipt::read(&receipt)).is_err(), "{cut}");
        }
        for (keys, calls) in [
            (vec![], vec![]),
            (vec![], vec![None]),
            (vec![key(b"a")], vec![None]),
            (vec![key(b"a")], vec![Some(1)]),
            (vec![key(b"a"), key(b"a")], vec![Some(0), Some(1)]),
            (vec![key(b"a")], vec![Some(0); CALLS_MAX + 1]),
        ] {
            let bad = StoredReceipt::of_several(keys, calls).receipt();
            assert_eq!(StoredReceipt::read(&bad), Err(VerbError::BadReceipt), "{bad}");
        }
    }
}
