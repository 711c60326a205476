//! The rules of a configuration file.

use super::error::Diagnostics;
use super::file::field;
use super::settings::{LOCAL_SHARE, ON_FAILURE, on_failure};
use super::value::{Given, shown};
use crate::engine::{
    KeySpec, OnStoreFailure, RuleSpec, SHARE_DEFAULT, exception_mismatch, grants_leases, reserved_name,
};
use sluicegate::internal::grammar::{self, SyntaxError, quoted};
use sluicegate::{Limit, Limiter};
use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

const FIELDS: &[&str] = &["name", "limit", "on_store_failure", "local_share", "shadow", "share", "keys"];

/// Reads the rules. Leaves out invalid ones, and reports their errors.
pub(super) fn read(tables: &DeArray<'_>, errors: &mut Diagnostics<'_>) -> Vec<RuleSpec> {
    let mut rules = Vec::new();
    let mut names: HashMap<String, Range<usize>> = HashMap::new();
    for table in tables {
        let DeValue::Table(fields) = table.get_ref() else {
            errors.add(
                table.span(),
                format!("{} is not a rule; start each rule with [[rule]]", shown(table.get_ref())),
            );
            continue;
        };
        let mut reader = Reader { errors, rule: "rule".to_owned() };
        if let Some((rule, span)) = reader.rule(fields, table.span()) {
            if let Some(first) = names.get(&rule.name) {
                let line = errors.line(first);
                let name = quoted(&rule.name);
                errors.add(span, format!("the rule in line {line} is named {name} too; rename one of them"));
            } else {
                names.insert(rule.name.clone(), span);
            }
            rules.push(rule);
        }
    }
    rules
}

struct Reader<'a, 'f> {
    errors: &'a mut Diagnostics<'f>,
    /// The rule's name in messages.
    rule: String,
}

impl Reader<'_, '_> {
    /// Reads a rule. Also returns the position of its name.
    fn rule(&mut self, table: &DeTable<'_>, span: Range<usize>) -> Option<(RuleSpec, Range<usize>)> {
        let value = |wanted| table.iter().find(|(name, _)| name.get_ref() == wanted).map(|(_, value)| value);
        let name = if let Some(value) = value("name") {
            self.take(value, "name", |given| name(given.text()?))
        } else {
            self.error(span.clone(), "the rule has no name; add one, such as name = \"reply\"");
            None
        };
        if let Some(name) = &name {
            self.rule = format!("rule {name}");
        }
        for (field_name, _) in table {
            if let Err(error) = field(field_name, FIELDS) {
                self.error(field_name.span(), error);
            }
        }
        let limits = if let Some(value) = value("limit") {
            self.limits(value)
        } else {
            self.error(span, "the rule has no limit; add one, such as limit = \"sliding-log 5/60s\"");
            None
        };
        let on_store_failure = value("on_store_failure")
            .and_then(|value| self.take(value, "on_store_failure", on_store_failure));
        let local_share = value("local_share").and_then(|value| self.take(value, "local_share", local_share));
        let shadow = value("shadow").and_then(|value| self.take(value, "shadow", Given::bool));
        let share = value("share").and_then(|value| self.take(value, "share", share));
        let keys = value("keys").map(|value| self.keys(value, limits.as_deref())).unwrap_or_default();
        let name_span = value("name")?.span();
        let rule = RuleSpec {
            name: name?.to_owned(),
            limits: limits?,
            shadow: shadow.unwrap_or(false),
            on_store_failure,
            local_share,
            share: share.unwrap_or(SHARE_DEFAULT),
            keys,
        };
        Some((rule, name_span))
    }

    fn error(&mut self, span: Range<usize>, message: impl std::fmt::Display) {
        let message = format!("{}: {message}", self.rule);
        self.errors.add(span, message);
    }

