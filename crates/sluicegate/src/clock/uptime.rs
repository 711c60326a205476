//! The machine's uptime: a clock that no one sets, and that counts the time in suspend.

/// Microseconds since some moment before the process started.
pub(super) fn uptime_micros() -> u64 {
    imp::uptime_micros()
}

#[cfg(unix)]
mod imp {
    use rustix::time::{ClockId, clock_gettime};

    /// Linux: since boot, with suspend. The monotonic clock stops in suspend there.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const UPTIME: ClockId = ClockId::Boottime;
    /// Apple's systems count suspend in this one. On others it is the nearest there is.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const UPTIME: ClockId = ClockId::Monotonic;

    pub(super) fn uptime_micros() -> u64 {
        let time = clock_gettime(UPTIME);
        // Never negative: it starts at zero.
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
        seconds.unwrap_or(0).saturating_mul(1_000_000).saturating_add(nanos.unwrap_or(0) / 1_000)
    }
}

#[cfg(not(unix))]
mod imp {
    use std::sync::LazyLock;
    use std::time::Instant;

    /// On Windows an `Instant` counts suspend.
    static FIRST_READ: LazyLock<Instant> = LazyLock::new(Instant::now);

    pub(super) fn uptime_micros() -> u64 {
        let since = Instant::now().saturating_duration_since(*FIRST_READ);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}
