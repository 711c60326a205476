//! Progress reports at a bounded rate.

/// Reports once per this many calls.
pub(crate) const REPORT_EACH: usize = 1 << 16;

pub(crate) struct Progress<T: FnMut(u64)> {
    report: T,
    unreported: usize,
}

impl<T: FnMut(u64)> Progress<T> {
    /// `report` receives how many more calls are done.
    pub(crate) fn new(report: T) -> Progress<T> {
        Progress { report, unreported: 0 }
    }

    pub(crate) fn add(&mut self, calls: usize) {
        self.unreported += calls;
        if self.unreported >= REPORT_EACH {
            self.finish();
        }
    }

    /// Reports what has not been reported yet.
    pub(crate) fn finish(&mut self) {
        (self.report)(std::mem::take(&mut self.unreported) as u64);
    }
}
