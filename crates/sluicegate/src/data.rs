//! Limits, answers, receipts and leases as data, with the feature `serde`.
//!
//! A [`Limit`], a [`Receipt`] and a [`LeaseId`] are their text. A [`Source`] is its word, and an
//! [`Answer`] is `{"decision": {...}, "source": "store"}`.

use crate::answer::{Answer, Source};
use crate::ids::{LeaseId, Receipt};
use crate::limit::Limit;
use serde::de::Error as _;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

macro_rules! as_text {
    ($($type:ty)*) => {
        $(
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                    <Cow<'_, str>>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
                }
            }
        )*
    };
}

as_text!(Limit Receipt LeaseId);

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut answer = serializer.serialize_struct("Answer", 2)?;
        answer.serialize_field("decision", &self.decision())?;
        answer.serialize_field("source", &self.source())?;
        answer.end()
    }
}
