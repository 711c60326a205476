//! `sluice explain`: what a limit or a list of limits promises, in sentences and as a timeline.

mod leases;
mod timeline;
pub(crate) mod words;

use crate::Problem;
use crate::args::ExplainArgs;
use sluicegate::Limit;
use sluicegate::limit::ListError;
use sluicegate_sim::human::TIE;

/// What a list of limits does.
pub(crate) const TOGETHER: &str = "A call is charged to all of these limits, or to none and is denied.";
/// Column at which the text after a heading begins.
const INDENT: usize = 14;
/// Column at which lines wrap.
const WIDTH: usize = 96;

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Problem> {
    // Unquoted words are joined, so that quotes are optional.
    let limits = Limit::parse_list(&args.limit.join(" ")).map_err(|error| error.to_string())?;
    if let [limit] = limits.as_slice() {
        return crate::print(&explain(limit));
    }
    ListError::check(&limits).map_err(|error| error.to_string())?;
    let mut text = format!("{}\n\n{}", Limit::list_text(&limits), paragraph("Together", TOGETHER));
    for limit in &limits {
        text += &format!("\n{}", explain(limit));
    }
    crate::print(&text)
}

fn explain(limit: &Limit) -> String {
    let words = words::of(limit);
    let mut text = format!("{limit}\n\n");
    for (heading, said) in [
        ("What it does", words.does.as_str()),
        ("Promise", &words.promise),
        ("Worst case", &words.worst),
        ("Clock", words.clock),
        ("Memory per key", &words.memory),
        ("Instead", words.instead),
    ] {
        text += &paragraph(heading, said);
    }
    text.push('\n');
    text += &timeline::of(limit);
    text.replace(TIE, " ")
}

/// A heading and its text, wrapped and indented.
pub(crate) fn paragraph(heading: &str, said: &str) -> String {
    let mut lines = vec![format!("{heading:INDENT$}")];
    for word in said.split(' ') {
        let is_first = lines.last().is_none_or(|line| line.trim_end().len() <= heading.len());
        let fits = lines.last().is_some_and(|line| line.chars().count() + 1 + word.chars().count() <= WIDTH);
        if !is_first && !fits {
            lines.push(" ".repeat(INDENT));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}
