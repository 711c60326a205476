//! The locks and atomic counters of the crate. Under the model checker they are loom's. What a
//! shard's lock protects, and the words of the tables, are always the standard library's: the model
//! checker sees the locks, not the words.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::{Mutex, MutexGuard};

pub use lock::{Guard, Lock};

/// A lock that is released with a plain store.
///
/// Why not the standard library's: releasing that takes a second atomic read-modify-write, 2.5 ns
/// on a hot key (docs/benchmarks.md). Critical sections are short: some 20 ns, and a few
/// microseconds when a new key needs room.
///
/// A thread that finds the lock taken spins for about a microsecond, then yields, then sleeps
/// briefly. So it makes progress even if the holder has a lower priority and waits for this very
/// processor.
#[cfg(not(loom))]
mod lock {
    use spin::mutex::{SpinMutex, SpinMutexGuard};
    use std::time::Duration;

    /// Attempts before yielding, each spinning a little longer than the one before.
    const SPINS: u32 = 8;
    /// Attempts before sleeping.
    const YIELDS: u32 = 64;
    const SLEEP: Duration = Duration::from_micros(50);

    /// A lock.
    pub struct Lock<T>(SpinMutex<T>);

    /// Holds the lock.
    pub type Guard<'a, T> = SpinMutexGuard<'a, T>;

    impl<T> Lock<T> {
        /// A lock that is free.
        pub fn new(value: T) -> Lock<T> {
            Lock(SpinMutex::new(value))
        }

        /// Takes the lock if it is free.
        #[inline]
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_lock()
        }

        /// Takes the lock, waiting for it if necessary.
        #[inline]
        pub fn lock(&self) -> Guard<'_, T> {
            match self.0.try_lock() {
                Some(guard) => guard,
                None => self.wait(),
            }
        }

        /// Reads the lock, so that it is cached when it is taken.
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

    /// Holds the lock.
    pub type Guard<'a, T> = MutexGuard<'a, T>;

    impl<T> Lock<T> {
        /// A lock that is free.
        pub fn new(value: T) -> Lock<T> {
            Lock(Mutex::new(value))
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<Guard<'_, T>> {
            self.0.try_lock().ok()
        }

        /// Loom models no cache.
        pub fn touch(&self) -> bool {
            false
        }

        /// Takes the lock, waiting for it if necessary.
        pub fn lock(&self) -> Guard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
