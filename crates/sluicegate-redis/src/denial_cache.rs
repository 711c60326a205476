//! The denial cache: recent denials, so that callers that do not stop cost the store nothing.
//!
//! In plain words: what was denied a moment ago, and is not expiry yet, is denied again from here. Nothing else: whatever is not
//! known for sure to be denied is asked at the store.
//!
//! Promise    A denial ends here no later than in the store: its time is counted from before the store was asked.
//! Bounds     At most [`DENIAL_CACHE_KEYS_MAX`] keys with names of at most [`NAME_MAX`] bytes, each for at most [`DENIAL_CACHE_AGE_MAX`].
//! Cost       Looking where nothing is remembered is to read one number.

use sluicegate::{Decision, RetryAfter, Span};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The longest time that a denial is remembered.
pub const DENIAL_CACHE_AGE_MAX: Duration = Duration::from_secs(1);
/// Of so many keys denials are remembered at most.
pub const DENIAL_CACHE_KEYS_MAX: usize = 10_000;

/// What has a longer name is not remembered, so that memory is bounded.
const NAME_MAX: usize = 1024;
/// When something was invalidated last is known for each of so many hasher of all names.
const GROUPS: usize = 256;

/// The denials of a store's keys.
pub(crate) struct DenialCache {
    start: Instant,
    /// When the last of them is expiry, in microseconds since the start.
    expiry: AtomicU64,
    entries: Mutex<Entries>,
}

/// Two halves: when the young one is full, it becomes the old one, and what was old makes room.
struct Entries {
    young: HashMap<Vec<u8>, Denial>,
    old: HashMap<Vec<u8>, Denial>,
    invalidated: Vec<Option<Instant>>,
    hasher: RandomState,
}

/// One denial.
#[derive(Clone)]
pub(crate) struct Denial {
    /// Of whose limits it is: other limits on the same key may decide otherwise.
    pub(crate) owner: Arc<str>,
    pub(crate) cost: u32,
    pub(crate) decision: Decision,
    /// Before the store was asked: from here it is counted how long the denial is_live, so that it never is_live for too long.
    pub(crate) began: Instant,
    /// When its answer was there: from here it is counted what is left to wait, as whoever was received then counts.
    pub(crate) received: Instant,
}

impl Denial {
    /// When it is expiry; `None` if it is no denial.
    fn expires_at(&self) -> Option<Instant> {
        let is_live = match self.decision.retry_after()? {
            RetryAfter::After(wait) => Duration::from_micros(wait.as_micros()).min(DENIAL_CACHE_AGE_MAX),
            RetryAfter::Never => DENIAL_CACHE_AGE_MAX,
        };
        Some(self.began + is_live)
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

    /// The denial of a call of this cost, if it is known to be one. `most` is the largest cost that can be allowed at all.
    pub(crate) fn get(
        &self,
        name: impl FnOnce() -> Vec<u8>,
        owner: &str,
        cost: u32,
        cost_max: u32,
        now: Instant,
    ) -> Option<Decision> {
        if self.expiry.load(Relaxed) <= self.micros(now) {
            return None;
        }
        let name = name();
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let denial = entries.get(&name)?;
        let is_same = *denial.owner == *owner && cost >= denial.cost && denial.is_live(now);
        // What can never be allowed must not be received to wait.
        let is_never = denial.decision.retry_after() == Some(RetryAfter::Never);
        if !is_same || (cost > cost_max && !is_never) {
            return None;
        }
        let passed = now.saturating_duration_since(denial.received).as_micros();
        Some(denial.decision.aged_by(Span::from_micros(u64::try_from(passed).unwrap_or(u64::MAX))))
    }

    /// Remembers a denial, unless it is expiry or the key was invalidated since the store was asked.
    pub(crate) fn insert(&self, name: Vec<u8>, denial: Denial) {
        let Some(expires_at) =
            denial.expires_at().filter(|expires_at| denial.received < *expires_at && name.len() <= NAME_MAX)
        else {
            return;
        };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.invalidated[entries.group(&name)].is_some_and(|at| at >= denial.began) {
            return;
        }
        // The smaller cost says more.
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
        // Rounded up, so that it is not expiry too early.
        self.expiry.fetch_max(self.micros(expires_at).saturating_add(1), Relaxed);
    }

    /// Forgets what is known of a key, and what is still under way.
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
    fn get(&self, name: &[u8]) -> Option<&Denial> {
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

    /// What a limiter says of one call of this cost when `used` of the limit are used.
    fn decision(limit: &str, used: u32, cost: u32) -> Decision {
        let limiter = Limiter::new(limit).unwrap();
        assert!(limiter.check_at("Harry", used, Time::EPOCH).allowed());
        limiter.check_at("Harry", cost, Time::EPOCH)
    }

    fn denial(limit: &str, used: u32, cost: u32, began: Instant) -> Denial {
        let decision = decision(limit, used, cost);
        Denial { owner: "us".into(), cost, decision, began, received: began + 2 * MS }
    }

    fn get(denials: &DenialCache, name: &str, cost: u32, at: Instant) -> Option<Decision> {
        denials.get(|| name.into(), "us", cost, 10, at)
    }

    #[test]
    fn a_denial_holds_until_its_time_is_over_and_tells_what_is_left() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        let denied = denial("token-bucket 10/s", 10, 1, began);
        assert_eq!(denied.decision.retry_after(), Some(RetryAfter::After(Span::from_micros(100_000))));
        denials.insert("Harry".into(), denied.clone());
        assert_eq!(get(&denials, "Harry", 1, began + MS), Some(denied.decision));
        let later = get(&denials, "Harry", 1, began + 32 * MS).unwrap();
        assert_eq!(later.retry_after(), Some(RetryAfter::After(Span::from_micros(70_000))));
        assert_eq!(later.reset_after(), Span::from_micros(970_000));
        assert_eq!((later.allowed(), later.limit(), later.denied_by()), (false, 10, Some(0)));
        assert!(get(&denials, "Harry", 1, began + 100 * MS - Duration::from_nanos(1)).is_some());
        assert_eq!(get(&denials, "Harry", 1, began + 100 * MS), None);
        assert_eq!(get(&denials, "Sally", 1, began), None);
    }

    #[test]
    fn no_denial_is_remembered_for_longer_than_the_longest_time() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.insert("Harry".into(), denial("token-bucket 10/h", 10, 1, began));
        assert!(get(&denials, "Harry", 1, began + DENIAL_CACHE_AGE_MAX - MS).is_some());
        assert_eq!(get(&denials, "Harry", 1, began + DENIAL_CACHE_AGE_MAX), None);
    }

