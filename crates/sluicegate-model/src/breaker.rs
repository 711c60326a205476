//! A circuit breaker that records every call and scans all of them.
//!
//! A call is identified by its number. The calls of the current phase are in a list, so a call that
//! is not in it is late. Failures are counted again each time. Whether the probes have decided is
//! found by trying every way in which the other probes could end, and a wait is found by trying a
//! copy later and later.

/// Which outcomes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerWindow {
    /// Those of the current slice and the 19 before it; the total in microseconds.
    Micros(u64),
    /// The last N calls.
    Calls(usize),
}

/// The parameters of a breaker. Times are in microseconds, rates in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRule {
    /// Which outcomes count.
    pub window: BreakerWindow,
    /// The share of failures at which the breaker opens.
    pub failure_percent: u64,
    /// The fewest calls that can open it.
    pub min: usize,
    /// How long it stays open.
    pub open: u64,
    /// The number of probes.
    pub probes: usize,
    /// How long a probe may take.
    pub probe_ttl: u64,
    /// From when on a call is slow, and the share of slow calls at which the breaker opens.
    pub slow: Option<(u64, u64)>,
    /// Whether it only counts, and never opens.
    pub metrics_only: bool,
}

/// The state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the subject")]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
    ForcedOpen,
    Disabled,
    MetricsOnly,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the subject")]
pub enum BreakerOutcome {
    Success,
    Failure,
    Ignored,
    Dropped,
}

/// All calls, failed calls, slow calls.
pub type BreakerCounts = (u64, u64, u64);

/// A change of a breaker's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the subject")]
pub enum BreakerEvent {
    Opened(BreakerCounts),
    HalfOpened,
    Closed(BreakerCounts),
    WouldHaveOpened(BreakerCounts),
    Forced(BreakerState),
    Reset,
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerDecision {
    /// The call is allowed, under this number.
    Allowed(u64),
    /// The call would be allowed after this long, or never.
    Denied(Option<u64>),
}

/// Counters since the breaker was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names are those of the subject")]
pub struct BreakerTotals {
    pub denied: u64,
    pub successes: u64,
    pub failures: u64,
    pub slow: u64,
    pub ignored: u64,
    pub dropped: u64,
    pub expired: u64,
    pub late: u64,
    pub opened: u64,
    pub would_have_opened: u64,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
    /// The slice in which it ended, counted from the epoch; shifted if the clock steps back.
    slice: u64,
    failed: bool,
    slow: bool,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    number: u64,
    since: u64,
    /// Whether it failed, and whether it was slow.
    result: Option<(bool, bool)>,
}

/// The model of a breaker.
#[derive(Debug, Clone)]
pub struct BreakerModel {
    rule: BreakerRule,
    state: BreakerState,
    forced: bool,
    /// Every outcome of this phase that counts, oldest first.
    history: Vec<Ended>,
    /// The latest slice in which a call was counted.
    latest_slice: u64,
    opened_at: u64,
    probes: Vec<Probe>,
    /// The calls of this phase that are in flight.
    in_flight: Vec<u64>,
    calls: u64,
    was_above: bool,
    totals: BreakerTotals,
    events: Vec<BreakerEvent>,
}

impl BreakerModel {
    /// Creates a breaker that has seen no calls.
    pub fn new(rule: BreakerRule) -> BreakerModel {
        BreakerModel {
            rule,
            state: if rule.metrics_only { BreakerState::MetricsOnly } else { BreakerState::Closed },
            forced: false,
            history: Vec::new(),
            latest_slice: 0,
            opened_at: 0,
            probes: Vec::new(),
            in_flight: Vec::new(),
            calls: 0,
            was_above: false,
            totals: BreakerTotals::default(),
            events: Vec::new(),
        }
    }

    /// Decides a call.
    pub fn call(&mut self, now: u64) -> BreakerDecision {
        if let Some(number) = self.admit(now) {
            return BreakerDecision::Allowed(number);
        }
        self.totals.denied += 1;
        if self.state == BreakerState::ForcedOpen {
            return BreakerDecision::Denied(None);
        }
        BreakerDecision::Denied(Some(self.search_for_wait(now)))
    }

    fn admit(&mut self, now: u64) -> Option<u64> {
        self.advance(now);
        if self.state == BreakerState::Open && now >= self.opened_at + self.rule.open {
            self.enter(BreakerState::HalfOpen);
            self.events.push(BreakerEvent::HalfOpened);
        }
        let passes = match self.state {
            BreakerState::Closed | BreakerState::Disabled | BreakerState::MetricsOnly => true,
            BreakerState::Open | BreakerState::ForcedOpen => false,
            BreakerState::HalfOpen => self.probes.len() < self.rule.probes,
        };
        if !passes {
            return None;
        }
        self.calls += 1;
        self.in_flight.push(self.calls);
        if self.state == BreakerState::HalfOpen {
            self.probes.push(Probe { number: self.calls, since: now, result: None });
        }
        Some(self.calls)
    }

