//! The denial cache: recent denials, so that callers that do not stop cost the store nothing.
//!
//! In plain words: what was denied a moment ago, and is not over yet, is denied again from here. Nothing else: whatever is not
//! known for sure to be denied is asked at the store.
//!
//! Promise    A denial ends here no later than in the store: its time is counted from before the store was asked.
//! Bounds     At most [`DENIAL_CACHE_KEYS_MAX`] keys with names of at most [`NAME_MAX`] bytes, each for at most [`DENIAL_CACHE_AGE_MAX`].
//! Cost       Looking where nothing is remembered is to read one number.

use sluicegate::{Decision, RetryAfter, Span};
use sluicegate_core::decision::store::StoreDecision as _;
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
/// When something was forgotten last is known for each of so many parts of all names.
const PARTS: usize = 256;

/// The denials of a store's keys.
pub(crate) struct DenialCache {
    start: Instant,
    /// When the last of them is over, in microseconds since the start.
    over: AtomicU64,
    kept: Mutex<Kept>,
}

/// Two halves: when the young one is full, it becomes the old one, and what was old makes room.
struct Kept {
    young: HashMap<Vec<u8>, Denial>,
    old: HashMap<Vec<u8>, Denial>,
    forgotten: Vec<Option<Instant>>,
    parts: RandomState,
}

/// One denial.
#[derive(Clone)]
pub(crate) struct Denial {
    /// Of whose limits it is: other limits on the same key may decide otherwise.
    pub(crate) owner: Arc<str>,
    pub(crate) cost: u32,
    pub(crate) decision: Decision,
    /// Before the store was asked: from here it is counted how long the denial holds, so that it never holds for too long.
    pub(crate) began: Instant,
    /// When its answer was there: from here it is counted what is left to wait, as whoever was told then counts.
    pub(crate) told: Instant,
}

impl Denial {
    /// When it is over; `None` if it is no denial.
    fn end(&self) -> Option<Instant> {
        let holds = match self.decision.retry_after()? {
            RetryAfter::After(wait) => Duration::from_micros(wait.as_micros()).min(DENIAL_CACHE_AGE_MAX),
            RetryAfter::Never => DENIAL_CACHE_AGE_MAX,
        };
        Some(self.began + holds)
    }

    fn holds(&self, now: Instant) -> bool {
        self.end().is_some_and(|end| now < end)
    }
}

impl DenialCache {
    pub(crate) fn new() -> DenialCache {
        let kept = Kept {
            young: HashMap::new(),
            old: HashMap::new(),
            forgotten: vec![None; PARTS],
            parts: RandomState::new(),
        };
        DenialCache { start: Instant::now(), over: AtomicU64::new(0), kept: Mutex::new(kept) }
    }

    /// The denial of a call of this cost, if it is known to be one. `most` is the largest cost that can be allowed at all.
    pub(crate) fn find(
        &self,
        name: impl FnOnce() -> Vec<u8>,
        owner: &str,
        cost: u32,
        most: u32,
        now: Instant,
    ) -> Option<Decision> {
        if self.over.load(Relaxed) <= self.micros(now) {
            return None;
        }
        let name = name();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let denial = kept.get(&name)?;
        let is_same = *denial.owner == *owner && cost >= denial.cost && denial.holds(now);
        // What can never be allowed must not be told to wait.
        let is_never = denial.decision.retry_after() == Some(RetryAfter::Never);
        if !is_same || (cost > most && !is_never) {
            return None;
        }
        let passed = now.saturating_duration_since(denial.told).as_micros();
        Some(denial.decision.aged_by(Span::from_micros(u64::try_from(passed).unwrap_or(u64::MAX))))
    }

    /// Remembers a denial, unless it is over or the key was forgotten since the store was asked.
    pub(crate) fn remember(&self, name: Vec<u8>, denial: Denial) {
        let Some(end) = denial.end().filter(|end| denial.told < *end && name.len() <= NAME_MAX) else {
            return;
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.forgotten[kept.part(&name)].is_some_and(|at| at >= denial.began) {
            return;
        }
        // The smaller cost says more.
        let known = kept.get(&name).filter(|known| known.owner == denial.owner && known.holds(denial.told));
        if known.is_some_and(|known| known.cost < denial.cost) {
            return;
        }
        if kept.young.len() >= DENIAL_CACHE_KEYS_MAX / 2 && !kept.young.contains_key(&name) {
            let Kept { young, old, .. } = &mut *kept;
            mem::swap(young, old);
            young.clear();
        }
        kept.young.insert(name, denial);
        // Rounded up, so that it is not over too early.
        self.over.fetch_max(self.micros(end).saturating_add(1), Relaxed);
    }

    /// Forgets what is known of a key, and what is still under way.
    pub(crate) fn forget(&self, name: &[u8], now: Instant) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let part = kept.part(name);
        kept.forgotten[part] = Some(now);
        kept.young.remove(name);
        kept.old.remove(name);
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX)
    }
}

impl Kept {
    fn get(&self, name: &[u8]) -> Option<&Denial> {
        self.young.get(name).or_else(|| self.old.get(name))
    }

    fn part(&self, name: &[u8]) -> usize {
        usize::try_from(self.parts.hash_one(name)).unwrap_or(0) % PARTS
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
        assert!(limiter.check_at("Harry", used.into(), Time::EPOCH).allowed());
        limiter.check_at("Harry", cost.into(), Time::EPOCH)
    }

