//! A slab: values under small indices. Insertion, lookup and removal take constant time.

/// After a rush, at most this many free entries are kept.
const KEPT_FREE_MAX: usize = 1_024;

pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    /// The entry that was freed last; each free entry names the next.
    free: Option<u32>,
    len: usize,
}

enum Entry<T> {
    Free(Option<u32>),
    Used(T),
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: None, len: 0 }
    }
}

impl<T> Slab<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The index of the next value.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        // Never truncated: everything stored in a slab is bounded far below 2^32.
        self.free.unwrap_or_else(|| u32::try_from(self.entries.len()).unwrap_or(u32::MAX))
    }

    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if let Some(index) = self.free
            && let Some(entry) = self.entries.get_mut(to_usize(index))
            && let Entry::Free(next) = *entry
        {
            self.free = next;
            *entry = Entry::Used(value);
            return index;
        }
        let index = self.next();
        self.entries.push(Entry::Used(value));
        index
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        match self.entries.get(to_usize(index)) {
            Some(Entry::Used(value)) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.entries.get_mut(to_usize(index)) {
            Some(Entry::Used(value)) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.entries.get_mut(to_usize(index))?;
        if let Entry::Free(_) = entry {
            return None;
        }
        let Entry::Used(value) = std::mem::replace(entry, Entry::Free(self.free)) else { return None };
        self.free = Some(index);
        self.len -= 1;
        if self.len == 0 && self.entries.capacity() > KEPT_FREE_MAX {
            *self = Slab::default();
        }
        Some(value)
    }

    /// All values with their indices.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.entries).filter_map(|(index, entry)| match entry {
            Entry::Used(value) => Some((index, value)),
            Entry::Free(_) => None,
        })
    }
}

#[inline]
fn to_usize(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_entries_are_reused_and_released_after_a_rush() {
        let mut slab = Slab::default();
        let indices: Vec<u32> = (0..5_000_u32).map(|value| slab.insert(value)).collect();
        assert_eq!((slab.len(), slab.get(7)), (5_000, Some(&7)));
        assert_eq!((slab.remove(7), slab.remove(7), slab.get(7)), (Some(7), None, None));
        assert_eq!((slab.insert(70), slab.get(7)), (7, Some(&70)));
        assert_eq!(slab.iter_mut().count(), 5_000);
        for index in indices {
            slab.remove(index);
        }
        assert_eq!((slab.len(), slab.entries.capacity()), (0, 0));
        assert_eq!(slab.remove(3), None);
    }
}
