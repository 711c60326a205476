//! The id of a lease in the store.

use crate::receipt::random;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sluicegate::VerbError;
use sluicegate::semaphore::LeaseId;

const LEN: usize = 16;

/// Identifies a lease in the store, in every process that shares it. It is random, so it cannot be
/// guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoreId {
    bytes: [u8; LEN],
}

impl StoreId {
    pub(super) fn random() -> StoreId {
        StoreId { bytes: random() }
    }

    /// Parses a lease id. `None` if the lease is in this process's memory, which granted it while
    /// the store was unavailable.
    pub(super) fn read(id: &LeaseId) -> Result<Option<StoreId>, VerbError> {
        let Some(text) = id.stored() else { return Ok(None) };
        let mut bytes = [0; LEN];
        match BASE64.decode_slice(text, &mut bytes) {
            Ok(LEN) => Ok(Some(StoreId { bytes })),
            _ => Err(VerbError::BadLeaseId),
        }
    }

    pub(super) fn id(self) -> LeaseId {
        LeaseId::of_store(BASE64.encode(self.bytes))
    }

    pub(super) fn to_bytes(self) -> [u8; LEN] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_parsed_from_its_text_and_nothing_else_is() {
        let (one, other) = (StoreId::random(), StoreId::random());
        assert!(one != other);
        let semaphore = sluicegate::semaphore::Semaphore::new("concurrency 1").unwrap();
        let local = semaphore.try_acquire("user:42", 1).lease().unwrap();
        assert_eq!(StoreId::read(&local.id()), Ok(None));
        let text = one.id().to_string();
        let read = |text: &str| text.parse().and_then(|id| StoreId::read(&id));
        assert_eq!(read(&text), Ok(Some(one)));
        for cut in 0..text.len() {
            assert_eq!(read(&text[..cut]), Err(VerbError::BadLeaseId));
        }
        for bad in [format!("{text}A"), format!(" {text}"), "s1.".to_owned() + &"A".repeat(1000)] {
            assert_eq!(read(&bad), Err(VerbError::BadLeaseId), "{bad}");
        }
    }
}
