//! A circuit breaker that remembers every call and looks through all of them.
//!
//! A call is known by its number. Those asked in the current phase are in a list, so whoever is not in it comes too late. How many failed
//! is counted anew each time; whether the probes have decided is found by trying every way in which the others could end; how long
//! to wait is searched for by asking a copy later and later.

/// Which outcomes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerWindow {
    /// Those of the slice in progress and the 19 before it; the whole in microseconds.
    Micros(u64),
    /// The last so many.
    Calls(usize),
}

/// A breaker's numbers. Times are in microseconds, rates in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRule {
    /// Which outcomes count.
    pub window: BreakerWindow,
    /// Opens at this share of failures.
    pub failure_percent: u64,
    /// But not with fewer calls than this.
    pub min: usize,
    /// For how long.
    pub open: u64,
    /// How many probes there are.
    pub probes: usize,
    /// How long one may take.
    pub probe_ttl: u64,
    /// Calls longer than this are slow, and this share of them opens it.
    pub slow: Option<(u64, u64)>,
    /// Only counts.
    pub metrics_only: bool,
}

/// What it does.
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

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the subject")]
pub enum BreakerEnd {
    Success,
    Failure,
    Ignored,
    Dropped,
}

/// All calls, those that failed, those that were slow.
pub type BreakerCounts = (u64, u64, u64);

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the subject")]
pub enum BreakerNews {
    Opened(BreakerCounts),
    HalfOpened,
    Closed(BreakerCounts),
    WouldHaveOpened(BreakerCounts),
    Forced(BreakerState),
    Reset,
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerAnswer {
    /// It may pass, under this number.
    Allowed(u64),
    /// It may pass after this long; never, if there is none.
    Denied(Option<u64>),
}

/// What it has seen in all.
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
    /// The slice it ended in, counted from the epoch; moved along when the clock steps back.
    slice: u64,
    failed: bool,
    slow: bool,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    number: u64,
    since: u64,
    /// Whether it failed, and was slow.
    how: Option<(bool, bool)>,
}

/// The breaker.
#[derive(Debug, Clone)]
pub struct BreakerModel {
    rule: BreakerRule,
    state: BreakerState,
    forced: bool,
    /// Every outcome of this phase that counts, the oldest first.
    history: Vec<Ended>,
    /// The latest slice that anything was counted in.
    latest_slice: u64,
    opened_at: u64,
    probes: Vec<Probe>,
    /// The calls of this phase that are out.
    out: Vec<u64>,
    calls: u64,
    was_above: bool,
    totals: BreakerTotals,
    news: Vec<BreakerNews>,
}

impl BreakerModel {
    /// One that has seen nothing.
    pub fn new(rule: BreakerRule) -> BreakerModel {
        BreakerModel {
            rule,
            state: if rule.metrics_only { BreakerState::MetricsOnly } else { BreakerState::Closed },
            forced: false,
            history: Vec::new(),
            latest_slice: 0,
            opened_at: 0,
            probes: Vec::new(),
            out: Vec::new(),
            calls: 0,
            was_above: false,
            totals: BreakerTotals::default(),
            news: Vec::new(),
        }
    }

    /// A call.
    pub fn ask(&mut self, now: u64) -> BreakerAnswer {
        if let Some(number) = self.pass(now) {
            return BreakerAnswer::Allowed(number);
        }
        self.totals.denied += 1;
        if self.state == BreakerState::ForcedOpen {
            return BreakerAnswer::Denied(None);
        }
        BreakerAnswer::Denied(Some(self.search_for_wait(now)))
    }

