//! The limits to try, each with what it is called.

use crate::Problem;
use sluicegate::Limit;
use sluicegate::limit::ListError;

/// The most limits that are compared: more would not fit on a picture.
const CANDIDATES_MAX: usize = 32;
/// The longest label in letters.
const LABEL_MAX: usize = 60;

/// A label, and a limit or a list of limits that must all allow.
pub(super) type Candidate = (String, Vec<Limit>);

pub(super) fn read(limits: &[String], labels: &[String]) -> Result<Vec<Candidate>, Problem> {
    if limits.len() > CANDIDATES_MAX {
        return Err(format!(
            "{} limits are above the maximum, {CANDIDATES_MAX}; compare fewer at once",
            limits.len()
        ));
    }
    if !labels.is_empty() && labels.len() != limits.len() {
        return Err(format!(
            "there are {} --label for {} --limit; give none, or one for each in the same order",
            labels.len(),
            limits.len()
        ));
    }
    if let Some(label) = labels.iter().find(|label| label.chars().count() > LABEL_MAX) {
        return Err(format!("the label {label:?} is longer than {LABEL_MAX} letters; shorten it"));
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for (place, text) in limits.iter().enumerate() {
        let candidate = candidate(text, labels.get(place))?;
        if let Some(twin) = candidates.iter().position(|(label, _)| *label == candidate.0) {
            return Err(format!(
                "the limits {} and {} are both called {:?}; leave one out, or tell them apart with --label",
                twin + 1,
                place + 1,
                candidate.0
            ));
        }
        candidates.push(candidate);
    }
    Ok(candidates)
}

/// `A + B` are two limits that must both allow.
fn candidate(text: &str, label: Option<&String>) -> Result<Candidate, Problem> {
    let limits = Limit::parse_list(text).map_err(|error| error.to_string())?;
    ListError::check(&limits).map_err(|error| error.to_string())?;
    let label = label.cloned().unwrap_or_else(|| Limit::list_text(&limits));
    Ok((label, limits))
}
