//! Reads the JSON body of a request.
//!
//! A body is read in one pass, without building a tree: unknown fields are skipped, and at most
//! [`CALLS_MAX`] items of a list are kept. So a body needs little more memory than its own length.
//! Errors are in our own words, with the name of the field, its value and what to write instead.

use crate::engine::{RequestError, Target};
use crate::wire::span_of_millis;
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::de::{DeserializeSeed, Deserializer, Error as DeError, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use sluicegate::internal::grammar::{self, quoted};
use sluicegate::{CALLS_MAX, ReserveOptions, Span, Ttl};
use std::{fmt, slice};

/// The body of a request.
pub(in crate::http) struct RequestBody {
    pub(in crate::http) call: CallBody,
    pub(in crate::http) max_wait_ms: Option<u64>,
    at_least: Option<u64>,
    ttl_ms: Option<u64>,
    then: Option<String>,
    costs: Option<Vec<u64>>,
    receipt: Option<String>,
    lease: Option<String>,
    /// Calls that are charged all or nothing.
    pub(in crate::http) checks: Option<Vec<CallBody>>,
}

/// A rule, a key and a cost, as a body names them.
pub(in crate::http) struct CallBody {
    rule: Option<String>,
    limit: Option<String>,
    key: Option<String>,
    key_base64: Option<String>,
    pub(in crate::http) cost: Option<u64>,
}

/// A rule and a key, decoded.
pub(in crate::http) struct OwnedTarget {
    rule: String,
    key: Vec<u8>,
}

impl RequestBody {
    /// Reads the body of a POST to a path that takes these fields: alone, and with `checks`.
    pub(in crate::http) fn read(
        body: &[u8],
        path: &str,
        (takes, with_checks): (&[&'static str], &[&'static str]),
    ) -> Result<RequestBody, RequestError> {
        let mut object = Json::parse(body)?.object("the body")?;
        object.takes(takes, &format!("POST {path}"))?;
        let checks = match object.take("checks") {
            None => None,
            Some(checks) => {
                object.takes(with_checks, "a request with \"checks\"")?;
                Some(checks.list("checks")?)
            }
        };
        let checks = checks.map(|checks| checks.into_iter().enumerate().map(CallBody::read_check).collect());
        Ok(RequestBody {
            max_wait_ms: object.number("max_wait_ms")?,
            at_least: object.number("at_least")?,
            ttl_ms: object.number("ttl_ms")?,
            then: object.text("then")?,
            costs: object.numbers("costs")?,
            receipt: object.text("receipt")?,
            lease: object.text("lease")?,
            call: CallBody::read(object)?,
            checks: checks.transpose()?,
        })
    }

    /// The receipt of a reservation.
    pub(in crate::http) fn receipt(&self) -> Result<&str, RequestError> {
        let missing = "\"receipt\" is missing; send the receipt of the reservation";
        self.receipt.as_deref().ok_or_else(|| RequestError::new(missing))
    }

    /// The numbers for the calls of a receipt; `what` they are, for an error.
    pub(in crate::http) fn costs(&self, what: &str) -> Result<&[u64], RequestError> {
        match (&self.call.cost, &self.costs) {
            (Some(cost), None) => Ok(slice::from_ref(cost)),
            (None, Some(costs)) => Ok(costs),
            (Some(_), Some(_)) => Err(RequestError::new("\"cost\" and \"costs\" are both set; send one")),
            (None, None) => Err(RequestError::new(format!(
                "\"cost\" is missing; send {what}, or \"costs\" with one number for each call"
            ))),
        }
    }

    /// The TTL of a receipt.
    pub(in crate::http) fn ttl(&self) -> Option<Span> {
        self.ttl_ms.map(span_of_millis)
    }

    /// What a reservation accepts and asks for.
    pub(in crate::http) fn reserve_options(&self) -> Result<ReserveOptions, RequestError> {
        if self.at_least.is_some() && self.max_wait_ms.is_some() {
            return Err(RequestError::new(
                "\"at_least\" and \"max_wait_ms\" are both set; send one: a partial grant never waits",
            ));
        }
        let mut options = ReserveOptions::default();
        options.max_wait = span_of_millis(self.max_wait_ms.unwrap_or(0));
        options.at_least = self.at_least;
        options.ttl = match (self.ttl(), self.then.as_deref()) {
            (None, None) => None,
            (None, Some(_)) => {
                return Err(RequestError::new("\"then\" is set without \"ttl_ms\"; send both"));
            }
            (Some(ttl), None | Some("keep")) => Some(Ttl::keep(ttl)),
            (Some(ttl), Some("cancel")) => Some(Ttl::cancel(ttl)),
            (Some(_), Some(then)) => {
                let then = quoted(then);
                return Err(RequestError::new(format!("\"then\" is {then}; use \"keep\" or \"cancel\"")));
            }
        };
        Ok(options)
    }

    /// The lease to renew or release.
    pub(in crate::http) fn lease(&self) -> Result<&str, RequestError> {
        let missing = "\"lease\" is missing; send the lease that /v1/acquire returned";
        self.lease.as_deref().ok_or_else(|| RequestError::new(missing))
    }
}

impl CallBody {
    fn read(mut object: Object) -> Result<CallBody, RequestError> {
        Ok(CallBody {
            rule: object.text("rule")?,
            limit: object.text("limit")?,
            key: object.text("key")?,
            key_base64: object.text("key_base64")?,
            cost: object.number("cost")?,
        })
    }

    fn read_check((index, check): (usize, Json)) -> Result<CallBody, RequestError> {
        let name = format!("checks[{index}]");
        let object = check.object(&name)?;
        object.takes(&["rule", "limit", "key", "key_base64", "cost"], &name)?;
        CallBody::read(object)
    }

    /// The rule, or inline limit, and the key.
    pub(in crate::http) fn target(&self) -> Result<OwnedTarget, RequestError> {
        let rule = match (&self.rule, &self.limit) {
            (Some(rule), None) if rule.contains(' ') => {
                return Err(RequestError::new(format!(
                    "\"rule\" is {}, which is not a rule name; put a limit into \"limit\"",
                    quoted(rule)
                )));
            }
            (None, Some(limit)) if !limit.contains([' ', '/']) => {
                return Err(RequestError::new(format!(
                    "\"limit\" is {}, which is not a limit such as \"sliding-log 5/60s\"; put a rule name into \"rule\"",
                    quoted(limit)
                )));
            }
            (Some(rule), None) => rule.clone(),
            (None, Some(limit)) => limit.clone(),
            (Some(_), Some(_)) => {
                return Err(RequestError::new("\"rule\" and \"limit\" are both set; send one"));
            }
            (None, None) => {
                return Err(RequestError::new(
                    "\"rule\" is missing; send the name of a rule, or \"limit\" with a limit such as \"sliding-log 5/60s\"",
                ));
            }
        };
        let key = match (&self.key, &self.key_base64) {
            (Some(key), None) => key.clone().into_bytes(),
            (None, Some(key)) => ANY_PADDING.decode(key).map_err(|_| {
                RequestError::new(format!(
                    "\"key_base64\" is {}, which is not base64; use A-Z a-z 0-9 + / and =",
                    quoted(key)
                ))
            })?,
            (Some(_), Some(_)) => {
                return Err(RequestError::new("\"key\" and \"key_base64\" are both set; send one"));
            }
            (None, None) => {
                return Err(RequestError::new(
                    "\"key\" is missing; send it, or \"key_base64\" for bytes that are not text",
                ));
            }
        };
        Ok(OwnedTarget { rule, key })
    }
}

impl OwnedTarget {
    /// The target as the engine takes it.
    pub(in crate::http) fn as_target(&self) -> Target<'_> {
        Target { rule: &self.rule, key: &self.key }
    }
}

