//! The limits that the model knows, as plain numbers.
//!
//! Times and durations are whole microseconds. The numbers are taken as they are: whoever makes a rule keeps
//! within the bounds of the limit grammar (counts and periods at least 1).

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A token bucket, a leaky bucket, or (with a count and burst of 1) a minimum interval.
    Bucket {
        /// How many tokens come back in each period.
        count: u64,
        /// The period.
        period: u64,
        /// How many tokens the bucket holds.
        burst: u64,
        /// What a key that was never charged holds; a full bucket if absent.
        initial: Option<Initial>,
    },
    /// A queue that lets calls leave one by one at an even pace.
    Pacer {
        /// How many calls leave in each period.
        count: u64,
        /// The period.
        period: u64,
        /// How many calls may wait.
        queue: u64,
    },
    /// A count for each window of time.
    FixedWindow {
        /// The most that one window takes.
        count: u64,
        /// Where the windows lie.
        windows: Windows,
    },
    /// Never more than the count in any stretch as long as the period.
    SlidingLog {
        /// The most that a period takes.
        count: u64,
        /// The period.
        period: u64,
        /// Whether denied calls count as well. Only for a rule that stands alone.
        count_all: bool,
    },
    /// Two neighbouring windows, the older one weighted by how much of it the period still covers.
    SlidingWindow {
        /// The most that the estimate may reach.
        count: u64,
        /// The period, which is also the length of the windows.
        period: u64,
    },
    /// Guava's rate limiter. Only for a rule that stands alone; nothing can be taken up to a cost, or reserved.
    Smooth(Smooth),
}

/// The numbers of Guava's rate limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Smooth {
    /// How many permits come in each period.
    pub count: u64,
    /// The period.
    pub period: u64,
    /// What is stored of those that nobody takes.
    pub permits: Permits,
    /// What is stored at the start; nothing if absent, or with a warm-up as much as can be.
    pub initial: Option<u64>,
    /// When the limiter is made.
    pub start: u64,
}

/// The most permits that are stored, and what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permits {
    /// As many as come in a second, for free.
    ASecond,
    /// So many, for free.
    Burst(u64),
    /// As many as a warm-up says, and at its price.
    WarmUp {
        /// How long it takes.
        period: u64,
        /// How much longer a permit takes when all is cold, in thousandths.
        cold_thousandths: u64,
    },
}

/// The tokens of a key that was never charged: so many at the start, and refilling from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initial {
    /// The tokens held at the start, and before it.
    pub tokens: u64,
    /// The moment from which such a key refills.
    pub start: u64,
}

/// Where the windows of a fixed window lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Windows {
    /// One after the other from the Unix epoch.
    Epoch {
        /// The length of each.
        period: u64,
    },
    /// Opened by the first charge while none is open.
    First {
        /// The length of each.
        period: u64,
    },
    /// One after the other from a start; before it everything with a cost is denied.
    From {
        /// The start of the first window.
        start: u64,
        /// The length of each.
        period: u64,
    },
    /// Each of these sorted moments starts a window, as the days of a calendar do.
    ///
    /// The moments must reach beyond every time of interest, since the window of the last one never ends.
    /// What lies before the first moment is a window too.
    Boundaries(Vec<u64>),
}
