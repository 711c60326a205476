//! The fields `RateLimit-Policy` and `RateLimit`. The text of the policies is written once, and
//! again when the limits change; per response only numbers are written.

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::backend::Backend;
use sluicegate::http_fields::{self, Policy, policy_about, policy_name, quoted};
use sluicegate::{Decision, Limit, Span, Usage};
use std::sync::Arc;

const RATELIMIT: HeaderName = HeaderName::from_static(http_fields::RATELIMIT);
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(http_fields::RATELIMIT_POLICY);

/// The policies of a limiter's limits, once they are needed.
#[derive(Default)]
pub(super) struct Policies {
    texts: ArcSwapOption<PolicyTexts>,
}

struct PolicyTexts {
    /// The version of the limits.
    changes: u64,
    policies: Vec<Policy>,
    /// The name shared by all policies, then the name of each; quoted, as in the fields.
    names: Vec<String>,
    field: Option<HeaderValue>,
}

/// Settings are cloned to be changed, and then the texts are written again.
impl Clone for Policies {
    fn clone(&self) -> Policies {
        Policies::default()
    }
}

/// The fields of one response.
pub(super) struct Fields {
    policy: HeaderValue,
    standing: HeaderValue,
}

impl Policies {
    /// Returns the fields for a decision; `None` if there are no limits. Of several limits, each
    /// has its standing if `usages` knows them, without a round trip.
    #[inline]
    pub(super) fn fields(
        &self,
        name: &str,
        limiter: &impl Backend,
        decision: &Decision,
        usages: impl FnOnce() -> Option<Vec<(Limit, Usage)>>,
    ) -> Option<Fields> {
        self.texts(name, limiter, |texts| {
            let of_each =
                if texts.policies.len() > 1 { usages().and_then(|all| texts.standings(&all)) } else { None };
            Some(Fields {
                policy: texts.field.clone()?,
                standing: of_each.or_else(|| texts.standing(decision))?,
            })
        })
    }

    /// Returns `true` if the limiter has several limits.
    pub(super) fn are_several(&self, name: &str, limiter: &impl Backend) -> bool {
        self.texts(name, limiter, |texts| texts.policies.len() > 1)
    }

    /// Returns the quoted name of the policy that a denial violates.
    pub(super) fn violated(&self, name: &str, limiter: &impl Backend, decision: &Decision) -> String {
        self.texts(name, limiter, |texts| texts.name_for(decision).to_owned())
    }

    /// Uses the texts for the current limits.
    #[inline]
    fn texts<T>(&self, name: &str, limiter: &impl Backend, with: impl FnOnce(&PolicyTexts) -> T) -> T {
        let changes = limiter.changes();
        let texts = self.texts.load();
        match &*texts {
            Some(texts) if texts.changes == changes => with(texts),
            _ => {
                let texts = Arc::new(PolicyTexts::new(name, changes, &limiter.limits()));
                self.texts.store(Some(Arc::clone(&texts)));
                with(&texts)
            }
        }
    }
}

impl PolicyTexts {
    fn new(name: &str, changes: u64, limits: &[Limit]) -> PolicyTexts {
        let policies: Vec<Policy> = limits.iter().map(Policy::of).collect();
        let positions = (0..policies.len()).map(Some);
        let names = std::iter::once(None).chain(positions);
        let names: Vec<String> =
            names.map(|position| quoted(&policy_name(name, position, policies.len()))).collect();
        let items: Vec<String> =
            names[1..].iter().zip(&policies).map(|(name, policy)| format!("{name}{policy}")).collect();
        // Cannot fail: names are plain text, and the rest is numbers.
        let field = HeaderValue::try_from(items.join(", ")).ok().filter(|_| !items.is_empty());
        PolicyTexts { changes, policies, names, field }
    }

    fn name_for(&self, decision: &Decision) -> &str {
        let denied_by = decision.denied_by().and_then(|position| usize::try_from(position).ok());
        let position = policy_about(&self.policies, denied_by, decision.limit());
        // If no single policy applies: the shared name.
        &self.names[position.filter(|at| *at < self.policies.len()).map_or(0, |at| at + 1)]
    }

    /// The standing under the limit of a decision.
    fn standing(&self, decision: &Decision) -> Option<HeaderValue> {
        value(item(self.name_for(decision), decision.remaining(), decision.reset_after()))
    }

    /// The standing under each limit. `None` if these are the usages of other limits, which have
    /// just changed.
    fn standings(&self, usages: &[(Limit, Usage)]) -> Option<HeaderValue> {
        let names = self.names.get(1..).filter(|names| names.len() == usages.len())?;
        let items = names.iter().zip(usages);
        let items: Vec<_> =
            items.map(|(name, (_, usage))| item(name, usage.remaining, usage.reset_after)).collect();
        value(items.join(&b", "[..]))
    }
}

/// `"api";r=12;t=30`.
fn item(name: &str, remaining: u64, reset_after: Span) -> Vec<u8> {
    let (mut remaining_text, mut reset_text) = (itoa::Buffer::new(), itoa::Buffer::new());
    let pieces =
        [name, ";r=", remaining_text.format(remaining), ";t=", reset_text.format(reset_after.as_secs_up())];
    // Allocated exactly, so that it is not copied again.
    let mut text = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
    for piece in pieces {
        text.extend_from_slice(piece.as_bytes());
    }
    text
}

fn value(text: Vec<u8>) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
}

impl Fields {
    /// Appends the fields to those of other layers: both fields are lists and may span several
    /// lines.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        headers.append(RATELIMIT_POLICY, self.policy);
        headers.append(RATELIMIT, self.standing);
    }
}