    fn denial(limit: &str, used: u32, cost: u32, began: Instant) -> Denial {
        let decision = decision(limit, used, cost);
        Denial { owner: "us".into(), cost, decision, began, told: began + 2 * MS }
    }

    fn find(denials: &DenialCache, name: &str, cost: u32, at: Instant) -> Option<Decision> {
        denials.find(|| name.into(), "us", cost, 10, at)
    }

    #[test]
    fn a_denial_holds_until_its_time_is_over_and_tells_what_is_left() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        let denied = denial("token-bucket 10/s", 10, 1, began);
        assert_eq!(denied.decision.retry_after(), Some(RetryAfter::After(Span::from_micros(100_000))));
        denials.remember("Harry".into(), denied.clone());
        assert_eq!(find(&denials, "Harry", 1, began + MS), Some(denied.decision));
        let later = find(&denials, "Harry", 1, began + 32 * MS).unwrap();
        assert_eq!(later.retry_after(), Some(RetryAfter::After(Span::from_micros(70_000))));
        assert_eq!(later.reset_after(), Span::from_micros(970_000));
        assert_eq!((later.allowed(), later.limit(), later.denied_by()), (false, 10, Some(0)));
        assert!(find(&denials, "Harry", 1, began + 100 * MS - Duration::from_nanos(1)).is_some());
        assert_eq!(find(&denials, "Harry", 1, began + 100 * MS), None);
        assert_eq!(find(&denials, "Sally", 1, began), None);
    }

    #[test]
    fn no_denial_is_remembered_for_longer_than_the_longest_time() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.remember("Harry".into(), denial("token-bucket 10/h", 10, 1, began));
        assert!(find(&denials, "Harry", 1, began + DENIAL_CACHE_AGE_MAX - MS).is_some());
        assert_eq!(find(&denials, "Harry", 1, began + DENIAL_CACHE_AGE_MAX), None);
    }

    #[test]
    fn a_smaller_cost_and_one_that_can_never_be_allowed_are_not_known() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.remember("Harry".into(), denial("token-bucket 10/s", 7, 5, began));
        assert_eq!(find(&denials, "Harry", 4, began), None);
        assert!(find(&denials, "Harry", 5, began).is_some() && find(&denials, "Harry", 10, began).is_some());
        assert_eq!(find(&denials, "Harry", 11, began), None);
        // A larger cost that was asked all the same does not push the smaller one out.
        denials.remember("Harry".into(), denial("token-bucket 10/s", 7, 11, began));
        assert!(find(&denials, "Harry", 5, began).is_some());
        denials.remember("Sally".into(), denial("token-bucket 10/s", 7, 11, began));
        let never = find(&denials, "Sally", 12, began + 500 * MS).unwrap();
        assert_eq!(never.retry_after(), Some(RetryAfter::Never));
        assert_eq!(find(&denials, "Sally", 10, began), None);
    }

    #[test]
    fn other_limits_on_the_same_key_are_asked() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.remember("Harry".into(), denial("token-bucket 10/s", 10, 1, began));
        assert_eq!(denials.find(|| "Harry".into(), "others", 1, 10, began), None);
    }

    #[test]
    fn what_is_forgotten_stays_so_even_if_an_older_answer_comes_after() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        let denied = denial("token-bucket 10/s", 10, 1, began);
        denials.remember("Harry".into(), denied.clone());
        denials.forget(b"Harry", began + MS);
        assert_eq!(find(&denials, "Harry", 1, began + MS), None);
        denials.remember("Harry".into(), denied.clone());
        assert_eq!(find(&denials, "Harry", 1, began + 2 * MS), None);
        let newer = Denial { began: began + 2 * MS, told: began + 3 * MS, ..denied };
        denials.remember("Harry".into(), newer);
        assert!(find(&denials, "Harry", 1, began + 3 * MS).is_some());
    }

    #[test]
    fn allowed_calls_and_denials_that_came_too_late_are_not_remembered() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        denials.remember("Harry".into(), denial("token-bucket 10/s", 7, 1, began));
        let late = Denial { told: began + 100 * MS, ..denial("token-bucket 10/s", 10, 1, began) };
        denials.remember("Harry".into(), late);
        assert_eq!(denials.over.load(Relaxed), 0);
    }

    #[test]
    fn the_oldest_make_room_and_names_that_are_too_long_are_not_kept() {
        let (denials, began) = (DenialCache::new(), Instant::now());
        let denied = denial("token-bucket 10/s", 10, 1, began);
        for key in 0..3 * DENIAL_CACHE_KEYS_MAX {
            denials.remember(key.to_string().into(), denied.clone());
            let kept = denials.kept.lock().unwrap();
            assert!(kept.young.len() + kept.old.len() <= DENIAL_CACHE_KEYS_MAX);
        }
        let newest = 3 * DENIAL_CACHE_KEYS_MAX - DENIAL_CACHE_KEYS_MAX / 2;
        assert!(
            (newest..3 * DENIAL_CACHE_KEYS_MAX)
                .all(|key| find(&denials, &key.to_string(), 1, began).is_some())
        );
        assert_eq!(find(&denials, "0", 1, began), None);
        let long = "x".repeat(NAME_MAX + 1);
        denials.remember(long.clone().into(), denied);
        assert_eq!(find(&denials, &long, 1, began), None);
    }
}
