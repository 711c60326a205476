//! Runs user code while no lock is held: wakers, observers and clocks.
//!
//! A callback that panics does not keep the others from running. If it runs while another panic
//! unwinds, its own panic is dropped, because two at once would abort the process.
//!
//! Before any callback runs, everything that was granted has an owner, so a panic leaks nothing.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs callbacks, and keeps the first panic.
#[derive(Default)]
#[must_use = "`end` resumes a panic"]
pub struct Callbacks {
    panicked: Option<Box<dyn Any + Send>>,
}

impl Callbacks {
    /// Runs a callback, and catches its panic.
    pub fn run(&mut self, callback: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
            self.panicked.get_or_insert(panic);
        }
    }

    /// Ends the run: resumes the first panic, unless the thread is panicking already.
    pub fn end(self) {
        if let Some(panic) = self.panicked.filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}
