//! The file: its tables and settings. All that is wrong in it is found at once.

use super::problem::Found;
use super::rules;
use super::value::{Given, shown};
use super::{Configuration, Problems, SETTINGS};
use sluicegate::internal::grammar;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const SECTIONS: &[&str] = &["server", "store", "memory", "log", "rule"];

pub(super) fn parse(name: &str, text: &str) -> Result<Configuration, Problems> {
    let mut found = Found::nothing_in(name, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        found.wrong(error.span().unwrap_or(0..0), one_line(error.message()));
    }
    let mut configuration = Configuration::default();
    // What stands after a broken line may not mean what it says.
    if !found.is_nothing() {
        return found.result().map(|()| configuration);
    }
    for (name, value) in document.get_ref() {
        match (grammar::name("table", name.get_ref(), SECTIONS), value.get_ref()) {
            (Err(mistake), _) => found.wrong(name.span(), mistake),
            (Ok("rule"), DeValue::Array(tables)) => {
                configuration.rules = rules::read(tables, &mut found);
            }
            (Ok("rule"), _) => {
                found.wrong(value.span(), "rule is not a list of tables; begin each with [[rule]]");
            }
            (Ok(section), DeValue::Table(table)) => read(section, table, &mut configuration, &mut found),
            (Ok(section), other) => {
                let says = format!("{section} is {}, not a table; write [{section}]", shown(other));
                found.wrong(value.span(), says);
            }
        }
    }
    found.result().map(|()| configuration)
}

/// The settings of one table.
fn read(
    section: &'static str,
    table: &DeTable<'_>,
    configuration: &mut Configuration,
    found: &mut Found<'_>,
) {
    let known: Vec<&str> =
        SETTINGS.iter().filter(|setting| setting.section == section).map(|setting| setting.name).collect();
    for (name, value) in table {
        match field(name, &known) {
            Err(mistake) => found.wrong(name.span(), format!("[{section}]: {mistake}")),
            Ok(known) => {
                let setting = SETTINGS.iter().find(|it| it.section == section && it.name == known);
                let set = setting.map(|it| it.set(configuration, &Given::File(value.get_ref())));
                if let Some(Err(mistake)) = set {
                    found.wrong(value.span(), format!("{known}: {mistake}"));
                }
            }
        }
    }
}

/// The field of this name; or which is meant.
pub(super) fn field(
    name: &Spanned<std::borrow::Cow<'_, str>>,
    known: &[&'static str],
) -> Result<&'static str, grammar::SyntaxError> {
    grammar::name("field", name.get_ref(), known)
}

/// The parser's words, which may be several lines.
fn one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}
