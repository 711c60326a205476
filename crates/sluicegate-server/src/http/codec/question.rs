//! JSON into a question.

use crate::engine::{RequestError, Target};
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use sluicegate::CALLS_MAX;
use sluicegate::internal::grammar::quoted;
use std::fmt;
use std::marker::PhantomData;

/// What a body says.
pub(in crate::http) struct Asked {
    pub(in crate::http) call: Call,
    pub(in crate::http) max_wait_ms: Option<u64>,
    receipt: Option<String>,
    lease: Option<String>,
    /// Calls that are charged all or nothing.
    pub(in crate::http) checks: Option<Vec<Call>>,
}

/// Who calls, under what, at what cost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Call {
    rule: Option<String>,
    limit: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    pub(in crate::http) cost: Option<u64>,
}

/// Everything that a body may say. Which of it a path takes is the path's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    rule: Option<String>,
    limit: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    cost: Option<u64>,
    max_wait_ms: Option<u64>,
    receipt: Option<String>,
    lease: Option<String>,
    checks: Option<Checks>,
}

/// Who calls, under what.
pub(in crate::http) struct Caller {
    rule: String,
    key: Vec<u8>,
}

impl Body {
    /// Whether it says nothing but this.
    fn only(&self, takes: &[&str], place: &str) -> Result<(), RequestError> {
        let said = [
            ("rule", self.rule.is_some()),
            ("limit", self.limit.is_some()),
            ("key", self.key.is_some()),
            ("key_base64", self.key_base64.is_some()),
            ("cost", self.cost.is_some()),
            ("max_wait_ms", self.max_wait_ms.is_some()),
            ("receipt", self.receipt.is_some()),
            ("lease", self.lease.is_some()),
            ("checks", self.checks.is_some()),
        ];
        match said.iter().find(|(name, is_said)| *is_said && !takes.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                Err(RequestError::new(format!("{place} takes no {name:?}; it takes {}", takes.join(", "))))
            }
        }
    }
}

/// What is written with names, and not as a list of values.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        deserializer.deserialize_map(Named(PhantomData))
    }
}

struct Named<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Named<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object such as {\"rule\":\"reply\",\"key\":\"Harry\"}")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Object<T>, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

impl Asked {
    /// What a body says to a path that takes these fields.
    pub(in crate::http) fn read(body: &[u8], path: &str, takes: &[&str]) -> Result<Asked, RequestError> {
        let Object(body): Object<Body> = serde_json::from_slice(body)
            .map_err(|error| RequestError::new(format!("the body is not what POST {path} takes: {error}")))?;
        body.only(takes, path)?;
        if body.checks.is_some() {
            body.only(&["checks"], "a check of several, beside its list,")?;
        }
        let Body { rule, limit, key, key_base64, cost, max_wait_ms, receipt, lease, checks } = body;
        let call = Call { rule, limit, key, key_base64, cost };
        Ok(Asked { call, max_wait_ms, receipt, lease, checks: checks.map(|checks| checks.0) })
    }

    /// The receipt of a reservation.
    pub(in crate::http) fn receipt(&self) -> Result<&str, RequestError> {
        self.receipt.as_deref().ok_or_else(|| RequestError::new("say which reservation: \"receipt\""))
    }

    /// The lease that is to be renewed or released.
    pub(in crate::http) fn lease(&self) -> Result<&str, RequestError> {
        self.lease.as_deref().ok_or_else(|| RequestError::new("say which lease: \"lease\""))
    }
}

impl Call {
    /// Whom it is about.
    pub(in crate::http) fn caller(&self) -> Result<Caller, RequestError> {
        let rule = match (&self.rule, &self.limit) {
            (Some(rule), None) if rule.contains(' ') => {
                return Err(RequestError::new(format!(
                    "the rule {} is no name; put a limit in \"limit\"",
                    quoted(rule)
                )));
            }
            (None, Some(limit)) if !limit.contains([' ', '/']) => {
                return Err(RequestError::new(format!(
                    "the limit {} is not written like \"sliding-log 5/60s\"; put the name of a rule in \"rule\"",
                    quoted(limit)
                )));
            }
            (Some(rule), None) => rule.clone(),
            (None, Some(limit)) => limit.clone(),
            (Some(_), Some(_)) => return Err(RequestError::new("say \"rule\" or \"limit\", not both")),
            (None, None) => {
                return Err(RequestError::new(
                    "say what to ask: \"rule\", the name of a rule, or \"limit\", like \"sliding-log 5/60s\"",
                ));
            }
        };
        let key = match (&self.key, &self.key_base64) {
            (Some(key), None) => key.clone().into_bytes(),
            (None, Some(key)) => ANY_PADDING.decode(key).map_err(|error| {
                RequestError::new(format!("key_base64 is not base64: {error}; use A-Z a-z 0-9 + / and ="))
            })?,
            (Some(_), Some(_)) => return Err(RequestError::new("say \"key\" or \"key_base64\", not both")),
            (None, None) => {
                return Err(RequestError::new(
                    "say who asks: \"key\", or \"key_base64\" for bytes that are not text",
                ));
            }
        };
        Ok(Caller { rule, key })
    }
}

impl Caller {
    /// As the engine is asked.
    pub(in crate::http) fn target(&self) -> Target<'_> {
        Target { rule: &self.rule, key: &self.key }
    }
}

/// Base64 with its padding or without.
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Calls that are charged all or nothing. More than may be are not even read, and a call holds no calls: so a body asks for
/// no more room than its own length and that of these.
struct Checks(Vec<Call>);

impl<'de> Deserialize<'de> for Checks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Checks, D::Error> {
        struct AtMost;

        impl<'de> Visitor<'de> for AtMost {
            type Value = Checks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of 1 to {CALLS_MAX} checks")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Checks, A::Error> {
                let mut checks = Vec::new();
                while let Some(Object(check)) = list.next_element::<Object<Call>>()? {
                    if checks.len() == CALLS_MAX {
                        return Err(A::Error::custom(format!(
                            "more than {CALLS_MAX} checks; send fewer at once"
                        )));
                    }
                    checks.push(check);
                }
                Ok(Checks(checks))
            }
        }

        deserializer.deserialize_seq(AtMost)
    }
}
