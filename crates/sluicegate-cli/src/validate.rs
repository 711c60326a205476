//! `sluice validate`: a configuration file, checked and explained.

use crate::Problem;
use crate::args::ValidateArgs;
use crate::explain::{TOGETHER, paragraph, words};
use crate::serve;
use sluicegate::Limit;
use sluicegate_server::Files;
use sluicegate_server::engine::{KeySpec, OnStoreFailure, RuleSpec};
use sluicegate_sim::human::{TIE, many, printable};

pub(crate) fn run(args: ValidateArgs) -> Result<(), Problem> {
    let ValidateArgs { file, no_files, settings } = args;
    let name = printable(&file.display().to_string());
    let files = if no_files { Files::Skip } else { Files::Read };
    let insecure = settings.insecure;
    let configuration = sluicegate_server::validate(&serve::layers(Some(file), settings)?, insecure, files)?;
    let mut text: String = configuration.rules.iter().map(explain).collect();
    text += &format!("{name}: OK, {}\n", many(configuration.rules.len() as u64, "rule"));
    crate::print(&text.replace(TIE, " "))
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
