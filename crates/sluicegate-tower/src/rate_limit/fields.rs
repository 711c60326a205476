//! The fields `RateLimit-Policy` and `RateLimit`. What is said of the limits is worked out once, and again when they change;
//! with each response only numbers are written.

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::http_fields::{self, Policy, policy_about, policy_name, quoted};
use sluicegate::{Backend, Decision, Limit};
use std::sync::Arc;

const RATELIMIT: HeaderName = HeaderName::from_static(http_fields::RATELIMIT);
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(http_fields::RATELIMIT_POLICY);

/// What there is to say of a limiter's limits, once somebody has asked.
#[derive(Default)]
pub(super) struct Policies {
    told: ArcSwapOption<Told>,
}

struct Told {
    /// The limits as of this change.
    changes: u64,
    policies: Vec<Policy>,
    /// The name that all of them share, then that of each; quoted, as the fields have them.
    names: Vec<String>,
    field: Option<HeaderValue>,
}

/// Settings are cloned to be changed, and then what is told of them is worked out again.
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
    /// The fields for a decision; `None` if there is nothing to tell of.
    #[inline]
    pub(super) fn fields(&self, name: &str, limiter: &impl Backend, decision: &Decision) -> Option<Fields> {
        self.told(name, limiter, |told| {
            Some(Fields { policy: told.field.clone()?, standing: told.standing(decision)? })
        })
    }

    /// The name of the policy that a denial violates, quoted.
    pub(super) fn violated(&self, name: &str, limiter: &impl Backend, decision: &Decision) -> String {
        self.told(name, limiter, |told| told.name_for(decision).to_owned())
    }

    /// What is told of the limits as they are now.
    #[inline]
    fn told<T>(&self, name: &str, limiter: &impl Backend, tell: impl FnOnce(&Told) -> T) -> T {
        let changes = limiter.changes();
        let told = self.told.load();
        match &*told {
            Some(told) if told.changes == changes => tell(told),
            _ => {
                let told = Arc::new(Told::new(name, changes, &limiter.limits()));
                self.told.store(Some(Arc::clone(&told)));
                tell(&told)
            }
        }
    }
}

impl Told {
    fn new(name: &str, changes: u64, limits: &[Limit]) -> Told {
        let policies: Vec<Policy> = limits.iter().map(Policy::of).collect();
        let places = (0..policies.len()).map(Some);
        let names = std::iter::once(None).chain(places);
        let names: Vec<String> =
            names.map(|place| quoted(&policy_name(name, place, policies.len()))).collect();
        let items: Vec<String> =
            names[1..].iter().zip(&policies).map(|(name, policy)| format!("{name}{policy}")).collect();
        // Cannot fail: names are plain text, and the rest is numbers.
        let field = HeaderValue::try_from(items.join(", ")).ok().filter(|_| !items.is_empty());
        Told { changes, policies, names, field }
    }

    fn name_for(&self, decision: &Decision) -> &str {
        let denied_by = decision.denied_by().and_then(|place| usize::try_from(place).ok());
        let place = policy_about(&self.policies, denied_by, decision.limit());
        // Of no policy in particular: the name of them all.
        &self.names[place.filter(|place| *place < self.policies.len()).map_or(0, |place| place + 1)]
    }

    /// `"api";r=12;t=30`.
    fn standing(&self, decision: &Decision) -> Option<HeaderValue> {
        let (mut remaining, mut reset) = (itoa::Buffer::new(), itoa::Buffer::new());
        let pieces = [
            self.name_for(decision),
            ";r=",
            remaining.format(decision.remaining()),
            ";t=",
            reset.format(decision.reset_after().as_secs_up()),
        ];
        // Exactly as long as it has to be, so that it is not copied once more.
        let mut text = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
        for piece in pieces {
            text.extend_from_slice(piece.as_bytes());
        }
        HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
    }
}

impl Fields {
    /// Adds them beside those that another layer has written: both fields are lists and may come in several lines.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        headers.append(RATELIMIT_POLICY, self.policy);
        headers.append(RATELIMIT, self.standing);
    }
}
