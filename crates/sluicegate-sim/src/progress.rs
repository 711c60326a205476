//! Progress reports at a bounded rate.

/// Reports once per this many calls.
pub(crate) const TELL_EACH: usize = 1 << 16;

pub(crate) struct Progress<T: FnMut(u64)> {
    tell: T,
    untold: usize,
}

impl<T: FnMut(u64)> Progress<T> {
    /// `tell` hears how many more calls are done.
    pub(crate) fn new(tell: T) -> Progress<T> {
        Progress { tell, untold: 0 }
    }

    pub(crate) fn add(&mut self, calls: usize) {
        self.untold += calls;
        if self.untold >= TELL_EACH {
            self.finish();
        }
    }

    /// Reports what has not been reported yet.
    pub(crate) fn finish(&mut self) {
        (self.tell)(std::mem::take(&mut self.untold) as u64);
    }
}
