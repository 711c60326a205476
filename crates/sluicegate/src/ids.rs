//! Receipts and lease ids: opaque text that identifies a reservation or a lease.
//!
//! ```text
//! m1.3f2a…       in this process's memory: a version, and three sealed words for their limiter
//! m2.0001ff.3f…  a receipt of several calls: for each call the index of its part (ff: its key has
//!                no limit, and so no part), then the sealed words of all parts
//! s1.Zm9v…       in a shared store: a version, and whatever that store wrote, in URL-safe base64
//! s2.Zm9v…       the same for several calls
//! ```
//!
//! Both kinds are one type, so that code need not know which store a receipt or a lease belongs to.
//! The version distinguishes later formats: text of an unknown version is rejected.

use crate::limiter::{CALLS_MAX, VerbError};
use std::fmt;
use std::str::FromStr;

/// The prefix of ids in memory, and the length of the rest: three 64-bit words in hexadecimal.
const MEMORY: &str = "m1.";
const MEMORY_LEN: usize = 48;
/// The prefix of ids in a shared store.
const STORE: &str = "s1.";
/// The prefixes of receipts of several calls.
const MEMORY_OF_SEVERAL: &str = "m2.";
const STORE_OF_SEVERAL: &str = "s2.";
/// In the text of a receipt: a call without a part.
const NO_PART: u8 = 0xff;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Id {
    Memory([u64; 3]),
    /// The text after the prefix.
    Store(Box<str>),
    /// Only receipts.
    MemoryOfSeveral(Box<Several>),
    /// Only receipts.
    StoreOfSeveral(Box<str>),
}

/// A receipt in memory of several calls.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Several {
    /// For each call the index of its part, if it has one.
    pub(crate) calls: Vec<Option<u8>>,
    /// The sealed name, and two sealed words for each part.
    pub(crate) sealed: Vec<u64>,
}

impl Several {
    /// Parses the text after the prefix. A part belongs to at least one call.
    fn read(text: &str) -> Option<Several> {
        let (calls, words) = text.split_once('.')?;
        let parts = (words.len() / 16).checked_sub(1)? / 2;
        let calls: Vec<Option<u8>> = hexadecimal(calls, 2)?
            .into_iter()
            .map(|part| u8::try_from(part).ok().filter(|part| *part != NO_PART))
            .collect();
        let sealed = hexadecimal(words, 16)?;
        let has_call = |part: usize| calls.iter().flatten().any(|index| usize::from(*index) == part);
        let is_whole = calls.len() <= CALLS_MAX
            && sealed.len() == 1 + 2 * parts
            && (0..parts).all(has_call)
            && calls.iter().flatten().all(|part| usize::from(*part) < parts);
        is_whole.then_some(Several { calls, sealed })
    }
}

/// Parses numbers of this many digits each, at least one.
fn hexadecimal(text: &str, digits: usize) -> Option<Vec<u64>> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if text.is_empty() || !text.len().is_multiple_of(digits) || !text.bytes().all(|byte| is_digit(&byte)) {
        return None;
    }
    let number = |from: usize| u64::from_str_radix(text.get(from..from + digits)?, 16).ok();
    (0..text.len()).step_by(digits).map(number).collect()
}

impl Id {
    fn read(text: &str) -> Option<Id> {
        if let Some(digits) = text.strip_prefix(MEMORY) {
            let words = hexadecimal(digits, 16).filter(|_| digits.len() == MEMORY_LEN)?;
            return words.try_into().ok().map(Id::Memory);
        }
        if let Some(several) = text.strip_prefix(MEMORY_OF_SEVERAL) {
            return Several::read(several).map(|several| Id::MemoryOfSeveral(Box::new(several)));
        }
        let (base64, of_several) = match text.strip_prefix(STORE) {
            Some(base64) => (base64, false),
            None => (text.strip_prefix(STORE_OF_SEVERAL)?, true),
        };
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_valid = !base64.is_empty() && base64.bytes().all(is_base64);
        is_valid
            .then(|| if of_several { Id::StoreOfSeveral(base64.into()) } else { Id::Store(base64.into()) })
    }

    /// Returns `true` for the receipt of several calls.
    fn is_of_several(&self) -> bool {
        matches!(self, Id::MemoryOfSeveral(_) | Id::StoreOfSeveral(_))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Memory([first, second, third]) => write!(f, "{MEMORY}{first:016x}{second:016x}{third:016x}"),
            Id::Store(base64) => write!(f, "{STORE}{base64}"),
            Id::MemoryOfSeveral(several) => {
                f.write_str(MEMORY_OF_SEVERAL)?;
                several.calls.iter().try_for_each(|part| write!(f, "{:02x}", part.unwrap_or(NO_PART)))?;
                f.write_str(".")?;
                several.sealed.iter().try_for_each(|word| write!(f, "{word:016x}"))
            }
            Id::StoreOfSeveral(base64) => write!(f, "{STORE_OF_SEVERAL}{base64}"),
        }
    }
}

