//! The file: its tables and settings.

use super::error::Diagnostics;
use super::rules;
use super::value::{Given, shown};
use super::{ConfigErrors, Configuration, SETTINGS};
use sluicegate::internal::grammar;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const SECTIONS: &[&str] = &["server", "store", "memory", "log", "rule"];

pub(super) fn parse(name: &str, text: &str) -> Result<Configuration, ConfigErrors> {
    let mut errors = Diagnostics::new(name, text);
    let (document, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        errors.add(error.span().unwrap_or(0..0), one_line(error.message()));
    }
    let mut configuration = Configuration::default();
    // After a syntax error the rest of the file may be misread.
    if !errors.is_empty() {
        return errors.result().map(|()| configuration);
    }
    for (name, value) in document.get_ref() {
        match (grammar::name("table", name.get_ref(), SECTIONS), value.get_ref()) {
            (Err(error), _) => errors.add(name.span(), error),
            (Ok("rule"), DeValue::Array(tables)) => {
                configuration.rules = rules::read(tables, &mut errors);
            }
            (Ok("rule"), _) => {
                errors.add(value.span(), "rule is not a list of tables; start each rule with [[rule]]");
            }
            (Ok(section), DeValue::Table(table)) => read(section, table, &mut configuration, &mut errors),
            (Ok(section), other) => {
                let message = format!("{section} is {}, not a table; write [{section}]", shown(other));
                errors.add(value.span(), message);
            }
        }
    }
    errors.result().map(|()| configuration)
}

/// Reads the settings of one table.
fn read(
    section: &'static str,
    table: &DeTable<'_>,
    configuration: &mut Configuration,
    errors: &mut Diagnostics<'_>,
) {
    let known: Vec<&str> =
        SETTINGS.iter().filter(|setting| setting.section == section).map(|setting| setting.name).collect();
    for (name, value) in table {
        match field(name, &known) {
            Err(error) => errors.add(name.span(), format!("[{section}]: {error}")),
            Ok(known) => {
                let setting = SETTINGS.iter().find(|it| it.section == section && it.name == known);
                let set = setting.map(|it| it.set(configuration, &Given::File(value.get_ref())));
                if let Some(Err(error)) = set {
                    errors.add(value.span(), format!("{known}: {error}"));
                }
            }
        }
    }
}

/// Finds a field by name, or suggests one.
pub(super) fn field(
    name: &Spanned<std::borrow::Cow<'_, str>>,
    known: &[&'static str],
) -> Result<&'static str, grammar::SyntaxError> {
    grammar::name("field", name.get_ref(), known)
}

/// Joins the lines of a parser error.
fn one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}
