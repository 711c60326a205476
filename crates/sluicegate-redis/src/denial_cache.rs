//! The denial cache: recent denials, repeated without a round trip, so that callers that keep
//! retrying cost the store nothing.
//!
//! ```text
//! Promise   A cached denial ends no later than in the store: its time counts from before the call
//!           was sent. A call that is not certainly denied goes to the store.
//! Bounds    At most DENIAL_CACHE_KEYS_MAX keys with names of at most NAME_MAX bytes, each for at
//!           most DENIAL_CACHE_AGE_MAX.
//! Cost      While nothing is cached, a lookup is one atomic load.
//! ```

use sluicegate::{Decision, RetryAfter, Span};
use sluicegate_core::decision::store::StoreDecision as _;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a denial is cached, at most.
pub const DENIAL_CACHE_AGE_MAX: Duration = Duration::from_secs(1);
/// The most keys with a cached denial.
pub const DENIAL_CACHE_KEYS_MAX: usize = 10_000;

/// The longest name of a key whose denials are cached, so that memory is bounded.
const NAME_MAX: usize = 1024;
/// Invalidation times are kept per group of names; this is the number of groups.
const GROUPS: usize = 256;

/// The cached denials of a store.
pub(crate) struct DenialCache {
    start: Instant,
    /// When the last denial expires, in microseconds since `start`.
    expiry: AtomicU64,
    entries: Mutex<Entries>,
}

/// Two generations: a full young one becomes the old one, and the previous old one is dropped.
struct Entries {
    young: HashMap<Vec<u8>, CachedDenial>,
    old: HashMap<Vec<u8>, CachedDenial>,
    invalidated: Vec<Option<Instant>>,
    hasher: RandomState,
}

/// A cached denial.
#[derive(Clone)]
pub(crate) struct CachedDenial {
    /// The limits that denied: other limits on the same key may decide differently.
    pub(crate) owner: Arc<str>,
    pub(crate) cost: u64,
    pub(crate) decision: Decision,
    /// Before the call was sent. Expiry counts from here, so that no denial is cached for too long.
    pub(crate) began: Instant,
    /// When the answer arrived. The remaining wait counts from here, as it does for the caller.
    pub(crate) received: Instant,
}

impl CachedDenial {
    /// When the denial expires, or `None` if the decision is none.
    fn expires_at(&self) -> Option<Instant> {
        let lifetime = match self.decision.retry_after()? {
            RetryAfter::After(wait) => Duration::from_micros(wait.as_micros()).min(DENIAL_CACHE_AGE_MAX),
            RetryAfter::Never => DENIAL_CACHE_AGE_MAX,
        };
        Some(self.began + lifetime)
    }

    fn is_live(&self, now: Instant) -> bool {
        self.expires_at().is_some_and(|expires_at| now < expires_at)
    }
}

impl DenialCache {
    pub(crate) fn new() -> DenialCache {
        let entries = Entries {
            young: HashMap::new(),
            old: HashMap::new(),
            invalidated: vec![None; GROUPS],
            hasher: RandomState::new(),
        };
        DenialCache { start: Instant::now(), expiry: AtomicU64::new(0), entries: Mutex::new(entries) }
    }

    /// Returns the denial of a call of this cost, if it is certain. `cost_max` is the largest cost
    /// that can be allowed at all.
    pub(crate) fn get(
        &self,
        name: impl FnOnce() -> Vec<u8>,
        owner: &str,
        cost: u64,
        cost_max: u64,
        now: Instant,
    ) -> Option<Decision> {
        if self.expiry.load(Relaxed) <= self.micros(now) {
            return None;
        }
        let name = name();
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let denial = entries.get(&name)?;
        let is_same = *denial.owner == *owner && cost >= denial.cost && denial.is_live(now);
        // A cost that can never be allowed must not get a wait.
        let is_never = denial.decision.retry_after() == Some(RetryAfter::Never);
        if !is_same || (cost > cost_max && !is_never) {
            return None;
        }
        let passed = now.saturating_duration_since(denial.received).as_micros();
        Some(denial.decision.aged_by(Span::from_micros(u64::try_from(passed).unwrap_or(u64::MAX))))
    }

    /// Caches a denial, unless it has expired or its key was invalidated since the call was sent.
    pub(crate) fn insert(&self, name: Vec<u8>, denial: CachedDenial) {
        let Some(expires_at) =
            denial.expires_at().filter(|expires_at| denial.received < *expires_at && name.len() <= NAME_MAX)
        else {
            return;
        };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.invalidated[entries.group(&name)].is_some_and(|at| at >= denial.began) {
            return;
        }
        // The denial of a smaller cost covers more calls.
        let known =
            entries.get(&name).filter(|known| known.owner == denial.owner && known.is_live(denial.received));
        if known.is_some_and(|known| known.cost < denial.cost) {
            return;
        }
        if entries.young.len() >= DENIAL_CACHE_KEYS_MAX / 2 && !entries.young.contains_key(&name) {
            let Entries { young, old, .. } = &mut *entries;
            mem::swap(young, old);
            young.clear();
        }
        entries.young.insert(name, denial);
        // Rounded up, so that it does not expire too early.
        self.expiry.fetch_max(self.micros(expires_at).saturating_add(1), Relaxed);
    }

    /// Invalidates a key's denial, and those of calls in flight.
    pub(crate) fn invalidate(&self, name: &[u8], now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let group = entries.group(name);
        entries.invalidated[group] = Some(now);
        entries.young.remove(name);
        entries.old.remove(name);
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX)
    }
}

impl Entries {
    fn get(&self, name: &[u8]) -> Option<&CachedDenial> {
        self.young.get(name).or_else(|| self.old.get(name))
    }

