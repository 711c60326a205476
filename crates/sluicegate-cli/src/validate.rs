//! `sluice validate`: a configuration file, checked and explained.

use crate::Problem;
use crate::args::ValidateArgs;
use crate::explain::{TOGETHER, paragraph, words};
use sluicegate::Limit;
use sluicegate_server::config::Configuration;
use sluicegate_server::engine::{KeySpec, OnStoreFailure, RuleSpec};
use sluicegate_server::safety::{self, Protection};
use sluicegate_sim::human::{TIE, many, printable};

pub(crate) fn run(args: &ValidateArgs) -> Result<(), Problem> {
    let configuration = Configuration::read(&args.file).map_err(|problems| problems.to_string())?;
    let mut text: String = configuration.rules.iter().map(explain).collect();
    for note in notes(&configuration) {
        text += &paragraph("Note", &note);
    }
    let rules = configuration.rules.len() as u64;
    text += &format!("{}: OK, {}\n", printable(&args.file.display().to_string()), many(rules, "rule"));
    crate::print(&text.replace(TIE, " "))
}

/// What keeps a server from starting with this file alone. It is not an error, because environment
/// variables and flags may add what is missing.
fn notes(configuration: &Configuration) -> Vec<String> {
    let protection = Protection {
        password: configuration.password_file.is_some(),
        tls: configuration.tls_cert.is_some() && configuration.tls_key.is_some(),
        insecure: false,
    };
    let listen = configuration.listen.iter();
    // Names are not resolved: they may resolve differently where the file is used.
    let addresses = listen.filter_map(|(protocol, at)| Some((protocol, at.as_ref()?.parse().ok()?)));
    addresses.filter_map(|(protocol, at)| safety::may_listen(protocol, at, protection).err()).collect()
}

fn explain(rule: &RuleSpec) -> String {
    let mut text = format!("rule {}\n", rule.name);
    for limit in &rule.limits {
        text += &limit_in_words(limit);
    }
    if rule.limits.len() > 1 {
        text += &paragraph("Together", TOGETHER);
    }
    for (key, says) in &rule.keys {
        let key = printable(&String::from_utf8_lossy(key));
        let says = match says {
            KeySpec::Unlimited => "is always allowed".to_owned(),
            KeySpec::Blocked => "is never allowed".to_owned(),
            KeySpec::Limits(limits) => format!("has {} instead", Limit::list_text(limits)),
        };
        text += &paragraph("Exception", &format!("{key} {says}."));
    }
    if rule.shadow {
        text += &paragraph("Shadow", "Denials are counted, but every call is allowed.");
    }
    let failure = match rule.on_store_failure {
        None => None,
        Some(OnStoreFailure::Error) => Some("callers get an error.".to_owned()),
        Some(OnStoreFailure::Allow) => Some("calls are allowed.".to_owned()),
        Some(OnStoreFailure::Deny) => Some("calls are denied.".to_owned()),
        Some(OnStoreFailure::Local) => {
            let share = rule.local_share.map(|percent| format!(" with {percent} % of the limits"));
            Some(format!("each server decides from its own memory{}.", share.unwrap_or_default()))
        }
        Some(other) => Some(format!("the rule says {}.", other.as_str())),
    };
    if let Some(failure) = failure {
        text += &paragraph("Failure", &format!("While the shared store is unavailable, {failure}"));
    }
    text + "\n"
}

fn limit_in_words(limit: &Limit) -> String {
    let words = words::of(limit);
    let mut text = format!("{limit}\n");
    for (heading, said) in
        [("What it does", words.does.as_str()), ("Promise", &words.promise), ("Worst case", &words.worst)]
    {
        text += &paragraph(heading, said);
    }
    text
}