    #[test]
    fn a_smaller_cost_and_one_that_can_never_be_allowed_are_not_known() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.insert("Harry".into(), denial("token-bucket 10/s", 7, 5, began));
        assert_eq!(get(&denials, "Harry", 4, began), None);
        assert!(get(&denials, "Harry", 5, began).is_some() && get(&denials, "Harry", 10, began).is_some());
        assert_eq!(get(&denials, "Harry", 11, began), None);
        // A larger cost that was asked all the same does not push the smaller one out.
        denials.insert("Harry".into(), denial("token-bucket 10/s", 7, 11, began));
        assert!(get(&denials, "Harry", 5, began).is_some());
        denials.insert("Sally".into(), denial("token-bucket 10/s", 7, 11, began));
        let never = get(&denials, "Sally", 12, began + 500 * MS).unwrap();
        assert_eq!(never.retry_after(), Some(RetryAfter::Never));
        assert_eq!(get(&denials, "Sally", 10, began), None);
    }

    #[test]
    fn other_limits_on_the_same_key_are_asked() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.insert("Harry".into(), denial("token-bucket 10/s", 10, 1, began));
        assert_eq!(denials.get(|| "Harry".into(), "others", 1, 10, began), None);
    }

    #[test]
    fn what_is_forgotten_stays_so_even_if_an_older_answer_comes_after() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        let denied = denial("token-bucket 10/s", 10, 1, began);
        denials.insert("Harry".into(), denied.clone());
        denials.invalidate(b"Harry", began + MS);
        assert_eq!(get(&denials, "Harry", 1, began + MS), None);
        denials.insert("Harry".into(), denied.clone());
        assert_eq!(get(&denials, "Harry", 1, began + 2 * MS), None);
        let newer = Denial { began: began + 2 * MS, received: began + 3 * MS, ..denied };
        denials.insert("Harry".into(), newer);
        assert!(get(&denials, "Harry", 1, began + 3 * MS).is_some());
    }

    #[test]
    fn allowed_calls_and_denials_that_came_too_late_are_not_remembered() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.insert("Harry".into(), denial("token-bucket 10/s", 7, 1, began));
        let late = Denial { received: began + 100 * MS, ..denial("token-bucket 10/s", 10, 1, began) };
        denials.insert("Harry".into(), late);
        assert_eq!(denials.expiry.load(Relaxed), 0);
    }

    #[test]
    fn the_oldest_make_room_and_names_that_are_too_long_are_not_kept() {
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
