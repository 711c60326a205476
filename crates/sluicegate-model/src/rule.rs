//! The limits of the model, as plain numbers.
//!
//! Times and durations are in whole microseconds. Nothing is checked: the tests keep to the bounds
//! of the limit grammar (counts and periods of at least 1).

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A token bucket.
    Bucket {
        /// How many tokens are refilled per period.
        count: u64,
        /// The period.
        period: u64,
        /// How many tokens the bucket holds.
        burst: u64,
        /// What an unseen key holds; a full bucket if absent.
        initial: Option<Initial>,
    },
    /// A leaky bucket, which decides like a token bucket.
    LeakyBucket {
        /// How many tokens leak per period.
        count: u64,
        /// The period.
        period: u64,
        /// How many tokens the bucket holds.
        capacity: u64,
    },
    /// A minimum interval, which decides like a token bucket of one token.
    MinInterval {
        /// The interval.
        interval: u64,
    },
    /// A queue that calls leave one by one, evenly spaced.
    Pacer {
        /// How many calls leave per period.
        count: u64,
        /// The period.
        period: u64,
        /// How many calls may wait.
        queue: u64,
    },
    /// A count per window.
    FixedWindow {
        /// The most that one window admits.
        count: u64,
        /// Where the windows lie.
        windows: Windows,
    },
    /// Never more than the count in any stretch as long as the period.
    SlidingLog {
        /// The most that a period admits.
        count: u64,
        /// The period.
        period: u64,
        /// Whether denied calls count as well. Only for a single rule.
        count_all: bool,
    },
    /// Two neighbouring windows, the older one weighted by how much of it the period still covers.
    SlidingWindow {
        /// The most that the estimate may reach.
        count: u64,
        /// The period, which is also the length of the windows.
        period: u64,
    },
    /// Guava's rate limiter. Only for a single rule; take and reserve are not supported.
    Smooth(Smooth),
}

/// The parameters of Guava's rate limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Smooth {
    /// How many permits are issued per period.
    pub count: u64,
    /// The period.
    pub period: u64,
    /// How unused permits are stored.
    pub permits: Permits,
    /// The permits stored at the start. If absent: none, or with a warm-up the maximum.
    pub initial: Option<u64>,
    /// When the limiter is created.
    pub start: u64,
}

/// The most permits that are stored, and their price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permits {
    /// One second's worth, for free.
    OneSecond,
    /// This many, for free.
    Burst(u64),
    /// As many as a warm-up determines, at its price.
    WarmUp {
        /// The length of the warm-up.
        period: u64,
        /// How many times longer a permit takes when cold, in thousandths.
        cold_thousandths: u64,
    },
}

/// The tokens of an unseen key, which refill from the start on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initial {
    /// The tokens held at the start, and before it.
    pub tokens: u64,
    /// When the refill begins.
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
    /// One after the other from a start; before it every nonzero cost is denied.
    From {
        /// The start of the first window.
        start: u64,
        /// The length of each.
        period: u64,
    },
    /// Each of these sorted moments starts a window, as the days of a calendar do.
    ///
    /// The moments must reach beyond every call, since the last window never ends.
    /// What lies before the first moment is a window too.
    Boundaries(Vec<u64>),
}
