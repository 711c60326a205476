//! A sorted map for keys that mostly arrive and leave in order: waiters, deadlines, leases by
//! expiry.
//!
//! ```text
//! lane    a  b  -  d  e  f        sorted; `-` is a tombstone, skipped by readers
//!         ▲ removed           ▲ appended, as its key is the largest
//! rest    keys that arrived out of order: a tree
//! ```
//!
//! Appending the last key and removing the first take constant time, in contiguous memory.
//! Everything else takes O(log n), as in a tree.

use alloc::collections::{BTreeMap, VecDeque, btree_map};
use core::iter::Peekable;

/// The capacity that an empty lane keeps after a burst.
const KEPT: usize = 1_024;

/// A sorted map. Pick it over a tree where a new key is mostly the largest, and the smallest leaves
/// first.
#[derive(Clone, Debug)]
pub struct AppendMostlyMap<K, V> {
    /// Sorted by key. `None` is a tombstone; neither the first nor the last entry is one.
    lane: VecDeque<(K, Option<V>)>,
    /// The number of tombstones: never more than half of the lane.
    tombstones: usize,
    rest: BTreeMap<K, V>,
}

impl<K, V> Default for AppendMostlyMap<K, V> {
    fn default() -> Self {
        AppendMostlyMap { lane: VecDeque::new(), tombstones: 0, rest: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, V> AppendMostlyMap<K, V> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.lane.len() - self.tombstones + self.rest.len()
    }

    /// Returns `true` if there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lane.is_empty() && self.rest.is_empty()
    }

    /// Inserts a value. Returns the previous value of the key.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.lane.back().is_none_or(|(last, _)| *last < key) {
            self.lane.push_back((key, Some(value)));
            return self.rest.remove(&key);
        }
        self.insert_between(key, value)
    }

    #[cold]
    fn insert_between(&mut self, key: K, value: V) -> Option<V> {
        let Some(index) = self.find(&key) else { return self.rest.insert(key, value) };
        let before = self.lane.get_mut(index).and_then(|(_, slot)| slot.replace(value));
        self.tombstones -= usize::from(before.is_none());
        before
    }

    /// Removes a key. Returns its value.
    #[inline]
    pub fn remove(&mut self, key: &K) -> Option<V> {
        if self.lane.front().is_some_and(|(first, _)| first == key) {
            return self.pop_lane();
        }
        self.remove_between(key)
    }

    #[cold]
    fn remove_between(&mut self, key: &K) -> Option<V> {
        let Some(index) = self.find(key) else { return self.rest.remove(key) };
        let value = self.lane.get_mut(index).and_then(|(_, value)| value.take())?;
        self.tombstones += 1;
        if self.tombstones > self.lane.len() / 2 {
            self.lane.retain(|(_, value)| value.is_some());
            self.tombstones = 0;
        }
        self.trim();
        Some(value)
    }

    /// Returns the value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self.find(key) {
            Some(index) => self.lane.get_mut(index).and_then(|(_, value)| value.as_mut()),
            None => self.rest.get_mut(key),
        }
    }

    /// Returns the entry with the smallest key.
    #[inline]
    pub fn first(&self) -> Option<(&K, &V)> {
        let lane = self.lane.front().and_then(|(key, value)| Some((key, value.as_ref()?)));
        if self.rest.is_empty() {
            return lane;
        }
        let rest = self.rest.first_key_value();
        lane.into_iter().chain(rest).min_by(|a, b| a.0.cmp(b.0))
    }

    /// Returns the entry with the largest key.
    #[inline]
    pub fn last(&self) -> Option<(&K, &V)> {
        let lane = self.lane.back().and_then(|(key, value)| Some((key, value.as_ref()?)));
        if self.rest.is_empty() {
            return lane;
        }
        lane.into_iter().chain(self.rest.last_key_value()).max_by(|a, b| a.0.cmp(b.0))
    }

    /// Removes and returns the entry with the smallest key.
    #[inline]
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let key = *self.first()?.0;
        self.remove(&key).map(|value| (key, value))
    }

    /// Iterates over the entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let lane = self.lane.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        Merged { lane: lane.peekable(), rest: self.rest.iter().peekable() }
    }

    /// Iterates over the entries in no particular order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let lane = self.lane.iter_mut().filter_map(|(key, value)| Some((&*key, value.as_mut()?)));
        lane.chain(self.rest.iter_mut())
    }

    /// Removes and returns all entries in no particular order.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, V)> + use<K, V> {
        let AppendMostlyMap { lane, rest, .. } = core::mem::take(self);
        lane.into_iter().filter_map(|(key, value)| Some((key, value?))).chain(rest)
    }

    /// Returns the index of a key in the lane, where it may be a tombstone.
    fn find(&self, key: &K) -> Option<usize> {
        self.lane.binary_search_by(|(other, _)| other.cmp(key)).ok()
    }

    #[inline]
    fn pop_lane(&mut self) -> Option<V> {
        let (_, value) = self.lane.pop_front()?;
        if self.tombstones > 0 || self.lane.is_empty() {
            self.trim();
        }
        value
    }

    /// Removes tombstones from both ends, and the memory of a lane that was long and is empty.
    #[cold]
    fn trim(&mut self) {
        while self.lane.front().is_some_and(|(_, value)| value.is_none()) {
            self.lane.pop_front();
            self.tombstones -= 1;
        }
        while self.lane.back().is_some_and(|(_, value)| value.is_none()) {
            self.lane.pop_back();
            self.tombstones -= 1;
        }
        if self.lane.is_empty() && self.lane.capacity() > KEPT {
            self.lane = VecDeque::new();
        }
    }
}

