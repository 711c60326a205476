//! A sorted map that is quick where things mostly come and go in its order: those who wait in line, the moments at which their patience
//! ends, leases by when they lapse.
//!
//! ```text
//! lane    a  b  -  d  e  f        in order; `-` was taken out from the middle, and is passed over
//!         ▲ goes              ▲ comes, as it is after all others
//! rest    what came out of order: a tree
//! ```
//!
//! Coming last and going first take one step each, in memory that lies together. Everything else takes O(log n), as in a tree.

use alloc::collections::{BTreeMap, VecDeque, btree_map};
use core::iter::Peekable;

/// After a rush so many empty places are kept.
const KEPT: usize = 1_024;

/// Things by their keys. Pick it over a tree where a new one is mostly the last and leaves as the first.
#[derive(Clone, Debug)]
pub struct InOrder<K, V> {
    /// By key. `None` was taken out; neither the first nor the last is.
    lane: VecDeque<(K, Option<V>)>,
    /// How many of these were taken out: never more than are left.
    gone: usize,
    rest: BTreeMap<K, V>,
}

impl<K, V> Default for InOrder<K, V> {
    fn default() -> Self {
        InOrder { lane: VecDeque::new(), gone: 0, rest: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, V> InOrder<K, V> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.lane.len() - self.gone + self.rest.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lane.is_empty() && self.rest.is_empty()
    }

    /// Puts something in. What had that key before.
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
        let Some(place) = self.place(&key) else { return self.rest.insert(key, value) };
        let before = self.lane.get_mut(place).and_then(|(_, place)| place.replace(value));
        self.gone -= usize::from(before.is_none());
        before
    }

    /// Takes something out.
    #[inline]
    pub fn remove(&mut self, key: &K) -> Option<V> {
        if self.lane.front().is_some_and(|(first, _)| first == key) {
            return self.pop_lane();
        }
        self.remove_between(key)
    }

    #[cold]
    fn remove_between(&mut self, key: &K) -> Option<V> {
        let Some(place) = self.place(key) else { return self.rest.remove(key) };
        let value = self.lane.get_mut(place).and_then(|(_, value)| value.take())?;
        self.gone += 1;
        if self.gone > self.lane.len() / 2 {
            self.lane.retain(|(_, value)| value.is_some());
            self.gone = 0;
        }
        self.trim();
        Some(value)
    }

    /// What has a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self.place(key) {
            Some(place) => self.lane.get_mut(place).and_then(|(_, value)| value.as_mut()),
            None => self.rest.get_mut(key),
        }
    }

    /// The first by its key.
    #[inline]
    pub fn first(&self) -> Option<(&K, &V)> {
        let lane = self.lane.front().and_then(|(key, value)| Some((key, value.as_ref()?)));
        if self.rest.is_empty() {
            return lane;
        }
        let rest = self.rest.first_key_value();
        lane.into_iter().chain(rest).min_by(|a, b| a.0.cmp(b.0))
    }

    /// The last by its key.
    #[inline]
    pub fn last(&self) -> Option<(&K, &V)> {
        let lane = self.lane.back().and_then(|(key, value)| Some((key, value.as_ref()?)));
        if self.rest.is_empty() {
            return lane;
        }
        lane.into_iter().chain(self.rest.last_key_value()).max_by(|a, b| a.0.cmp(b.0))
    }

    /// Takes out the first.
    #[inline]
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let key = *self.first()?.0;
        self.remove(&key).map(|value| (key, value))
    }

    /// All that are there, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let lane = self.lane.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        Merged { lane: lane.peekable(), rest: self.rest.iter().peekable() }
    }

    /// All that are there, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let lane = self.lane.iter_mut().filter_map(|(key, value)| Some((&*key, value.as_mut()?)));
        lane.chain(self.rest.iter_mut())
    }

    /// Takes out all of them, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, V)> + use<K, V> {
        let InOrder { lane, rest, .. } = core::mem::take(self);
        lane.into_iter().filter_map(|(key, value)| Some((key, value?))).chain(rest)
    }

    /// Where a key is in the lane, though it may have been taken out.
    fn place(&self, key: &K) -> Option<usize> {
        self.lane.binary_search_by(|(other, _)| other.cmp(key)).ok()
    }

    #[inline]
    fn pop_lane(&mut self) -> Option<V> {
        let (_, value) = self.lane.pop_front()?;
        if self.gone > 0 || self.lane.is_empty() {
            self.trim();
        }
        value
    }

    /// Sees to it that neither the first nor the last was taken out.
    #[cold]
    fn trim(&mut self) {
        while self.lane.front().is_some_and(|(_, value)| value.is_none()) {
            self.lane.pop_front();
            self.gone -= 1;
        }
        while self.lane.back().is_some_and(|(_, value)| value.is_none()) {
            self.lane.pop_back();
            self.gone -= 1;
        }
        if self.lane.is_empty() && self.lane.capacity() > KEPT {
            self.lane = VecDeque::new();
        }
    }
}

/// Two sequences in order as one.
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

/// The same things under the same keys, however they came there.
impl<K: Ord + Copy, V: PartialEq> PartialEq for InOrder<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Ord + Copy, V: Eq> Eq for InOrder<K, V> {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Beside the standard library's map: mostly in order, as it is made for, and in no order at all.
    #[test]
    fn it_is_a_sorted_map() {
        for seed in 0..200_u128 {
            let mut state = seed * 7_919 + 1;
            let mut below = |end: u32| {
                state = state * 6_364_136_223_846_793_005 % 18_446_744_073_709_551_557;
                u32::try_from(state % u128::from(end)).unwrap()
            };
            let (mut ours, mut theirs) = (InOrder::default(), BTreeMap::new());
            let (mut next, out_of_order) = (0, below(3) * below(3));
            for step in 0..600 {
                let any = below(next + 1);
                let key = if below(10) < out_of_order { any } else { next };
                next = next.max(key) + below(2);
                // It fills, then empties.
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
            let mut again = InOrder::default();
            for (key, value) in all.iter().rev() {
                again.insert(*key, *value);
            }
            assert_eq!(ours, again);
            assert_eq!(ours.drain().count(), all.len());
            assert!(ours.is_empty() && ours.first().is_none());
        }
    }

    #[test]
    fn what_is_taken_out_from_the_middle_leaves_no_more_behind_than_there_is() {
        let mut map = InOrder::default();
        for key in 0..10_000_u32 {
            map.insert(key, ());
        }
        for key in 1..9_999 {
            map.remove(&key);
            assert!(map.lane.len() <= 2 * map.len(), "{} of {}", map.lane.len(), map.len());
        }
        assert_eq!((map.pop_first(), map.pop_first()), (Some((0, ())), Some((9_999, ()))));
        assert_eq!(map.lane.capacity(), 0, "after a rush it gives its memory back");
    }
}
