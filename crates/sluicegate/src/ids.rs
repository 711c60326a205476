//! Receipts and lease ids: opaque text that identifies a reservation or a lease.
//!
//! ```text
//! m1.3f2a…  in this process's memory: a version, and three sealed words for their limiter
//! s1.Zm9v…  in a shared store: a version, and whatever that store wrote, in URL-safe base64
//! ```
//!
//! Both kinds are one type, so that code need not know which store a receipt or a lease belongs to.
//! The version distinguishes later formats: text of an unknown version is rejected.

use std::fmt;
use std::str::FromStr;

/// The prefix of ids in memory, and the length of the rest: three 64-bit words in hexadecimal.
const MEMORY: &str = "m1.";
const MEMORY_LEN: usize = 48;
/// The prefix of ids in a shared store.
const STORE: &str = "s1.";

#[derive(Clone, PartialEq, Eq, Hash)]
enum Id {
    Memory([u64; 3]),
    /// The text after the prefix.
    Store(Box<str>),
}

impl Id {
    fn read(text: &str) -> Option<Id> {
        if let Some(digits) = text.strip_prefix(MEMORY) {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            if digits.len() != MEMORY_LEN || !digits.bytes().all(is_digit) {
                return None;
            }
            let word = |from: usize| u64::from_str_radix(digits.get(from..from + 16)?, 16).ok();
            return Some(Id::Memory([word(0)?, word(16)?, word(32)?]));
        }
        let base64 = text.strip_prefix(STORE)?;
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (!base64.is_empty() && base64.bytes().all(is_base64)).then(|| Id::Store(base64.into()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Memory([first, second, third]) => write!(f, "{MEMORY}{first:016x}{second:016x}{third:016x}"),
            Id::Store(base64) => write!(f, "{STORE}{base64}"),
        }
    }
}

macro_rules! id {
    ($(#[$docs:meta])* $name:ident, $(#[$bad_docs:meta])* $bad:ident: $says:literal) => {
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
                    Id::Memory(_) => None,
                    Id::Store(base64) => Some(base64),
                }
            }

            /// Returns `true` if the id belongs to a process's memory, not to a shared store.
            pub fn is_of_memory(&self) -> bool {
                matches!(self.0, Id::Memory(_))
            }

            /// The words that memory sealed. The id of a shared store reads as nonsense, which no
            /// memory knows.
            pub(crate) fn sealed(&self) -> [u64; 3] {
                match self.0 {
                    Id::Memory(sealed) => sealed,
                    Id::Store(_) => [0; 3],
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
            type Err = $bad;

            fn from_str(text: &str) -> Result<$name, $bad> {
                Id::read(text).map($name).ok_or($bad)
            }
        }

        $(#[$bad_docs])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $bad;

        impl fmt::Display for $bad {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($says)
            }
        }

        impl std::error::Error for $bad {}
    };
}

id! {
    /// Identifies a reservation, for one cancel or settle. As text it can be passed on and parsed
    /// again.
    ///
    /// It is kept until its cost no longer counts, and for at least an hour.
    Receipt,
    /// The text is not a receipt.
    BadReceipt: "not a receipt; pass the text from the reservation unchanged"
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
    /// The text is not the id of a lease.
    BadLeaseId: "not a lease id; pass the text from the acquire unchanged"
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
        let zeros = "0".repeat(MEMORY_LEN);
        for bad in [
            "",
            "m1.",
            "s1.",
            "s1.a b",
            "s1.\u{e4}",
            "s2.Zm9v",
            "m2.",
            "user:42",
            &zeros,
            &format!("m1.{zeros}0"),
        ] {
            assert_eq!(bad.parse::<Receipt>(), Err(BadReceipt), "{bad}");
        }
    }

    #[test]
    fn debug_output_hides_most_of_the_text() {
        let lease = LeaseId::of_memory([7, 8, 9]);
        assert!(!format!("{lease:?}").contains(&lease.to_string()));
    }
}
