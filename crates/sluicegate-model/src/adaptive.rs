//! Adaptive concurrency in doubles, as Netflix's concurrency-limits computes it; and with what Sluicegate mends.

/// Between what a limit moves, and where it begins.
#[derive(Clone, Copy, Debug)]
pub struct Moves {
    /// The first limit.
    pub start: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

/// Additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    /// Between what it moves.
    pub moves: Moves,
    /// The factor after a drop.
    pub backoff: f64,
    /// What takes longer is a drop, in microseconds.
    pub timeout: f64,
    /// The limit now.
    pub limit: f64,
}

impl Aimd {
    /// A call has ended.
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

/// Gradient2, and what becomes of it when it is mended.
#[derive(Clone, Copy, Debug)]
pub struct Gradient {
    /// Between what it moves.
    pub moves: Moves,
    /// What is added.
    pub queue: f64,
    /// The part of a change that is made.
    pub smoothing: f64,
    /// How much longer than the baseline is fine.
    pub tolerance: f64,
    /// How many samples the baseline averages.
    pub window: f64,
    /// With what Sluicegate mends, or as Netflix has it.
    pub mended: bool,
    /// The limit now, before it is rounded down.
    pub limit: f64,
    /// The long-term time of a call.
    pub baseline: f64,
    /// How many samples it was learned from, and their sum, while there are fewer than ten.
    pub warm: (f64, f64),
    /// How many samples in a row were below half of the baseline.
    pub fast: u32,
}

impl Gradient {
    /// With Netflix's numbers.
    pub fn usual(moves: Moves, mended: bool) -> Gradient {
        Gradient {
            moves,
            queue: 4.0,
            smoothing: 0.2,
            tolerance: 1.5,
            window: 600.0,
            mended,
            limit: moves.start,
            baseline: 0.0,
            warm: (0.0, 0.0),
            fast: 0,
        }
    }

    /// A call has ended.
    pub fn sample(&mut self, rtt: f64, in_flight: f64, dropped: bool) -> f64 {
        let light = in_flight < self.limit / 2.0;
        let counts_as_dropped = dropped && self.mended;
        let mut long = self.baseline;
        if !counts_as_dropped {
            if self.warm.0 < 10.0 {
                self.warm = (self.warm.0 + 1.0, self.warm.1 + rtt);
                self.baseline = self.warm.1 / self.warm.0;
            } else if !self.mended || light || self.limit.floor() <= self.moves.min {
                let factor = 2.0 / (self.window + 1.0);
                self.baseline = self.baseline * (1.0 - factor) + rtt * factor;
            }
            long = self.baseline;
            self.fast = if long / rtt > 2.0 { self.fast + 1 } else { 0 };
            if self.fast >= if self.mended { 10 } else { 1 } {
                self.baseline *= 0.95;
            }
            if self.mended {
                long = self.baseline;
            }
        }
        if light && !counts_as_dropped {
            return self.limit.floor();
        }
        let gradient = if counts_as_dropped { 0.5 } else { (self.tolerance * long / rtt).clamp(0.5, 1.0) };
        let queue = if self.mended && gradient < 1.0 { 0.0 } else { self.queue };
        let aim = self.limit * gradient + queue;
        let next = self.limit * (1.0 - self.smoothing) + aim * self.smoothing;
        self.limit = next.clamp(self.moves.min, self.moves.max);
        self.limit.floor()
    }
}