/// Base64, padded or not.
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Every field that a body may have.
const NAMES: [&str; 13] = [
    "rule",
    "limit",
    "key",
    "key_base64",
    "cost",
    "max_wait_ms",
    "receipt",
    "lease",
    "checks",
    "at_least",
    "ttl_ms",
    "then",
    "costs",
];

/// A JSON value, as far as bodies need it.
enum Json {
    Null,
    Text(String),
    Number(u64),
    /// Any other value, as an error shows it.
    Other(String),
    Object(Box<Object>),
    List(Vec<Json>),
    /// A list of more than [`CALLS_MAX`] values.
    TooLongList,
}

/// The fields of an object.
#[derive(Default)]
struct Object {
    values: [Option<Json>; NAMES.len()],
    /// The first field that no body has.
    unknown: Option<String>,
    /// The first field that occurs twice.
    repeated: Option<&'static str>,
}

impl Json {
    fn parse(body: &[u8]) -> Result<Json, RequestError> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let value = Level::Body.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
        value.map_err(|error| {
            let problem = match error.classify() {
                Category::Eof => "the body is incomplete JSON".to_owned(),
                _ => {
                    format!("the body is not valid JSON at line {}, column {}", error.line(), error.column())
                }
            };
            RequestError::new(format!("{problem}; send an object such as {EXAMPLE}"))
        })
    }

    fn object(self, name: &str) -> Result<Object, RequestError> {
        match self {
            Json::Object(object) => Ok(*object),
            other => {
                let problem = format!("{name} is {}, not an object", other.shown());
                Err(RequestError::new(format!("{problem}; send one such as {EXAMPLE}")))
            }
        }
    }

    fn list(self, name: &str) -> Result<Vec<Json>, RequestError> {
        match self {
            Json::List(list) => Ok(list),
            Json::TooLongList => Err(RequestError::new(format!(
                "\"{name}\" has more than {CALLS_MAX} items; split them into several requests"
            ))),
            other => Err(RequestError::new(format!(
                "\"{name}\" is {}, not a list; send 1 to {CALLS_MAX} {name} in brackets",
                other.shown()
            ))),
        }
    }

    fn number(self, name: &str) -> Result<u64, RequestError> {
        match self {
            Json::Number(number) => Ok(number),
            Json::Text(text) => Err(RequestError::new(format!(
                "\"{name}\" is the string {}; write a whole number without quotes",
                quoted(&text)
            ))),
            other => Err(RequestError::new(format!(
                "\"{name}\" is {}; use a whole number of at least 0",
                other.shown()
            ))),
        }
    }

    fn shown(&self) -> String {
        match self {
            Json::Null => "null".to_owned(),
            Json::Text(text) => quoted(text),
            Json::Number(number) => number.to_string(),
            Json::Other(shown) => shown.clone(),
            Json::Object(_) => "an object".to_owned(),
            Json::List(_) | Json::TooLongList => "a list".to_owned(),
        }
    }
}

