//! Code of the user's, run when no lock is held: wakers, observers, alarms of a clock.
//!
//! One that panics keeps nobody else from being told, and does not end the process when it is told of by something that a panic drops.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What there is to run, one after another.
#[derive(Default)]
#[must_use = "a panic goes on at the `end`"]
pub struct Callbacks {
    panicked: Option<Box<dyn Any + Send>>,
}

impl Callbacks {
    /// Runs one, whatever it does.
    pub fn run(&mut self, callback: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
            self.panicked.get_or_insert(panic);
        }
    }

    /// All have run. The first panic goes on, unless another does already: two at once would end the process.
    pub fn end(self) {
        if let Some(panic) = self.panicked.filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}
