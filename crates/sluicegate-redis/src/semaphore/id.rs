//! What names a lease, wherever it is renewed or released.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as TEXT;
use std::fmt;
use std::str::FromStr;

const LEN: usize = 16;

/// Names one lease under its key, in any process that shares the store. As text it can be handed to others and read back; nobody can make one
/// up, and whoever has it can renew and release the lease.
///
/// (A lease that was given by this process's memory, as the store was away, is known in this process only.)
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LeaseId {
    pub(super) of: Home,
}

/// Where a lease is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Home {
    Store(StoreId),
    Local(sluicegate::LeaseId),
}

/// Names a lease in the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StoreId {
    bytes: [u8; LEN],
}

impl StoreId {
    pub(super) fn random() -> StoreId {
        let mut bytes = [0; LEN];
        // The system's randomness fails on no system that we run on; if it did, the lease could be guessed, no more.
        if getrandom::getrandom(&mut bytes).is_err() {
            fastrand::fill(&mut bytes);
        }
        StoreId { bytes }
    }

    pub(super) fn to_bytes(self) -> [u8; LEN] {
        self.bytes
    }
}

impl From<StoreId> for LeaseId {
    fn from(id: StoreId) -> LeaseId {
        LeaseId { of: Home::Store(id) }
    }
}

/// A text that is not a lease's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadLeaseId;

impl fmt::Display for BadLeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is not a lease; hand back the text that the acquire gave, unchanged")
    }
}

impl std::error::Error for BadLeaseId {}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Home::Store(id) => f.write_str(&TEXT.encode(id.bytes)),
            Home::Local(id) => id.fmt(f),
        }
    }
}

impl fmt::Debug for LeaseId {
    /// Not all of it: who finds it in a log should not be able to return the lease.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({}...)", self.to_string().get(..4).unwrap_or_default())
    }
}

impl FromStr for LeaseId {
    type Err = BadLeaseId;

    fn from_str(text: &str) -> Result<LeaseId, BadLeaseId> {
        let mut bytes = [0; LEN];
        match TEXT.decode_slice(text, &mut bytes) {
            Ok(LEN) => Ok(StoreId { bytes }.into()),
            // The text of the other kind is longer.
            _ => text.parse().map(|id| LeaseId { of: Home::Local(id) }).map_err(|_| BadLeaseId),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_back_from_its_text_and_other_texts_are_none() {
        let (one, other) = (LeaseId::from(StoreId::random()), LeaseId::from(StoreId::random()));
        assert!(one != other);
        let local = sluicegate::Semaphore::new("concurrency 1")
            .unwrap()
            .try_acquire("Harry", 1)
            .lease()
            .unwrap()
            .id();
        let local = LeaseId { of: Home::Local(local) };
        assert_eq!(local.to_string().parse(), Ok(local.clone()));
        let text = one.to_string();
        assert_eq!(text.parse(), Ok(one.clone()));
        assert!(!format!("{one:?}").contains(&text));
        for cut in 0..text.len() {
            assert_eq!(text[..cut].parse::<LeaseId>(), Err(BadLeaseId));
        }
        for bad in [format!("{text}A"), format!(" {text}"), text.replace(&text[..1], "="), "A".repeat(1000)] {
            assert_eq!(bad.parse::<LeaseId>(), Err(BadLeaseId), "{bad}");
        }
    }
}