/// An object that every path with a key takes.
const EXAMPLE: &str = "{\"rule\":\"reply\",\"key\":\"user:42\"}";

impl Object {
    /// Checks that there are no fields but these; `owner` takes them.
    fn takes(&self, takes: &[&'static str], owner: &str) -> Result<(), RequestError> {
        let other =
            NAMES.iter().zip(&self.values).find(|(name, value)| value.is_some() && !takes.contains(name));
        if let Some(name) = self.unknown.as_deref().or(other.map(|(name, _)| *name)) {
            let next_step = match grammar::nearest(name, takes.iter().copied()) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("it takes {}", takes.join(", ")),
            };
            return Err(RequestError::new(format!("{owner} does not take {}; {next_step}", quoted(name))));
        }
        match self.repeated {
            None => Ok(()),
            Some(name) => Err(RequestError::new(format!("\"{name}\" is given twice; keep one of them"))),
        }
    }

    /// Removes the value of a field. A field that is null counts as absent.
    fn take(&mut self, name: &str) -> Option<Json> {
        let index = NAMES.iter().position(|known| *known == name)?;
        self.values[index].take().filter(|value| !matches!(value, Json::Null))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::Text(text)) => Ok(Some(text)),
            Some(other) => {
                let what = name.replace('_', " ");
                let shown = other.shown();
                Err(RequestError::new(format!(
                    "\"{name}\" is {shown}, not a string; write the {what} as a string"
                )))
            }
        }
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, RequestError> {
        self.take(name).map(|value| value.number(name)).transpose()
    }

    fn numbers(&mut self, name: &str) -> Result<Option<Vec<u64>>, RequestError> {
        let Some(list) = self.take(name) else { return Ok(None) };
        let numbers = list.list(name)?.into_iter().enumerate();
        numbers
            .map(|(index, number)| number.number(&format!("{name}[{index}]")))
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// Where in a body a value is. Lists and objects are read where they belong, and skipped elsewhere:
/// so values do not nest, whatever a client sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Body,
    /// The value of `checks`.
    Checks,
    /// An item of `checks`.
    Check,
    /// The value of `costs`.
    Costs,
    /// The value of any other field, or an item of `costs`.
    Field,
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E: DeError>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Other(value.to_string()))
    }

    fn visit_u64<E: DeError>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_i64<E: DeError>(self, value: i64) -> Result<Json, E> {
        Ok(u64::try_from(value).map_or_else(|_| Json::Other(value.to_string()), Json::Number))
    }

    fn visit_f64<E: DeError>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Other(value.to_string()))
    }

    fn visit_str<E: DeError>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E: DeError>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_unit<E: DeError>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let of_items = match self {
            Level::Checks => Level::Check,
            Level::Costs => Level::Field,
            Level::Body | Level::Check | Level::Field => {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Json::Other("a list".to_owned()));
            }
        };
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(of_items)? {
            if items.len() == CALLS_MAX {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Json::TooLongList);
            }
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Json, M::Error> {
        if !matches!(self, Level::Body | Level::Check) {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Json::Other("an object".to_owned()));
        }
        let mut object = Object::default();
        while let Some(name) = map.next_key::<String>()? {
            let Some(index) = NAMES.iter().position(|known| *known == name) else {
                map.next_value::<IgnoredAny>()?;
                object.unknown.get_or_insert(name);
                continue;
            };
            let value = map.next_value_seed(match name.as_str() {
                "checks" if self == Level::Body => Level::Checks,
                "costs" if self == Level::Body => Level::Costs,
                _ => Level::Field,
            })?;
            if object.values[index].replace(value).is_some() {
                object.repeated.get_or_insert(NAMES[index]);
            }
        }
        Ok(Json::Object(Box::new(object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field_the_value_and_the_next_step() {
        let takes: (&[_], &[_]) = (&["rule", "key", "cost", "checks", "costs"], &["checks"]);
        for (body, expected) in [
            ("", "the body is incomplete JSON; send an object such as {"),
            ("{\"rule\":\"a\"", "the body is incomplete JSON; send an object such as {"),
            ("{\"rule\":a}", "the body is not valid JSON at line 1, column 9; send an object such as {"),
            ("{} {}", "the body is not valid JSON at line 1, column 4; send an object such as {"),
            ("[]", "the body is a list, not an object; send one such as {"),
            ("42", "the body is 42, not an object; send one such as {"),
            ("{\"key\":42}", "\"key\" is 42, not a string; write the key as a string"),
            ("{\"key\":[1,{}]}", "\"key\" is a list, not a string; write the key as a string"),
            ("{\"cost\":\"2\"}", "\"cost\" is the string \"2\"; write a whole number without quotes"),
            ("{\"cost\":-1}", "\"cost\" is -1; use a whole number of at least 0"),
            ("{\"cost\":1.5}", "\"cost\" is 1.5; use a whole number of at least 0"),
            ("{\"cost\":1,\"cost\":2}", "\"cost\" is given twice; keep one of them"),
            ("{\"ruel\":\"a\"}", "POST /v1/x does not take \"ruel\"; did you mean \"rule\"?"),
            (
                "{\"lease\":\"a\"}",
                "POST /v1/x does not take \"lease\"; it takes rule, key, cost, checks, costs",
            ),
            ("{\"checks\":{}}", "\"checks\" is an object, not a list; send 1 to 64 checks in brackets"),
            ("{\"costs\":1}", "\"costs\" is 1, not a list; send 1 to 64 costs in brackets"),
            ("{\"costs\":[1,{}]}", "\"costs[1]\" is an object; use a whole number of at least 0"),
            ("{\"costs\":[1,\"2\"]}", "\"costs[1]\" is the string \"2\"; write a whole number without"),
            ("{\"checks\":[1]}", "checks[0] is 1, not an object; send one such as {"),
            ("{\"checks\":[{\"checks\":[]}]}", "checks[0] does not take \"checks\"; it takes rule,"),
            (
                "{\"checks\":[],\"key\":\"a\"}",
                "a request with \"checks\" does not take \"key\"; it takes checks",
            ),
        ] {
            let error =
                RequestBody::read(body.as_bytes(), "/v1/x", takes).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.starts_with(expected)), "{body}: {error:?}");
        }
    }

    #[test]
    fn null_counts_as_absent() {
        let body =
            RequestBody::read(b"{\"key\":\"a\",\"cost\":null}", "/v1/x", (&["key", "cost"], &[])).unwrap();
        assert_eq!((body.call.key.as_deref(), body.call.cost), (Some("a"), None));
    }
}
