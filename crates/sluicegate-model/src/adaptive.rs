//! Adaptive concurrency in doubles, as Netflix's concurrency-limits computes it, and with
//! Sluicegate's corrections.

/// The range of a limit, and its initial value.
#[derive(Clone, Copy, Debug)]
pub struct LimitRange {
    /// The initial limit.
    pub start: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

/// Additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    /// The range of the limit.
    pub moves: LimitRange,
    /// The factor after a drop.
    pub backoff: f64,
    /// A longer call counts as dropped, in microseconds.
    pub timeout: f64,
    /// The current limit.
    pub limit: f64,
}

impl Aimd {
    /// Records a finished call, and returns the new limit.
    pub fn sample(&mut self, rtt: f64, in_flight: f64, dropped: bool) -> f64 {
        if dropped || rtt > self.timeout {
            self.limit = (self.limit * self.backoff).floor();
        } else if in_flight * 2.0 >= self.limit {
            self.limit += 1.0;
        }
        self.limit = self.limit.clamp(self.moves.min, self.moves.max);
        self.limit
    }
}

/// Gradient2, and what becomes of it when it is corrected.
#[derive(Clone, Copy, Debug)]
pub struct Gradient {
    /// The range of the limit.
    pub moves: LimitRange,
    /// The queue allowance that is added.
    pub queue: f64,
    /// The part of a change that is applied.
    pub smoothing: f64,
    /// How many times longer than the baseline a call may take.
    pub tolerance: f64,
    /// How many samples the baseline averages.
    pub window: f64,
    /// Whether Sluicegate's corrections apply; otherwise as Netflix computes it.
    pub corrected: bool,
    /// The current limit, before it is rounded down.
    pub limit: f64,
    /// The long-term latency of a call.
    pub baseline: f64,
    /// The number of samples behind the baseline and their sum, while there are fewer than ten.
    pub warm: (f64, f64),
    /// The number of consecutive samples below half of the baseline.
    pub fast: u32,
}

impl Gradient {
    /// Creates a limit with Netflix's defaults.
    pub fn with_defaults(moves: LimitRange, corrected: bool) -> Gradient {
        Gradient {
            moves,
            queue: 4.0,
            smoothing: 0.2,
            tolerance: 1.5,
            window: 600.0,
            corrected,
            limit: moves.start,
            baseline: 0.0,
            warm: (0.0, 0.0),
            fast: 0,
        }
    }

    /// Records a finished call, and returns the new limit.
    pub fn sample(&mut self, rtt: f64, in_flight: f64, dropped: bool) -> f64 {
        let light = in_flight < self.limit / 2.0;
        let counts_as_dropped = dropped && self.corrected;
        let mut long = self.baseline;
        if !counts_as_dropped {
            if self.warm.0 < 10.0 {
                self.warm = (self.warm.0 + 1.0, self.warm.1 + rtt);
                self.baseline = self.warm.1 / self.warm.0;
            } else if !self.corrected || light || self.limit.floor() <= self.moves.min {
                let factor = 2.0 / (self.window + 1.0);
                self.baseline = self.baseline * (1.0 - factor) + rtt * factor;
            }
            long = self.baseline;
            self.fast = if long / rtt > 2.0 { self.fast + 1 } else { 0 };
            if self.fast >= if self.corrected { 10 } else { 1 } {
                self.baseline *= 0.95;
            }
            if self.corrected {
                long = self.baseline;
            }
        }
        if light && !counts_as_dropped {
            return self.limit.floor();
        }
        let gradient = if counts_as_dropped { 0.5 } else { (self.tolerance * long / rtt).clamp(0.5, 1.0) };
        let queue = if self.corrected && gradient < 1.0 { 0.0 } else { self.queue };
        let aim = self.limit * gradient + queue;
        let next = self.limit * (1.0 - self.smoothing) + aim * self.smoothing;
        self.limit = next.clamp(self.moves.min, self.moves.max);
        self.limit.floor()
    }
}
