//! The rules of a file.

use super::file::field;
use super::problem::Found;
use super::settings::{LOCAL_SHARE, ON_FAILURE, on_failure};
use super::value::{Given, shown};
use crate::engine::{INLINE, KeySpec, OnStoreFailure, RuleSpec, grants_leases, of_another_kind};
use sluicegate::internal::grammar::{self, SyntaxError, quoted};
use sluicegate::{Limit, Limiter};
use std::collections::HashMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

const FIELDS: &[&str] = &["name", "limit", "on_store_failure", "local_share", "shadow", "keys"];

/// The rules, as far as they are right.
pub(super) fn read(tables: &DeArray<'_>, found: &mut Found<'_>) -> Vec<RuleSpec> {
    let mut rules = Vec::new();
    let mut names: HashMap<String, Range<usize>> = HashMap::new();
    for table in tables {
        let DeValue::Table(fields) = table.get_ref() else {
            found.wrong(
                table.span(),
                format!("{} is not a rule; begin each with [[rule]]", shown(table.get_ref())),
            );
            continue;
        };
        let mut reader = Reader { found, rule: "rule".to_owned() };
        if let Some((rule, place)) = reader.rule(fields, table.span()) {
            if let Some(first) = names.get(&rule.name) {
                let line = found.line(first);
                let name = quoted(&rule.name);
                found.wrong(
                    place,
                    format!("a rule in line {line} is called {name} too; give one another name"),
                );
            } else {
                names.insert(rule.name.clone(), place);
            }
            rules.push(rule);
        }
    }
    rules
}

struct Reader<'a, 'f> {
    found: &'a mut Found<'f>,
    /// What the rule is called in messages.
    rule: String,
}

impl Reader<'_, '_> {
    /// A rule, and where its name is.
    fn rule(&mut self, table: &DeTable<'_>, span: Range<usize>) -> Option<(RuleSpec, Range<usize>)> {
        let value = |wanted| table.iter().find(|(name, _)| name.get_ref() == wanted).map(|(_, value)| value);
        let name = if let Some(value) = value("name") {
            self.take(value, "name", |given| name(given.text()?))
        } else {
            self.wrong(span.clone(), "it has no name; add one such as name = \"reply\"");
            None
        };
        if let Some(name) = &name {
            self.rule = format!("rule {name}");
        }
        for (field_name, _) in table {
            if let Err(mistake) = field(field_name, FIELDS) {
                self.wrong(field_name.span(), mistake);
            }
        }
        let limits = if let Some(value) = value("limit") {
            self.limits(value)
        } else {
            self.wrong(span, "it has no limit; add one such as limit = \"sliding-log 5/60s\"");
            None
        };
        let on_store_failure = value("on_store_failure")
            .and_then(|value| self.take(value, "on_store_failure", on_store_failure));
        let local_share = value("local_share").and_then(|value| self.take(value, "local_share", local_share));
        let shadow = value("shadow").and_then(|value| self.take(value, "shadow", Given::yes_no));
        let keys = value("keys").map(|value| self.keys(value, limits.as_deref())).unwrap_or_default();
        let place = value("name")?.span();
        let rule = RuleSpec {
            name: name?.to_owned(),
            limits: limits?,
            shadow: shadow.unwrap_or(false),
            on_store_failure,
            local_share,
            keys,
        };
        Some((rule, place))
    }

    fn wrong(&mut self, span: Range<usize>, says: impl std::fmt::Display) {
        let says = format!("{}: {says}", self.rule);
        self.found.wrong(span, says);
    }

    /// The value of a field, if it is right.
    fn take<'v, T>(
        &mut self,
        value: &'v Spanned<DeValue<'v>>,
        field: &str,
        read: impl FnOnce(&Given<'v>) -> Result<T, SyntaxError>,
    ) -> Option<T> {
        read(&Given::File(value.get_ref()))
            .map_err(|mistake| self.wrong(value.span(), format!("{field}: {mistake}")))
            .ok()
    }