    fn group(&self, name: &[u8]) -> usize {
        usize::try_from(self.hasher.hash_one(name)).unwrap_or(0) % GROUPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate::{Limiter, Time};

    const MS: Duration = Duration::from_millis(1);

    /// The decision for a call of this cost once `used` is charged.
    fn decision(limit: &str, used: u64, cost: u64) -> Decision {
        let limiter = Limiter::new(limit).unwrap();
        assert!(limiter.check_at("user:42", used, Time::EPOCH).allowed());
        limiter.check_at("user:42", cost, Time::EPOCH)
    }

    fn denial(limit: &str, used: u64, cost: u64, began: Instant) -> CachedDenial {
        let decision = decision(limit, used, cost);
        CachedDenial { owner: "us".into(), cost, decision, began, received: began + 2 * MS }
    }

    fn get(denials: &DenialCache, name: &str, cost: u64, at: Instant) -> Option<Decision> {
        denials.get(|| name.into(), "us", cost, 10, at)
    }

    #[test]
    fn a_denial_is_repeated_until_it_expires_with_the_remaining_wait() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        let denied = denial("token-bucket 10/s", 10, 1, began);
        assert_eq!(denied.decision.retry_after(), Some(RetryAfter::After(Span::from_micros(100_000))));
        denials.insert("user:42".into(), denied.clone());
        assert_eq!(get(&denials, "user:42", 1, began + MS), Some(denied.decision));
        let later = get(&denials, "user:42", 1, began + 32 * MS).unwrap();
        assert_eq!(later.retry_after(), Some(RetryAfter::After(Span::from_micros(70_000))));
        assert_eq!(later.reset_after(), Span::from_micros(970_000));
        assert_eq!((later.allowed(), later.limit(), later.denied_by()), (false, 10, Some(0)));
        assert!(get(&denials, "user:42", 1, began + 100 * MS - Duration::from_nanos(1)).is_some());
        assert_eq!(get(&denials, "user:42", 1, began + 100 * MS), None);
        assert_eq!(get(&denials, "user:43", 1, began), None);
    }

    #[test]
    fn no_denial_is_cached_for_longer_than_the_maximum_age() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.insert("user:42".into(), denial("token-bucket 10/h", 10, 1, began));
        assert!(get(&denials, "user:42", 1, began + DENIAL_CACHE_AGE_MAX - MS).is_some());
        assert_eq!(get(&denials, "user:42", 1, began + DENIAL_CACHE_AGE_MAX), None);
    }

    #[test]
    fn smaller_and_impossible_costs_go_to_the_store() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.insert("user:42".into(), denial("token-bucket 10/s", 7, 5, began));
        assert_eq!(get(&denials, "user:42", 4, began), None);
        assert!(
            get(&denials, "user:42", 5, began).is_some() && get(&denials, "user:42", 10, began).is_some()
        );
        assert_eq!(get(&denials, "user:42", 11, began), None);
        // A larger cost that reached the store does not replace the smaller one.
        denials.insert("user:42".into(), denial("token-bucket 10/s", 7, 11, began));
        assert!(get(&denials, "user:42", 5, began).is_some());
        denials.insert("user:43".into(), denial("token-bucket 10/s", 7, 11, began));
        let never = get(&denials, "user:43", 12, began + 500 * MS).unwrap();
        assert_eq!(never.retry_after(), Some(RetryAfter::Never));
        assert_eq!(get(&denials, "user:43", 10, began), None);
    }

    #[test]
    fn other_limits_on_the_same_key_go_to_the_store() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.insert("user:42".into(), denial("token-bucket 10/s", 10, 1, began));
        assert_eq!(denials.get(|| "user:42".into(), "others", 1, 10, began), None);
    }

    #[test]
    fn an_older_answer_does_not_undo_an_invalidation() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        let denied = denial("token-bucket 10/s", 10, 1, began);
        denials.insert("user:42".into(), denied.clone());
        denials.invalidate(b"user:42", began + MS);
        assert_eq!(get(&denials, "user:42", 1, began + MS), None);
        denials.insert("user:42".into(), denied.clone());
        assert_eq!(get(&denials, "user:42", 1, began + 2 * MS), None);
        let newer = CachedDenial { began: began + 2 * MS, received: began + 3 * MS, ..denied };
        denials.insert("user:42".into(), newer);
        assert!(get(&denials, "user:42", 1, began + 3 * MS).is_some());
    }

    #[test]
    fn allowed_calls_and_expired_denials_are_not_cached() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.insert("user:42".into(), denial("token-bucket 10/s", 7, 1, began));
        let late = CachedDenial { received: began + 100 * MS, ..denial("token-bucket 10/s", 10, 1, began) };
        denials.insert("user:42".into(), late);
        assert_eq!(denials.expiry.load(Relaxed), 0);
    }

    #[test]
    fn the_oldest_are_evicted_and_long_names_are_not_cached() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        let denied = denial("token-bucket 10/s", 10, 1, began);
        for key in 0..3 * DENIAL_CACHE_KEYS_MAX {
            denials.insert(key.to_string().into(), denied.clone());
            let entries = denials.entries.lock().unwrap();
            assert!(entries.young.len() + entries.old.len() <= DENIAL_CACHE_KEYS_MAX);
        }
        let newest = 3 * DENIAL_CACHE_KEYS_MAX - DENIAL_CACHE_KEYS_MAX / 2;
        assert!(
            (newest..3 * DENIAL_CACHE_KEYS_MAX)
                .all(|key| get(&denials, &key.to_string(), 1, began).is_some())
        );
        assert_eq!(get(&denials, "0", 1, began), None);
        let long = "x".repeat(NAME_MAX + 1);
        denials.insert(long.clone().into(), denied);
        assert_eq!(get(&denials, &long, 1, began), None);
    }
}