    /// Returns the shortest wait after which a copy, left alone, would admit a call.
    fn search_for_wait(&self, now: u64) -> u64 {
        let quiet = BreakerModel { history: Vec::new(), events: Vec::new(), ..self.clone() };
        let admits_after = |wait: u64| quiet.clone().admit(now + wait).is_some();
        let (mut too_short, mut enough) = (0, 1);
        while !admits_after(enough) {
            (too_short, enough) = (enough, enough * 2);
        }
        while enough - too_short > 1 {
            let middle = too_short + (enough - too_short) / 2;
            if admits_after(middle) { enough = middle } else { too_short = middle }
        }
        enough
    }

    /// Records the end of a call.
    pub fn finish(&mut self, number: u64, outcome: BreakerOutcome, took: u64, now: u64) {
        let is_counted = matches!(outcome, BreakerOutcome::Success | BreakerOutcome::Failure);
        let slow = is_counted && self.rule.slow.is_some_and(|(longer_than, _)| took > longer_than);
        let failed = outcome == BreakerOutcome::Failure;
        match outcome {
            BreakerOutcome::Success => self.totals.successes += 1,
            BreakerOutcome::Failure => self.totals.failures += 1,
            BreakerOutcome::Ignored => self.totals.ignored += 1,
            BreakerOutcome::Dropped => self.totals.dropped += 1,
        }
        self.totals.slow += u64::from(slow);
        // The end of a probe of this phase first expires the others, even if that is long overdue.
        if self.probes.iter().any(|probe| probe.number == number) {
            self.advance(now);
        }
        let Some(index) = self.in_flight.iter().position(|other| *other == number) else {
            self.totals.late += 1;
            return;
        };
        self.in_flight.remove(index);
        match self.state {
            BreakerState::Closed if is_counted => {
                self.record(failed, slow, now);
                if self.is_above() {
                    let counts = self.count();
                    self.open(counts, now);
                }
            }
            BreakerState::MetricsOnly if is_counted => {
                self.record(failed, slow, now);
                let above = self.is_above();
                if above && !self.was_above {
                    self.totals.would_have_opened += 1;
                    let counts = self.count();
                    self.events.push(BreakerEvent::WouldHaveOpened(counts));
                }
                self.was_above = above;
            }
            BreakerState::HalfOpen if outcome == BreakerOutcome::Ignored => {
                self.probes.retain(|probe| probe.number != number);
            }
            BreakerState::HalfOpen => {
                self.probe_ended(number, failed || outcome == BreakerOutcome::Dropped, slow, now);
            }
            _ => {}
        }
    }

    /// Applies what has happened by the passage of time until now.
    pub fn advance(&mut self, now: u64) {
        if self.state == BreakerState::Open && self.opened_at > now {
            self.opened_at = now;
        }
        while self.state == BreakerState::HalfOpen {
            for probe in &mut self.probes {
                probe.since = probe.since.min(now);
            }
            let out = self.probes.iter().filter(|probe| probe.result.is_none());
            let due = |probe: &Probe| probe.since + self.rule.probe_ttl;
            let Some(first) = out.min_by_key(|probe| (due(probe), probe.number)).copied() else { break };
            if due(&first) > now {
                break;
            }
            let at = due(&first);
            self.totals.expired += 1;
            self.in_flight.retain(|number| *number != first.number);
            self.probe_ended(first.number, true, false, at);
        }
    }

    fn probe_ended(&mut self, number: u64, failed: bool, slow: bool, at: u64) {
        for probe in &mut self.probes {
            if probe.number == number {
                probe.result = Some((failed, slow));
            }
        }
        let ended: Vec<(bool, bool)> = self.probes.iter().filter_map(|probe| probe.result).collect();
        let many = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let failed = many(ended.iter().filter(|(failed, _)| *failed).count());
        let slow = many(ended.iter().filter(|(_, slow)| *slow).count());
        let (ended, all) = (many(ended.len()), many(self.rule.probes));
        // Every way in which the other probes could end.
        let to_come = all - ended;
        let (mut can_be_bad, mut can_be_good) = (false, false);
        for more_failed in 0..=to_come {
            for more_slow in 0..=to_come {
                if self.too_many(all, failed + more_failed, slow + more_slow) {
                    can_be_bad = true;
                } else {
                    can_be_good = true;
                }
            }
        }
        let counts = (ended, failed, slow);
        if !can_be_good {
            self.open(counts, at);
        } else if !can_be_bad {
            self.enter(BreakerState::Closed);
            self.events.push(BreakerEvent::Closed(counts));
        }
    }