    /// Reads the value of a field, if it is valid.
    fn take<'v, T>(
        &mut self,
        value: &'v Spanned<DeValue<'v>>,
        field: &str,
        read: impl FnOnce(&Given<'v>) -> Result<T, SyntaxError>,
    ) -> Option<T> {
        read(&Given::File(value.get_ref()))
            .map_err(|error| self.error(value.span(), format!("{field}: {error}")))
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
        let checked = grants_leases(&limits).map_err(|error| error.to_string()).and_then(|grants_leases| {
            // The library checks whether a list of limits is valid; `max_keys(1)` keeps that cheap.
            let built = (!grants_leases).then(|| Limiter::builder(&limits).max_keys(1).build());
            built.transpose().map(|_| ()).map_err(|error| error.to_string())
        });
        match checked {
            Ok(()) => Some(limits),
            Err(message) => {
                self.error(value.span(), message);
                None
            }
        }
    }

    fn list(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<Limit>> {
        let DeValue::String(text) = value.get_ref() else {
            let message = format!(
                "{} is not a limit; write one in quotes, such as \"sliding-log 5/60s\"",
                shown(value.get_ref())
            );
            self.error(value.span(), message);
            return None;
        };
        Limit::parse_list(text).map_err(|error| self.error(value.span(), error)).ok()
    }

    /// Reads the limits of an exception, which must be of the same kind as the rule's.
    fn exception(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        rule_limits: Option<&[Limit]>,
    ) -> Option<Vec<Limit>> {
        let limits = self.limits(value)?;
        match rule_limits.and_then(|rule_limits| exception_mismatch(rule_limits, &limits)) {
            None => Some(limits),
            Some(error) => {
                self.error(value.span(), error);
                None
            }
        }
    }

    /// Reads the exceptions.
    fn keys(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        rule_limits: Option<&[Limit]>,
    ) -> Vec<(Vec<u8>, KeySpec)> {
        let DeValue::Table(keys) = value.get_ref() else {
            let message = format!("keys is {}, not a table; write [rule.keys]", shown(value.get_ref()));
            self.error(value.span(), message);
            return Vec::new();
        };
        let mut exceptions = Vec::with_capacity(keys.len());
        for (key, value) in keys {
            let message = match value.get_ref() {
                DeValue::String(word) if word == "unlimited" => Some(KeySpec::Unlimited),
                DeValue::String(word) if word == "blocked" => Some(KeySpec::Blocked),
                DeValue::String(word) if !word.contains([' ', '/']) => {
                    let message = format!(
                        "{} is not an exception; use \"unlimited\", \"blocked\" or a limit such as \"sliding-log 5/60s\"",
                        quoted(word)
                    );
                    self.error(value.span(), message);
                    None
                }
                _ => self.exception(value, rule_limits).map(KeySpec::Limits),
            };
            exceptions.extend(message.map(|message| (key.get_ref().as_bytes().to_vec(), message)));
        }
        exceptions
    }
}

/// Reads the name of a rule. It has no space, so that it cannot be mistaken for a limit.
fn name(text: &str) -> Result<&str, SyntaxError> {
    if let Some(problem) = reserved_name(text) {
        return Err(SyntaxError::new(problem, "choose another"));
    }
    let good = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    if !text.is_empty() && text.chars().all(good) {
        return Ok(text);
    }
    let problem = format!("rule name {} is invalid", quoted(text));
    Err(SyntaxError::new(problem, "use the characters A-Z a-z 0-9 _ . : -"))
}

fn on_store_failure(given: &Given<'_>) -> Result<OnStoreFailure, SyntaxError> {
    Ok(on_failure(grammar::name("word", given.text()?, ON_FAILURE)?))
}

/// The weight of a rule when memory is divided between rules.
const SHARE: RangeInclusive<u64> = 1..=1_000_000;

fn share(given: &Given<'_>) -> Result<u32, SyntaxError> {
    Ok(u32::try_from(given.number(&SHARE)?).unwrap_or(u32::MAX))
}

fn local_share(given: &Given<'_>) -> Result<u32, SyntaxError> {
    Ok(u32::try_from(given.number(&LOCAL_SHARE)?).unwrap_or(u32::MAX))
}
