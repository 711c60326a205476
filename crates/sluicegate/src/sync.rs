//! The locks and shared counts of the store: loom's when the model checker runs it. What a place's lock guards, and the
//! words of the tables, stay the standard library's: the model checker sees the locks, not the words.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::{Mutex, MutexGuard};

pub use lock::{Guard, Lock};

/// A lock that is given back with a plain store.
///
/// Why not the standard library's: giving that back takes a second atomic read-modify-write, 2.5 ns on a hot key
/// (docs/benchmarks.md). What is held is short: some 20 ns, a few microseconds when a new key looks for room.
///
/// Whoever finds it taken spins for about a microsecond, then lets others run, then sleeps for short times: so it
/// ends even if the holder has a lower priority and waits for this very processor.
#[cfg(not(loom))]
mod lock {
    use spin::mutex::{SpinMutex, SpinMutexGuard};
    use std::time::Duration;

    /// Tries before others are let run, each a little longer than the one before.
    const SPINS: u32 = 8;
    /// Tries, letting others run in between, before sleeping.
    const YIELDS: u32 = 64;
    const SLEEP: Duration = Duration::from_micros(50);

    /// A lock.
    pub struct Lock<T>(SpinMutex<T>);

    /// The lock, held.
    pub type Guard<'a, T> = SpinMutexGuard<'a, T>;

    impl<T> Lock<T> {
        /// One that nobody holds.
        pub fn new(value: T) -> Lock<T> {
            Lock(SpinMutex::new(value))
        }

        /// Without waiting.
        #[inline]
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_lock()
        }

        /// Waits for it.
        #[inline]
        pub fn lock(&self) -> Guard<'_, T> {
            match self.0.try_lock() {
                Some(guard) => guard,
                None => self.wait(),
            }
        }

        /// Reads the lock, so that it is in the cache when it is taken.
        #[inline]
        pub fn touch(&self) -> bool {
            self.0.is_locked()
        }

        #[cold]
        fn wait(&self) -> Guard<'_, T> {
            let mut tries = 0_u32;
            loop {
                match tries {
                    0..SPINS => (0..1_u32 << tries).for_each(|_| std::hint::spin_loop()),
                    SPINS..YIELDS => std::thread::yield_now(),
                    _ => std::thread::sleep(SLEEP),
                }
                if !self.0.is_locked()
                    && let Some(guard) = self.0.try_lock()
                {
                    return guard;
                }
                tries = tries.saturating_add(1);
            }
        }
    }
}

#[cfg(loom)]
mod lock {
    use loom::sync::{Mutex, MutexGuard};
    use std::sync::PoisonError;

    /// A lock.
    pub struct Lock<T>(Mutex<T>);

    /// The lock, held.
    pub type Guard<'a, T> = MutexGuard<'a, T>;

    impl<T> Lock<T> {
        /// One that nobody holds.
        pub fn new(value: T) -> Lock<T> {
            Lock(Mutex::new(value))
        }

        /// Without waiting.
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_lock().ok()
        }

        /// There is no cache here.
        pub fn touch(&self) -> bool {
            false
        }

        /// Waits for it.
        pub fn lock(&self) -> Guard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