    fn open(&mut self, counts: BreakerCounts, at: u64) {
        self.enter(BreakerState::Open);
        self.opened_at = at;
        self.totals.opened += 1;
        self.events.push(BreakerEvent::Opened(counts));
    }

    /// Enters a new phase: nothing is counted and no call is in flight.
    fn enter(&mut self, state: BreakerState) {
        self.state = state;
        self.forced = false;
        self.was_above = false;
        self.history.clear();
        self.probes.clear();
        self.in_flight.clear();
    }

    fn clear(&mut self) {
        let only = self.rule.metrics_only;
        self.enter(if only { BreakerState::MetricsOnly } else { BreakerState::Closed });
    }

    fn slice_length(&self) -> Option<u64> {
        match self.rule.window {
            BreakerWindow::Micros(window) => Some(window.div_ceil(20)),
            BreakerWindow::Calls(_) => None,
        }
    }

    /// Moves on to the slice of `now`.
    fn roll_slices(&mut self, now: u64) {
        let Some(length) = self.slice_length() else { return };
        let slice = now / length;
        if slice + 1 == self.latest_slice {
            return;
        }
        // After a step back everything lies as far in the past as before.
        if slice < self.latest_slice {
            let back = self.latest_slice - slice;
            self.history.retain(|ended| ended.slice + 20 > self.latest_slice);
            for ended in &mut self.history {
                // Never before the epoch: the tests stay far from it.
                ended.slice -= back;
            }
        }
        self.latest_slice = slice;
    }

    fn record(&mut self, failed: bool, slow: bool, now: u64) {
        self.roll_slices(now);
        self.history.push(Ended { slice: self.latest_slice, failed, slow });
    }

    fn count(&self) -> BreakerCounts {
        let counting = |ended: &&Ended| match self.rule.window {
            BreakerWindow::Micros(_) => ended.slice + 20 > self.latest_slice,
            BreakerWindow::Calls(_) => true,
        };
        let last = match self.rule.window {
            BreakerWindow::Micros(_) => usize::MAX,
            BreakerWindow::Calls(calls) => calls,
        };
        let (mut total, mut failed, mut slow) = (0, 0, 0);
        for ended in self.history.iter().rev().filter(counting).take(last) {
            total += 1;
            failed += u64::from(ended.failed);
            slow += u64::from(ended.slow);
        }
        (total, failed, slow)
    }

    fn is_above(&self) -> bool {
        let (total, failed, slow) = self.count();
        total >= u64::try_from(self.rule.min).unwrap_or(u64::MAX) && self.too_many(total, failed, slow)
    }

    fn too_many(&self, total: u64, failed: u64, slow: u64) -> bool {
        failed * 100 >= self.rule.failure_percent * total
            || self.rule.slow.is_some_and(|(_, percent)| slow * 100 >= percent * total)
    }

    /// The state of a breaker.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Returns the current counts.
    pub fn counts(&mut self, now: u64) -> BreakerCounts {
        if self.state == BreakerState::HalfOpen {
            let ended = self.probes.iter().filter_map(|probe| probe.result);
            let (mut total, mut failed, mut slow) = (0, 0, 0);
            for (has_failed, was_slow) in ended {
                total += 1;
                failed += u64::from(has_failed);
                slow += u64::from(was_slow);
            }
            return (total, failed, slow);
        }
        self.roll_slices(now);
        self.count()
    }

    /// Returns the counters.
    pub fn totals(&self) -> BreakerTotals {
        self.totals
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<BreakerEvent> {
        std::mem::take(&mut self.events)
    }

    /// Forces one of the three forced states.
    pub fn force(&mut self, state: BreakerState) {
        self.enter(state);
        self.forced = true;
        self.events.push(BreakerEvent::Forced(state));
    }

    /// Ends a forced state.
    pub fn unforce(&mut self) {
        if self.forced {
            self.reset();
        }
    }

    /// Resets the breaker.
    pub fn reset(&mut self) {
        self.clear();
        self.events.push(BreakerEvent::Reset);
    }

    /// Changes the rule.
    pub fn change(&mut self, rule: BreakerRule) {
        if rule.window != self.rule.window {
            self.history.clear();
            self.latest_slice = 0;
        }
        self.rule = rule;
        match self.state {
            BreakerState::Open | BreakerState::HalfOpen if rule.metrics_only => self.reset(),
            BreakerState::HalfOpen => self.enter(BreakerState::HalfOpen),
            BreakerState::Closed if rule.metrics_only => self.state = BreakerState::MetricsOnly,
            BreakerState::MetricsOnly if !rule.metrics_only && !self.forced => {
                self.state = BreakerState::Closed;
                self.was_above = false;
            }
            _ => {}
        }
    }
}
