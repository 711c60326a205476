//! Receipts as clients see them: the receipt of the store, with the rule and key of each call.
//!
//! ```text
//! m1.3f2a…~AANhcGkAB3VzZXI6NDI      receipt ~ rules and keys, in URL-safe base64
//! ```
//!
//! A memory store knows its keys by their fingerprints only. To extend a reservation the server
//! needs the rules again: to count the decision, to name the limit that denied it, and because a
//! shadow rule never denies. It needs the keys because some are exceptions. A client that forges
//! this part changes only the names in its own replies: the store finds the key and its charge by
//! its own part. The receipt of a shared store has rule and key inside.

use super::call::RuleCall;
use super::rule::RuleScope;
use super::{RequestError, Target};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sluicegate::internal::raw_key;
use sluicegate::{CALLS_MAX, Receipt, VerbError};
use sluicegate_redis::StoredReceipt;

/// Between the two parts. The receipt of a store does not contain it.
const SEPARATOR: char = '~';

/// The most bytes that the rules and keys of a reservation may have: a key of 64 KiB under any
/// inline list fits. In base64 they fit into an argument of a command.
const CALLS_LEN_MAX: usize = 80 * 1024;

/// A receipt that a client sent.
pub struct RuleReceipt {
    /// The store's own.
    pub(super) stored: Receipt,
    calls: Vec<ReceiptCall>,
}

/// A call of a receipt: the name of its rule, or the text of its inline limit or list, and the key.
/// `None` if the receipt does not say: its key has no limit, or a shadow rule left the call out.
type ReceiptCall = Option<(String, Vec<u8>)>;

impl RuleReceipt {
    /// Reads the text of a receipt.
    ///
    /// # Errors
    /// If it is not a receipt.
    pub(super) fn read(text: &str) -> Result<RuleReceipt, VerbError> {
        let (stored, calls) = match text.split_once(SEPARATOR) {
            Some((stored, calls)) => (stored, Some(calls)),
            None => (text, None),
        };
        let stored: Receipt = stored.parse()?;
        let calls = match calls {
            Some(calls) if stored.is_of_memory() => read_calls(&BASE64.decode(calls).unwrap_or_default()),
            None if !stored.is_of_memory() => read_stored(&StoredReceipt::read(&stored)?),
            _ => None,
        };
        Ok(RuleReceipt { stored, calls: calls.ok_or(VerbError::BadReceipt)? })
    }

    /// The rule and key of each call.
    pub(super) fn targets(&self) -> impl ExactSizeIterator<Item = Option<Target<'_>>> {
        self.calls.iter().map(|call| call.as_ref().map(|(rule, key)| Target { rule, key }))
    }
}

/// Writes the receipt of reserved calls.
pub(super) fn receipt_text(receipt: &Receipt, calls: &[RuleCall<'_>]) -> String {
    let mut text = receipt.to_string();
    if receipt.is_of_memory() {
        let mut bytes = Vec::new();
        for call in calls {
            write_part(call.rule().text().as_bytes(), &mut bytes);
            write_part(call.key, &mut bytes);
        }
        text.push(SEPARATOR);
        BASE64.encode_string(bytes, &mut text);
    }
    text
}

/// Returns an error if the receipt of these calls would be too long to be sent back.
pub(super) fn fit_receipt(calls: &[RuleCall<'_>]) -> Result<(), RequestError> {
    let length: usize = calls.iter().map(|call| call.rule().text().len() + call.key.len()).sum();
    if length <= CALLS_LEN_MAX {
        return Ok(());
    }
    Err(RequestError::new(format!(
        "the rules and keys of a reservation have {length} bytes; use at most {CALLS_LEN_MAX} in all, or hash the keys"
    )))
}

/// Writes a part after its length. A part is at most as long as a key.
fn write_part(part: &[u8], bytes: &mut Vec<u8>) {
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(part);
}

fn read_stored(stored: &StoredReceipt) -> Option<Vec<ReceiptCall>> {
    let call =
        |(scope, key): (&str, &[u8])| Some((RuleScope::name_in(scope)?.to_owned(), raw_key(key)?.to_vec()));
    stored.calls().map(|known| known.map_or(Some(None), |known| call(known).map(Some))).collect()
}

fn read_calls(mut bytes: &[u8]) -> Option<Vec<ReceiptCall>> {
    let mut calls = Vec::new();
    while !bytes.is_empty() {
        let rule = String::from_utf8(read_part(&mut bytes)?.to_vec()).ok()?;
        calls.push(Some((rule, read_part(&mut bytes)?.to_vec())));
    }
    (1..=CALLS_MAX).contains(&calls.len()).then_some(calls)
}

fn read_part<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (&[high, middle, low], rest) = bytes.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(u32::from_be_bytes([0, high, middle, low]).try_into().ok()?)?;
    *bytes = rest;
    Some(part)
}