macro_rules! id {
    ($(#[$docs:meta])* $name:ident, $bad:ident, $($several:literal)?) => {
        $(#[$docs])*
        #[derive(Clone, PartialEq, Eq, Hash)]
        pub struct $name(Id);

        impl $name {
            pub(crate) const fn of_memory(sealed: [u64; 3]) -> $name {
                $name(Id::Memory(sealed))
            }

            /// The id of a shared store, which reads it back with `stored`.
            #[doc(hidden)]
            pub fn of_store(base64: impl Into<Box<str>>) -> $name {
                $name(Id::Store(base64.into()))
            }

            /// What a shared store wrote. `None` for an id in memory.
            #[doc(hidden)]
            pub fn stored(&self) -> Option<&str> {
                match &self.0 {
                    Id::Store(base64) => Some(base64),
                    Id::Memory(_) | Id::MemoryOfSeveral(_) | Id::StoreOfSeveral(_) => None,
                }
            }

            /// Returns `true` if the id belongs to a process's memory, not to a shared store.
            pub fn is_of_memory(&self) -> bool {
                matches!(self.0, Id::Memory(_) | Id::MemoryOfSeveral(_))
            }

            /// The words that memory sealed. The id of a shared store reads as nonsense, which no
            /// memory knows.
            pub(crate) fn sealed(&self) -> [u64; 3] {
                match self.0 {
                    Id::Memory(sealed) => sealed,
                    Id::Store(_) | Id::MemoryOfSeveral(_) | Id::StoreOfSeveral(_) => [0; 3],
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            /// Abbreviated: text found in a log must not be usable for a release or a refund.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let text = self.to_string();
                write!(f, concat!(stringify!($name), "({}...)"), text.get(..7).unwrap_or(&text))
            }
        }

        impl FromStr for $name {
            type Err = VerbError;

            fn from_str(text: &str) -> Result<$name, VerbError> {
                let takes_several = false $(|| $several)?;
                let id = Id::read(text).filter(|id| takes_several || !id.is_of_several());
                id.map($name).ok_or(VerbError::$bad)
            }
        }
    };
}

id! {
    /// Identifies a reservation of one call or of several, for one cancel or settle. As text it can
    /// be passed on and parsed again.
    ///
    /// It is kept until its cost no longer counts, and for at least an hour, or for as long as its
    /// [`Ttl`](crate::Ttl) says.
    Receipt,
    BadReceipt,
    true
}

impl Receipt {
    pub(crate) fn of_memory_of_several(several: Several) -> Receipt {
        Receipt(Id::MemoryOfSeveral(Box::new(several)))
    }

    /// The contents of a receipt of several calls in memory.
    pub(crate) fn several(&self) -> Option<&Several> {
        if let Id::MemoryOfSeveral(several) = &self.0 { Some(several) } else { None }
    }

    /// The receipt of several calls in a shared store, which reads it back with
    /// `stored_of_several`.
    #[doc(hidden)]
    pub fn of_store_of_several(base64: impl Into<Box<str>>) -> Receipt {
        Receipt(Id::StoreOfSeveral(base64.into()))
    }

    /// What a shared store wrote for several calls.
    #[doc(hidden)]
    pub fn stored_of_several(&self) -> Option<&str> {
        if let Id::StoreOfSeveral(base64) = &self.0 { Some(base64) } else { None }
    }
}

id! {
    /// Identifies a lease, for a program that cannot hold a [`Lease`](crate::semaphore::Lease),
    /// such as a server's client. As text it can be passed on and parsed again, and it cannot be
    /// forged.
    ///
    /// ```
    /// use sluicegate::semaphore::{LeaseId, Semaphore};
    ///
    /// let exports = Semaphore::new("concurrency 2 ttl=30s")?;
    /// let lease = exports.try_acquire("user:42", 1).lease().unwrap();
    /// let text = lease.keep().to_string(); // from here on it is released by its id, or expires
    /// let id: LeaseId = text.parse()?;
    /// assert!(exports.renew("user:42", &id));
    /// assert!(exports.release("user:42", &id) && !exports.release("user:42", &id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    LeaseId,
    BadLeaseId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_an_id_is_parsed() {
        let memory = Receipt::of_memory([1, u64::MAX, 0xabcd]);
        assert_eq!(memory.to_string().parse(), Ok(memory));
        let stored = Receipt::of_store("Zm9v_-9");
        assert_eq!((stored.stored(), stored.to_string().parse()), (Some("Zm9v_-9"), Ok(stored.clone())));
        let stored = Receipt::of_store_of_several("Zm9v");
        assert_eq!((stored.to_string().as_str(), stored.to_string().parse()), ("s2.Zm9v", Ok(stored)));
        let several =
            Several { calls: vec![Some(1), None, Some(0), Some(1)], sealed: vec![7, 1, 2, 3, u64::MAX] };
        let several = Receipt(Id::MemoryOfSeveral(Box::new(several)));
        assert!(several.to_string().starts_with("m2.01ff0001.0000000000000007"));
        assert_eq!(several.to_string().parse(), Ok(several.clone()));
        assert_eq!(several.to_string().parse::<LeaseId>(), Err(VerbError::BadLeaseId));
        let zeros = "0".repeat(MEMORY_LEN);
        for bad in [
            "",
            "m1.",
            "s1.",
            "s1.a b",
            "s1.\u{e4}",
            "s3.Zm9v",
            "s2.",
            "s2.a b",
            "m2.",
            "m2..",
            "m2.00.",
            &format!("m2.00.{zeros}0"),
            &format!("m2.0.{zeros}"),
            &format!("m2.01.{zeros}"),
            &format!("m2.0001.{zeros}"),
            &format!("m2.00.{zeros}{}", "0".repeat(32)),
            &format!("m2.{}.{zeros}", "00".repeat(CALLS_MAX + 1)),
            "user:42",
            &zeros,
            &format!("m1.{zeros}0"),
        ] {
            assert_eq!(bad.parse::<Receipt>(), Err(VerbError::BadReceipt), "{bad}");
        }
    }

    #[test]
    fn debug_output_hides_most_of_the_text() {
        let lease = LeaseId::of_memory([7, 8, 9]);
        assert!(!format!("{lease:?}").contains(&lease.to_string()));
    }
}