    fn pass(&mut self, now: u64) -> Option<u64> {
        self.look(now);
        if self.state == BreakerState::Open && now >= self.opened_at + self.rule.open {
            self.enter(BreakerState::HalfOpen);
            self.news.push(BreakerNews::HalfOpened);
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
        self.out.push(self.calls);
        if self.state == BreakerState::HalfOpen {
            self.probes.push(Probe { number: self.calls, since: now, how: None });
        }
        Some(self.calls)
    }

    /// The shortest wait after which a copy of this, left alone, lets a call pass.
    fn search_for_wait(&self, now: u64) -> u64 {
        let quiet = BreakerModel { history: Vec::new(), news: Vec::new(), ..self.clone() };
        let passes_after = |wait: u64| quiet.clone().pass(now + wait).is_some();
        let (mut too_short, mut enough) = (0, 1);
        while !passes_after(enough) {
            (too_short, enough) = (enough, enough * 2);
        }
        while enough - too_short > 1 {
            let middle = too_short + (enough - too_short) / 2;
            if passes_after(middle) { enough = middle } else { too_short = middle }
        }
        enough
    }

    /// A call has ended.
    pub fn end(&mut self, number: u64, how: BreakerEnd, took: u64, now: u64) {
        let told = matches!(how, BreakerEnd::Success | BreakerEnd::Failure);
        let slow = told && self.rule.slow.is_some_and(|(longer_than, _)| took > longer_than);
        let failed = how == BreakerEnd::Failure;
        match how {
            BreakerEnd::Success => self.totals.successes += 1,
            BreakerEnd::Failure => self.totals.failures += 1,
            BreakerEnd::Ignored => self.totals.ignored += 1,
            BreakerEnd::Dropped => self.totals.dropped += 1,
        }
        self.totals.slow += u64::from(slow);
        // A probe of this phase finds out about the others, even one that should have ended long ago.
        if self.probes.iter().any(|probe| probe.number == number) {
            self.look(now);
        }
        let Some(place) = self.out.iter().position(|out| *out == number) else {
            self.totals.late += 1;
            return;
        };
        self.out.remove(place);
        match self.state {
            BreakerState::Closed if told => {
                self.enter_in_history(failed, slow, now);
                if self.is_above() {
                    let counts = self.count();
                    self.open(counts, now);
                }
            }
            BreakerState::MetricsOnly if told => {
                self.enter_in_history(failed, slow, now);
                let above = self.is_above();
                if above && !self.was_above {
                    self.totals.would_have_opened += 1;
                    let counts = self.count();
                    self.news.push(BreakerNews::WouldHaveOpened(counts));
                }
                self.was_above = above;
            }
            BreakerState::HalfOpen if how == BreakerEnd::Ignored => {
                self.probes.retain(|probe| probe.number != number);
            }
            BreakerState::HalfOpen => {
                self.probe_ended(number, failed || how == BreakerEnd::Dropped, slow, now);
            }
            _ => {}
        }
    }

    /// Finds out what happened by itself until now.
    pub fn look(&mut self, now: u64) {
        if self.state == BreakerState::Open && self.opened_at > now {
            self.opened_at = now;
        }
        while self.state == BreakerState::HalfOpen {
            for probe in &mut self.probes {
                probe.since = probe.since.min(now);
            }
            let out = self.probes.iter().filter(|probe| probe.how.is_none());
            let due = |probe: &Probe| probe.since + self.rule.probe_ttl;
            let Some(first) = out.min_by_key(|probe| (due(probe), probe.number)).copied() else { break };
            if due(&first) > now {
                break;
            }
            let at = due(&first);
            self.totals.expired += 1;
            self.out.retain(|number| *number != first.number);
            self.probe_ended(first.number, true, false, at);
        }
    }

    fn probe_ended(&mut self, number: u64, failed: bool, slow: bool, at: u64) {
        for probe in &mut self.probes {
            if probe.number == number {
                probe.how = Some((failed, slow));
            }
        }
        let ended: Vec<(bool, bool)> = self.probes.iter().filter_map(|probe| probe.how).collect();
        let many = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let failed = many(ended.iter().filter(|(failed, _)| *failed).count());
        let slow = many(ended.iter().filter(|(_, slow)| *slow).count());
        let (ended, all) = (many(ended.len()), many(self.rule.probes));
        // Every way in which those to come could end.
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
            self.news.push(BreakerNews::Closed(counts));
        }
    }

    fn open(&mut self, counts: BreakerCounts, at: u64) {
        self.enter(BreakerState::Open);
        self.opened_at = at;
        self.totals.opened += 1;
        self.news.push(BreakerNews::Opened(counts));
    }

    /// A new phase: nothing counts yet, and nobody is out.
    fn enter(&mut self, state: BreakerState) {
        self.state = state;
        self.forced = false;
        self.was_above = false;
        self.history.clear();
        self.probes.clear();
        self.out.clear();
    }

    fn rest(&mut self) {
        let only = self.rule.metrics_only;
        self.enter(if only { BreakerState::MetricsOnly } else { BreakerState::Closed });
    }

    fn slice_length(&self) -> Option<u64> {
        match self.rule.window {
            BreakerWindow::Micros(window) => Some(window.div_ceil(20)),
            BreakerWindow::Calls(_) => None,
        }
    }

    /// The slice that counts as the one in progress now.
    fn turn(&mut self, now: u64) {
        let Some(length) = self.slice_length() else { return };
        let slice = now / length;
        if slice + 1 == self.latest_slice {
            return;
        }
        // After a step back all that there is lies as far in the past as before.
        if slice < self.latest_slice {
            let back = self.latest_slice - slice;
            self.history.retain(|ended| ended.slice + 20 > self.latest_slice);
            for ended in &mut self.history {
                // Never before the epoch: whoever asks this model stays far from it.
                ended.slice -= back;
            }
        }
        self.latest_slice = slice;
    }

    fn enter_in_history(&mut self, failed: bool, slow: bool, now: u64) {
        self.turn(now);
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

    /// What it does.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// What counts now.
    pub fn counts(&mut self, now: u64) -> BreakerCounts {
        if self.state == BreakerState::HalfOpen {
            let ended = self.probes.iter().filter_map(|probe| probe.how);
            let (mut total, mut failed, mut slow) = (0, 0, 0);
            for (has_failed, was_slow) in ended {
                total += 1;
                failed += u64::from(has_failed);
                slow += u64::from(was_slow);
            }
            return (total, failed, slow);
        }
        self.turn(now);
        self.count()
    }

    /// What it has seen.
    pub fn totals(&self) -> BreakerTotals {
        self.totals
    }

    /// What became of it since this was last asked.
    pub fn news(&mut self) -> Vec<BreakerNews> {
        std::mem::take(&mut self.news)
    }

    /// Forces it to one of the three forced states.
    pub fn force(&mut self, state: BreakerState) {
        self.enter(state);
        self.forced = true;
        self.news.push(BreakerNews::Forced(state));
    }

    /// Lets it go if it was forced.
    pub fn unforce(&mut self) {
        if self.forced {
            self.reset();
        }
    }

    /// As new.
    pub fn reset(&mut self) {
        self.rest();
        self.news.push(BreakerNews::Reset);
    }

    /// Other rules.
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
