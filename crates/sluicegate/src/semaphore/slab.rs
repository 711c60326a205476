//! Numbered places for things that come and go: putting in, finding and taking out take one step each.

/// After a rush so many empty places are kept.
const KEPT: usize = 1_024;

pub(super) struct Slab<T> {
    places: Vec<Place<T>>,
    /// The last one that became free; each free one names the next.
    free: Option<u32>,
    len: usize,
}

enum Place<T> {
    Free(Option<u32>),
    Taken(T),
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: None, len: 0 }
    }
}

impl<T> Slab<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number that the next one will have.
    #[inline]
    pub(super) fn next(&self) -> u32 {
        // Never cut: whoever fills it is bounded far below 2^32.
        self.free.unwrap_or_else(|| u32::try_from(self.places.len()).unwrap_or(u32::MAX))
    }

    #[inline]
    pub(super) fn insert(&mut self, thing: T) -> u32 {
        self.len += 1;
        if let Some(number) = self.free
            && let Some(place) = self.places.get_mut(index(number))
            && let Place::Free(next) = *place
        {
            self.free = next;
            *place = Place::Taken(thing);
            return number;
        }
        let number = self.next();
        self.places.push(Place::Taken(thing));
        number
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        match self.places.get(index(number)) {
            Some(Place::Taken(thing)) => Some(thing),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        match self.places.get_mut(index(number)) {
            Some(Place::Taken(thing)) => Some(thing),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let place = self.places.get_mut(index(number))?;
        if let Place::Free(_) = place {
            return None;
        }
        let Place::Taken(thing) = std::mem::replace(place, Place::Free(self.free)) else { return None };
        self.free = Some(number);
        self.len -= 1;
        if self.len == 0 && self.places.capacity() > KEPT {
            *self = Slab::default();
        }
        Some(thing)
    }

    /// All that are there, with their numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.places).filter_map(|(number, place)| match place {
            Place::Taken(thing) => Some((number, thing)),
            Place::Free(_) => None,
        })
    }
}

#[inline]
fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_given_up_after_a_rush() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> = (0..5_000_u32).map(|thing| slab.insert(thing)).collect();
        assert_eq!((slab.len(), slab.get(7)), (5_000, Some(&7)));
        assert_eq!((slab.remove(7), slab.remove(7), slab.get(7)), (Some(7), None, None));
        assert_eq!((slab.insert(70), slab.get(7)), (7, Some(&70)));
        assert_eq!(slab.iter_mut().count(), 5_000);
        for number in numbers {
            slab.remove(number);
        }
        assert_eq!((slab.len(), slab.places.capacity()), (0, 0));
        assert_eq!(slab.remove(3), None);
    }
}
