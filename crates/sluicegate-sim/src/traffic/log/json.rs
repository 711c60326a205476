//! Logs in JSON lines: one object a line.
//!
//! Only the requested fields are parsed; the others are validated as JSON and skipped.

use super::moment::Moments;
use super::{Fields, Problem, Row, cost};
use crate::values::shown;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;

/// Where the key `ip` is looked for, in this order: nginx, Caddy, Traefik and others each have a
/// name of their own.
pub const IP_FIELDS: [&str; 7] =
    ["ip", "remote_addr", "remote_ip", "client_ip", "clientip", "ClientHost", "request.remote_ip"];
/// Where the time is looked for, in this order, unless its field is named.
pub const TIME_FIELDS: [&str; 11] = [
    "time",
    "ts",
    "timestamp",
    "@timestamp",
    "time_iso8601",
    "time_local",
    "msec",
    "start_time",
    "StartUTC",
    "date",
    "datetime",
];

/// Reads lines.
#[derive(Debug)]
pub(super) struct Json {
    names: Names,
    keys: Vec<Source>,
    time: Source,
    cost: Option<Source>,
    moments: Moments,
}

/// Where a value is looked for: at the first of these places that there is.
#[derive(Debug)]
struct Source {
    /// As it was asked for; empty if it was not.
    name: String,
    places: Vec<Place>,
}

/// A name in the object of the line, by its place in [`Names`], and if it is a path, the one name
/// that matters in each of the objects below.
#[derive(Debug)]
struct Place {
    top: usize,
    below: Vec<Names>,
}

/// The names of an object that matter, each once.
#[derive(Debug)]
struct Names {
    names: Vec<String>,
    /// Whether there is a name with that [`hint`]. Most names in a log have none, and need not be
    /// compared.
    hints: [bool; 256],
}

/// The values of these names as they are written, the last one of several. Most often none of it is
/// on the heap.
type Found<'a> = SmallVec<[Option<&'a str>; 24]>;

impl Json {
    /// Reads these fields.
    pub(super) fn new(fields: &Fields) -> Json {
        let mut names = Names::new();
        let keys = fields.key.iter().map(|name| match name.as_str() {
            "ip" => names.source("ip", &IP_FIELDS),
            name => names.source(name, &[name]),
        });
        let keys = keys.collect();
        let time = match &fields.time {
            Some(name) => names.source(name, &[name]),
            None => names.source("", &TIME_FIELDS),
        };
        let cost = fields.cost.as_ref().map(|name| names.source(name, &[name]));
        Json { names, keys, time, cost, moments: Moments::default() }
    }

    /// Returns `true` if this is a line of such a log.
    pub(super) fn recognises(line: &[u8]) -> bool {
        line.trim_ascii_start().first() == Some(&b'{') && object(line, &Names::new(), &mut []).is_ok()
    }

    /// Puts what is asked for into `row`.
    pub(super) fn read(&mut self, line: &[u8], row: &mut Row) -> Result<(), Problem> {
        let mut found = Found::from_elem(None, self.names.names.len());
        object(line, &self.names, &mut found)?;
        let time = self.time.value(&found).and_then(text).map_err(|fault| fault.of_time(&self.time.name))?;
        row.at = self.moments.read(time.as_bytes())?;
        for key in &self.keys {
            let value = key.value(&found).and_then(text).map_err(|fault| fault.of_key(&key.name))?;
            row.add_key(value.as_bytes());
        }
        if let Some(source) = &self.cost {
            let value = source.value(&found).and_then(text).map_err(|fault| fault.of_cost(&source.name))?;
            row.cost = cost(&source.name, value.as_bytes())?;
        }
        Ok(())
    }
}

impl Names {
    fn new() -> Names {
        Names { names: Vec::new(), hints: [false; 256] }
    }

    fn only(name: &str) -> Names {
        let mut names = Names::new();
        names.place(name);
        names
    }

    /// A source that looks for each of `fields` first by its whole name and then, if it has dots,
    /// as a path.
    fn source(&mut self, name: &str, fields: &[&str]) -> Source {
        let mut places = Vec::new();
        for field in fields {
            places.push(Place { top: self.place(field), below: Vec::new() });
            if let Some((top, below)) = field.split_once('.') {
                let below = below.split('.').map(Names::only).collect();
                places.push(Place { top: self.place(top), below });
            }
        }
        Source { name: name.to_owned(), places }
    }

    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.find(name) {
            return place;
        }
        if let Some(is_there) = self.hints.get_mut(hint(name)) {
            *is_there = true;
        }
        self.names.push(name.to_owned());
        self.names.len() - 1
    }

    fn find(&self, name: &str) -> Option<usize> {
        let is_there = self.hints.get(hint(name)).is_some_and(|is_there| *is_there);
        is_there.then(|| self.names.iter().position(|known| known == name)).flatten()
    }
}