/// Merges two sorted sequences.
struct Merged<'a, K, V, L: Iterator<Item = (&'a K, &'a V)>> {
    lane: Peekable<L>,
    rest: Peekable<btree_map::Iter<'a, K, V>>,
}

impl<'a, K: Ord, V, L: Iterator<Item = (&'a K, &'a V)>> Iterator for Merged<'a, K, V, L> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        match (self.lane.peek(), self.rest.peek()) {
            (Some((lane, _)), Some((rest, _))) if rest < lane => self.rest.next(),
            (Some(_), _) => self.lane.next(),
            (None, _) => self.rest.next(),
        }
    }
}

/// Equal if they hold equal values under the same keys, in whichever part.
impl<K: Ord + Copy, V: PartialEq> PartialEq for AppendMostlyMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Ord + Copy, V: Eq> Eq for AppendMostlyMap<K, V> {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Compared with `BTreeMap`: mostly in order, as intended, and in no order at all.
    #[test]
    fn it_behaves_as_a_sorted_map() {
        for seed in 0..200_u128 {
            let mut state = seed * 7_919 + 1;
            let mut below = |end: u32| {
                state = state * 6_364_136_223_846_793_005 % 18_446_744_073_709_551_557;
                u32::try_from(state % u128::from(end)).unwrap()
            };
            let (mut ours, mut theirs) = (AppendMostlyMap::default(), BTreeMap::new());
            let (mut next, out_of_order) = (0, below(3) * below(3));
            for step in 0..600 {
                let any = below(next + 1);
                let key = if below(10) < out_of_order { any } else { next };
                next = next.max(key) + below(2);
                // The map fills, then drains.
                match below(if step < 300 { 6 } else { 12 }) {
                    0..4 => assert_eq!(ours.insert(key, step), theirs.insert(key, step)),
                    4 => assert_eq!(ours.remove(&any), theirs.remove(&any)),
                    5 => assert_eq!(ours.get_mut(&any), theirs.get_mut(&any)),
                    _ => assert_eq!(ours.pop_first(), theirs.pop_first()),
                }
                assert_eq!((ours.len(), ours.is_empty()), (theirs.len(), theirs.is_empty()));
                assert_eq!(ours.first(), theirs.first_key_value(), "seed {seed}, step {step}");
                assert_eq!(ours.last(), theirs.last_key_value(), "seed {seed}, step {step}");
            }
            assert!(ours.iter().eq(theirs.iter()), "seed {seed}");
            let mut all: Vec<_> = ours.iter_mut().map(|(key, value)| (*key, *value)).collect();
            all.sort_unstable();
            let mut again = AppendMostlyMap::default();
            for (key, value) in all.iter().rev() {
                again.insert(*key, *value);
            }
            assert_eq!(ours, again);
            assert_eq!(ours.drain().count(), all.len());
            assert!(ours.is_empty() && ours.first().is_none());
        }
    }

    #[test]
    fn tombstones_are_never_more_than_half_of_the_lane() {
        let mut map = AppendMostlyMap::default();
        for key in 0..10_000_u32 {
            map.insert(key, ());
        }
        for key in 1..9_999 {
            map.remove(&key);
            assert!(map.lane.len() <= 2 * map.len(), "{} of {}", map.lane.len(), map.len());
        }
        assert_eq!((map.pop_first(), map.pop_first()), (Some((0, ())), Some((9_999, ()))));
        assert_eq!(map.lane.capacity(), 0, "an empty lane frees its memory");
    }
}