    /// A text, `A` or `A + B`, or an array of texts.
    fn limits(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<Limit>> {
        let limits = match value.get_ref() {
            DeValue::Array(texts) => {
                // Every text is read, so that all errors are reported at once.
                let limits: Vec<Option<Vec<Limit>>> = texts.iter().map(|text| self.list(text)).collect();
                limits.into_iter().collect::<Option<Vec<_>>>()?.concat()
            }
            _ => self.list(value)?,
        };
        let checked = grants_leases(&limits).map_err(|mistake| mistake.to_string()).and_then(|lends| {
            // Whether those that decide checks go together is asked of the library, with hardly any memory.
            let made = (!lends).then(|| Limiter::builder(&limits).max_keys(1).build());
            made.transpose().map(|_| ()).map_err(|error| error.to_string())
        });
        match checked {
            Ok(()) => Some(limits),
            Err(says) => {
                self.wrong(value.span(), says);
                None
            }
        }
    }

    fn list(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<Limit>> {
        let DeValue::String(text) = value.get_ref() else {
            let says = format!(
                "{} is not a limit; write it in quotes, such as \"sliding-log 5/60s\"",
                shown(value.get_ref())
            );
            self.wrong(value.span(), says);
            return None;
        };
        Limit::parse_list(text).map_err(|error| self.wrong(value.span(), error)).ok()
    }

    /// The limits of one key, which are of the rule's kind.
    fn exception(&mut self, value: &Spanned<DeValue<'_>>, of_rule: Option<&[Limit]>) -> Option<Vec<Limit>> {
        let limits = self.limits(value)?;
        match of_rule.and_then(|of_rule| of_another_kind(of_rule, &limits)) {
            None => Some(limits),
            Some(mistake) => {
                self.wrong(value.span(), mistake);
                None
            }
        }
    }

    /// Exceptions by key.
    fn keys(&mut self, value: &Spanned<DeValue<'_>>, of_rule: Option<&[Limit]>) -> Vec<(Vec<u8>, KeySpec)> {
        let DeValue::Table(keys) = value.get_ref() else {
            let says = format!("keys is {}, not a table; write [rule.keys]", shown(value.get_ref()));
            self.wrong(value.span(), says);
            return Vec::new();
        };
        let mut exceptions = Vec::with_capacity(keys.len());
        for (key, value) in keys {
            let says = match value.get_ref() {
                DeValue::String(word) if word == "unlimited" => Some(KeySpec::Unlimited),
                DeValue::String(word) if word == "blocked" => Some(KeySpec::Blocked),
                DeValue::String(word) if !word.contains([' ', '/']) => {
                    let says = format!(
                        "{} is not what a key can have; use \"unlimited\", \"blocked\" or a limit such as \"sliding-log 5/60s\"",
                        quoted(word)
                    );
                    self.wrong(value.span(), says);
                    None
                }
                _ => self.exception(value, of_rule).map(KeySpec::Limits),
            };
            exceptions.extend(says.map(|says| (key.get_ref().as_bytes().to_vec(), says)));
        }
        exceptions
    }
}

/// The name of a rule. A limit has a space, so that the two are never taken for each other.
fn name(text: &str) -> Result<&str, SyntaxError> {
    if text == INLINE {
        let problem = format!("{} is what metrics and headers call limits that callers bring", quoted(text));
        return Err(SyntaxError::new(problem, "give the rule another name"));
    }
    let good = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    if !text.is_empty() && text.chars().all(good) {
        return Ok(text);
    }
    let problem = format!("{} is not a name for a rule", quoted(text));
    Err(SyntaxError::new(problem, "use the letters A-Z a-z 0-9 _ . : -"))
}

fn on_store_failure(given: &Given<'_>) -> Result<OnStoreFailure, SyntaxError> {
    Ok(on_failure(grammar::name("word", given.text()?, ON_FAILURE)?))
}

fn local_share(given: &Given<'_>) -> Result<u32, SyntaxError> {
    Ok(u32::try_from(given.number(&LOCAL_SHARE)?).unwrap_or(u32::MAX))
}