/// A number below 256 made of the length and the first letter, in which few names agree.
fn hint(name: &str) -> usize {
    let first = name.as_bytes().first().copied().unwrap_or_default();
    (name.len() * 32 + usize::from(first)) % 256
}

impl Source {
    /// The value as it is written.
    fn value<'a>(&self, found: &[Option<&'a str>]) -> Result<&'a str, Fault> {
        let value = |place: &Place| {
            let top = found.get(place.top).copied().flatten()?;
            place.below.iter().try_fold(top, |value, name| member(value, name))
        };
        let mut found = self.places.iter().filter_map(value);
        // Null is as good as missing as long as there is another place to look at.
        let first = found.next().ok_or(Fault::Missing)?;
        Ok(if first == "null" { found.find(|value| *value != "null").unwrap_or(first) } else { first })
    }
}

/// The value of the one name that matters, out of an object if it is one.
fn member<'a>(value: &'a str, name: &Names) -> Option<&'a str> {
    let is_object = value.starts_with('{');
    let mut found = [None];
    is_object.then(|| members(value, name, &mut found).ok()).flatten()?;
    found[0]
}

/// Why there is no value.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Missing,
    /// What it is instead of a text, a number or a truth.
    Is(&'static str),
}

impl Fault {
    fn of_time(self, name: &str) -> Problem {
        let what = match self {
            Fault::Missing if name.is_empty() => {
                "there is no field with the time, such as time, ts or timestamp".to_owned()
            }
            _ if name.is_empty() => self.of("with the time"),
            _ => self.of(&shown(name.as_bytes())),
        };
        Problem { what, advice: "name the field that has it with --time" }
    }

    fn of_key(self, name: &str) -> Problem {
        let what = match (self, name) {
            (Fault::Missing, "ip") => {
                "there is no field \"ip\", remote_addr or another that is known to have it".to_owned()
            }
            _ => self.of(&shown(name.as_bytes())),
        };
        Problem { what, advice: "name a field that every line has with --key" }
    }

    fn of_cost(self, name: &str) -> Problem {
        Problem {
            what: self.of(&shown(name.as_bytes())),
            advice: "name a field with a whole number with --cost",
        }
    }

    fn of(self, field: &str) -> String {
        match self {
            Fault::Missing => format!("there is no field {field}"),
            Fault::Is(what) => format!("the field {field} is {what}"),
        }
    }
}

/// A value that is a text, unescaped, or a number or a truth, as it is written.
fn text(value: &str) -> Result<Cow<'_, str>, Fault> {
    match value.as_bytes() {
        [b'"', .., b'"'] if !value.contains('\\') => {
            Ok(Cow::Borrowed(value.get(1..value.len() - 1).unwrap_or_default()))
        }
        [b'"', ..] => {
            serde_json::from_str(value).map(Cow::Owned).map_err(|_| Fault::Is("a text with half a character"))
        }
        [b'{', ..] => Err(Fault::Is("an object")),
        [b'[', ..] => Err(Fault::Is("an array")),
        [b'n', ..] => Err(Fault::Is("null")),
        _ => Ok(Cow::Borrowed(value)),
    }
}

/// Finds the values of these names in the object that a line is.
fn object<'a>(line: &'a [u8], names: &Names, found: &mut [Option<&'a str>]) -> Result<(), Problem> {
    // Checked for the whole line at once, which is much faster than text by text.
    let line = std::str::from_utf8(line).map_err(|error| Problem {
        what: format!("byte {} is not UTF-8 in {}", error.valid_up_to() + 1, shown(line)),
        advice: "write JSON in UTF-8",
    })?;
    members(line, names, found).map_err(|error| {
        let what = if line.trim_ascii_start().starts_with('{') {
            format!("the JSON is broken at byte {} in {}", error.column(), shown(line.as_bytes()))
        } else {
            format!("there is no JSON object in {}", shown(line.as_bytes()))
        };
        Problem { what, advice: "write one object a line" }
    })
}

/// Finds the values of these names in an object.
fn members<'a>(
    object: &'a str,
    names: &Names,
    found: &mut [Option<&'a str>],
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(object);
    json.deserialize_map(Members { names, found })?;
    json.end()
}

/// Takes from an object what has one of these names.
struct Members<'n, 'de> {
    names: &'n Names,
    found: &'n mut [Option<&'de str>],
}

impl<'de> Visitor<'de> for Members<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(Name(self.names))? {
            match name.and_then(|place| self.found.get_mut(place)) {
                Some(value) => *value = Some(map.next_value::<&RawValue>()?.get()),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Finds the place of a name, without making a text of it.
struct Name<'n>(&'n Names);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Option<usize>, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.find(name))
    }
}
