//! Breakers compared with the model on random events: calls, outcomes in any order, drops, panics,
//! hung probes, forced states, changes of rules, and a clock that steps forward and back. Every
//! decision, state, count and event is compared.

use fastrand::Rng;
use sluicegate_guard::breaker::machine::{CallId, Changes, Machine};
use sluicegate_guard::breaker::{
    Admitted, Breaker, BreakerConfig, Change, Counts, Forced, Outcome, State, Totals, Window,
};
use sluicegate_guard::{Event, ManualClock, Observer, RetryAfter, Span, Time};
use sluicegate_model::{
    BreakerCounts, BreakerDecision, BreakerEvent, BreakerModel, BreakerOutcome, BreakerRule, BreakerState,
    BreakerTotals, BreakerWindow,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

/// The sequences of events per subject, and the length of each.
const SEQUENCES: u64 = 3_000;
const EVENTS: usize = 250;

/// Rules small enough that a few calls matter.
fn random_rules(rng: &mut Rng) -> BreakerConfig {
    let window = match rng.u8(..4) {
        0 => format!("{}calls", rng.u32(1..=40)),
        1 => format!("{}calls", rng.u32(1..=5)),
        2 => format!("{}us", rng.u32(1_000..=5_000)),
        _ => format!("{}ms", rng.u32(1..=8)),
    };
    let percents = [1, 10, 33, 50, 66, 99, 100];
    let percent = |rng: &mut Rng| percents[rng.usize(..percents.len())];
    let mut text = format!("breaker {}%/{window}", percent(rng));
    if !window.ends_with("calls") {
        text += &format!(" min={}", rng.u32(1..=12));
    }
    text += &format!(" open={}us", rng.u32(1..=4_000));
    if rng.bool() {
        text += &format!(" probes={}", rng.u32(1..=6));
    }
    if rng.bool() {
        text += &format!(" probe-ttl={}us", rng.u32(1..=4_000));
    }
    if rng.bool() {
        text += &format!(" slow={}us slow-rate={}%", rng.u32(1..=900), percent(rng));
    }
    if rng.u8(..8) == 0 {
        text += " mode=metrics-only";
    }
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn rule(rules: &BreakerConfig) -> BreakerRule {
    BreakerRule {
        window: match rules.window() {
            Window::Time(span) => BreakerWindow::Micros(span.as_micros()),
            Window::Calls(calls) => BreakerWindow::Calls(calls as usize),
        },
        failure_percent: u64::from(rules.failure_rate()),
        min: rules.min() as usize,
        open: rules.open().as_micros(),
        probes: rules.probes() as usize,
        probe_ttl: rules.probe_ttl().as_micros(),
        slow: rules.slow().map(|slow| (slow.longer_than.as_micros(), u64::from(slow.rate))),
        metrics_only: rules.metrics_only(),
    }
}

fn state(state: State) -> BreakerState {
    match state {
        State::Closed => BreakerState::Closed,
        State::Open => BreakerState::Open,
        State::HalfOpen => BreakerState::HalfOpen,
        State::ForcedOpen => BreakerState::ForcedOpen,
        State::Disabled => BreakerState::Disabled,
        State::MetricsOnly => BreakerState::MetricsOnly,
    }
}

fn counts(Counts { total, failed, slow }: Counts) -> BreakerCounts {
    (total, failed, slow)
}

fn totals(totals: Totals) -> BreakerTotals {
    assert_eq!(totals.allowed(), totals.successes + totals.failures + totals.ignored + totals.dropped);
    let Totals {
        denied,
        successes,
        failures,
        slow,
        ignored,
        dropped,
        expired,
        late,
        opened,
        would_have_opened,
    } = totals;
    BreakerTotals {
        denied,
        successes,
        failures,
        slow,
        ignored,
        dropped,
        expired,
        late,
        opened,
        would_have_opened,
    }
}

fn news(change: Change) -> BreakerEvent {
    match change {
        Change::Opened(of) => BreakerEvent::Opened(counts(of)),
        Change::HalfOpened => BreakerEvent::HalfOpened,
        Change::Closed(of) => BreakerEvent::Closed(counts(of)),
        Change::WouldHaveOpened(of) => BreakerEvent::WouldHaveOpened(counts(of)),
        Change::Forced(Forced::Open) => BreakerEvent::Forced(BreakerState::ForcedOpen),
        Change::Forced(Forced::Disabled) => BreakerEvent::Forced(BreakerState::Disabled),
        Change::Forced(Forced::MetricsOnly) => BreakerEvent::Forced(BreakerState::MetricsOnly),
        Change::Reset => BreakerEvent::Reset,
        other => panic!("{other:?} is new"),
    }
}

/// How a call will end.
#[derive(Clone, Copy, Debug)]
enum End {
    Success,
    Failure,
    Ignored,
    Dropped,
    Panic,
    /// Never: its guard is leaked.
    Hung,
}

/// What is compared with the model.
trait Subject {
    type Call;
    fn new(rules: BreakerConfig, now: u64) -> Self;
    fn set(&mut self, now: u64);
    fn ask(&mut self) -> Result<Self::Call, Option<u64>>;
    fn end(&mut self, call: Self::Call, end: End, took: u64);
    fn seen(&mut self) -> (BreakerState, BreakerCounts, BreakerTotals);
    fn news(&mut self) -> Vec<BreakerEvent>;
    fn force(&mut self, forced: Option<Forced>);
    fn reset(&mut self);
    fn change(&mut self, rules: BreakerConfig);
}

fn wait(wait: RetryAfter) -> Option<u64> {
    match wait {
        RetryAfter::After(span) => Some(span.as_micros()),
        RetryAfter::Never => None,
    }
}

/// The core, with the time as an argument.
struct CoreSubject {
    machine: Machine,
    now: Time,
    news: Vec<BreakerEvent>,
}

impl CoreSubject {
    fn tell(&mut self, changes: Changes) {
        self.news.extend(changes.into_iter().map(news));
    }
}

impl Subject for CoreSubject {
    type Call = CallId;

    fn new(rules: BreakerConfig, now: u64) -> Self {
        CoreSubject { machine: Machine::new(rules), now: Time::from_micros(now).unwrap(), news: Vec::new() }
    }

    fn set(&mut self, now: u64) {
        self.now = Time::from_micros(now).unwrap();
    }

    fn ask(&mut self) -> Result<CallId, Option<u64>> {
        let (answer, changes) = self.machine.try_acquire(self.now);
        self.tell(changes);
        match answer {
            Ok(id) => Ok(id),
            Err(after) => {
                assert_eq!(self.machine.denies_for(self.now), Some(after));
                if let RetryAfter::After(wait) = after {
                    // Left alone it admits a call after exactly that long, and not a tick earlier.
                    let asked_at = |at: Time| self.machine.clone().try_acquire(at).0.is_ok();
                    assert!(asked_at(self.now.saturating_add(wait)));
                    assert!(!asked_at(self.now.saturating_add(wait).saturating_sub(Span::from_micros(1))));
                }
                Err(wait(after))
            }
        }
    }

    fn end(&mut self, id: CallId, end: End, took: u64) {
        let outcome = match end {
            End::Success => Outcome::Success,
            End::Failure | End::Panic => Outcome::Failure,
            End::Ignored => Outcome::Ignored,
            End::Dropped => Outcome::Dropped,
            End::Hung => return,
        };
        let changes = self.machine.finish(id, outcome, Span::from_micros(took), || self.now);
        self.tell(changes);
    }

    fn seen(&mut self) -> (BreakerState, BreakerCounts, BreakerTotals) {
        let changes = self.machine.advance(self.now);
        self.tell(changes);
        let (totals, counted) = (self.machine.totals(), self.machine.counts(self.now));
        (state(self.machine.state()), counts(counted), self::totals(totals))
    }

    fn news(&mut self) -> Vec<BreakerEvent> {
        std::mem::take(&mut self.news)
    }

    fn force(&mut self, forced: Option<Forced>) {
        let change = match forced {
            Some(forced) => Some(self.machine.force(forced)),
            None => self.machine.unforce(),
        };
        self.news.extend(change.map(news));
    }

    fn reset(&mut self) {
        let change = self.machine.reset();
        self.news.push(news(change));
    }

    fn change(&mut self, rules: BreakerConfig) {
        let change = self.machine.change(rules);
        self.news.extend(change.map(news));
    }
}

/// The library, with its guards and a clock that is set.
struct InLibrary {
    breaker: Breaker,
    clock: ManualClock,
    heard: Arc<Heard>,
    coin: Rng,
}

#[derive(Default)]
struct Heard(Mutex<Vec<BreakerEvent>>);

impl Observer for Heard {
    fn event(&self, event: &Event) {
        let Event::Breaker { change, .. } = event else { panic!("{event:?} is not of a breaker") };
        self.0.lock().unwrap().push(news(*change));
    }
}

impl Subject for InLibrary {
    type Call = Admitted<'static>;

    fn new(rules: BreakerConfig, now: u64) -> Self {
        let (clock, heard) = (ManualClock::at(Time::from_micros(now).unwrap()), Arc::new(Heard::default()));
        let builder = Breaker::builder(rules).clock(clock.clone()).observer(Arc::clone(&heard));
        InLibrary { breaker: builder.build().unwrap(), clock, heard, coin: Rng::with_seed(now) }
    }

    fn set(&mut self, now: u64) {
        self.clock.set(Time::from_micros(now).unwrap());
    }

    fn ask(&mut self) -> Result<Admitted<'static>, Option<u64>> {
        // Only sometimes: a peek applies the passage of time, so the next event would come in two
        // steps.
        let peeked = self.coin.bool().then(|| self.breaker.peek());
        let asked = self.breaker.try_acquire().into_owned().admitted();
        if let Some(peeked) = peeked {
            assert_eq!(peeked, asked.as_ref().err().copied());
        }
        asked.map_err(|denied| wait(denied.retry_after()))
    }

    fn end(&mut self, admitted: Admitted<'static>, end: End, _took: u64) {
        match end {
            End::Success => admitted.success(),
            End::Failure => admitted.failure(),
            End::Ignored => admitted.ignore(),
            End::Dropped => drop(admitted),
            End::Hung => std::mem::forget(admitted),
            End::Panic => {
                let unwound = catch_unwind(AssertUnwindSafe(|| {
                    let _admitted = admitted;
                    // Unwinds like a panic, but without a message.
                    resume_unwind(Box::new("the call failed"));
                }));
                assert!(unwound.is_err());
            }
        }
    }

    fn seen(&mut self) -> (BreakerState, BreakerCounts, BreakerTotals) {
        let stats = self.breaker.stats();
        assert_eq!(stats.state, self.breaker.state());
        (state(stats.state), counts(stats.window), totals(stats.totals))
    }

    fn news(&mut self) -> Vec<BreakerEvent> {
        std::mem::take(&mut *self.heard.0.lock().unwrap())
    }

    fn force(&mut self, forced: Option<Forced>) {
        match forced {
            Some(forced) => self.breaker.force(forced),
            None => self.breaker.unforce(),
        }
    }

    fn reset(&mut self) {
        self.breaker.reset();
    }

    fn change(&mut self, rules: BreakerConfig) {
        self.breaker.change(rules).unwrap();
    }
}

struct Out<C> {
    call: C,
    number: u64,
    /// When it began, if that is known.
    began: Option<u64>,
}

/// What the sequences have covered, to prove that they are of use.
#[derive(Default, Debug)]
struct Reached {
    opened: u64,
    closed: u64,
    expired: u64,
    late: u64,
    would_have_opened: u64,
    denied: u64,
}

/// One sequence of events.
struct Run<S: Subject> {
    rng: Rng,
    rules: BreakerConfig,
    now: u64,
    subject: S,
    model: BreakerModel,
    out: Vec<Out<S::Call>>,
    /// The percentage of calls that fail: few sequences have only failures or none.
    badness: u8,
    steps: Vec<String>,
}

impl<S: Subject> Run<S> {
    fn new(seed: u64) -> Run<S> {
        let mut rng = Rng::with_seed(seed);
        let rules = random_rules(&mut rng);
        let now = 1_700_000_000_000_000_u64 + rng.u64(..1_000_000);
        Run {
            badness: [10, 50, 50, 90][rng.usize(..4)],
            rng,
            rules,
            now,
            subject: S::new(rules, now),
            model: BreakerModel::new(rule(&rules)),
            out: Vec::new(),
            steps: vec![format!("seed {seed}, {rules}")],
        }
    }

    fn step(&mut self, reached: &mut Reached) {
        match self.rng.u8(..100) {
            0..38 => self.ask(reached),
            38..72 if !self.out.is_empty() => self.end(),
            72..90 => {
                let most = [3, 600, 600, 600, 10_000][self.rng.usize(..5)];
                self.now += self.rng.u64(..=most);
                self.subject.set(self.now);
            }
            90..92 => {
                let most = [3, 500, 100_000][self.rng.usize(..3)];
                self.now -= self.rng.u64(..=most);
                self.subject.set(self.now);
            }
            92 => self.by_hand(),
            _ => self.advance(),
        }
        let heard = self.model.take_events();
        reached.closed += heard.iter().filter(|news| matches!(news, BreakerEvent::Closed(_))).count() as u64;
        assert_eq!(self.subject.news(), heard, "{:#?}", self.steps);
    }

    fn note(&mut self, what: &str) {
        self.steps.push(format!("{}: {what}", self.now));
    }

    fn ask(&mut self, reached: &mut Reached) {
        self.note("ask");
        match (self.subject.ask(), self.model.call(self.now)) {
            (Ok(call), BreakerDecision::Allowed(number)) => {
                let began = self.rules.slow().map(|_| self.now);
                self.out.push(Out { call, number, began });
            }
            (Err(wait), BreakerDecision::Denied(expected)) => {
                reached.denied += 1;
                assert_eq!(wait, expected, "{:#?}", self.steps);
            }
            (answer, expected) => {
                panic!("allowed {}, but {expected:?}: {:#?}", answer.is_ok(), self.steps);
            }
        }
    }

    fn end(&mut self) {
        let Out { call, number, began } = self.out.swap_remove(self.rng.usize(..self.out.len()));
        let end = match self.rng.u8(..20) {
            0 => End::Ignored,
            1 => End::Dropped,
            2 => End::Panic,
            3 => End::Hung,
            _ if self.rng.u8(..100) < self.badness => End::Failure,
            _ => End::Success,
        };
        self.note(&format!("{number} ends, {end:?}"));
        let took = began.map_or(0, |began| self.now.saturating_sub(began));
        self.subject.end(call, end, took);
        let reported = match end {
            End::Success => BreakerOutcome::Success,
            End::Failure | End::Panic => BreakerOutcome::Failure,
            End::Ignored => BreakerOutcome::Ignored,
            End::Dropped => BreakerOutcome::Dropped,
            End::Hung => return,
        };
        self.model.finish(number, reported, took, self.now);
    }

    fn by_hand(&mut self) {
        match self.rng.u8(..6) {
            0 => {
                self.note("reset");
                self.subject.reset();
                self.model.reset();
            }
            1 | 2 => {
                self.note("unforce");
                self.subject.force(None);
                self.model.unforce();
            }
            3 => {
                let (forced, expected) = [
                    (Forced::Open, BreakerState::ForcedOpen),
                    (Forced::Disabled, BreakerState::Disabled),
                    (Forced::MetricsOnly, BreakerState::MetricsOnly),
                ][self.rng.usize(..3)];
                self.note(&format!("force {forced:?}"));
                self.subject.force(Some(forced));
                self.model.force(expected);
            }
            _ => {
                // Half of the time with the same window.
                let others = random_rules(&mut self.rng);
                let measure = |text: &str| text.split_ascii_whitespace().nth(1).map(str::to_owned);
                let (text, own) = (others.to_string(), self.rules.to_string());
                let kept =
                    measure(&text).zip(measure(&own)).map(|(one, other)| text.replacen(&one, &other, 1));
                let kept = kept.and_then(|text| text.parse().ok());
                self.rules = kept.filter(|_| self.rng.bool()).unwrap_or(others);
                self.note(&format!("change to {}", self.rules));
                self.subject.change(self.rules);
                self.model.change(rule(&self.rules));
            }
        }
    }

    fn advance(&mut self) {
        self.note("look");
        let found = self.subject.seen();
        self.model.advance(self.now);
        let counts = self.model.counts(self.now);
        assert_eq!(found, (self.model.state(), counts, self.model.totals()), "{:#?}", self.steps);
    }
}

fn run<S: Subject>(seed: u64, reached: &mut Reached) {
    let mut run = Run::<S>::new(seed);
    for _ in 0..EVENTS {
        run.step(reached);
    }
    // Calls still in flight are dropped, which must do no harm.
    for Out { call, number, .. } in std::mem::take(&mut run.out) {
        run.subject.end(call, End::Dropped, 0);
        run.model.finish(number, BreakerOutcome::Dropped, 0, run.now);
    }
    run.advance();
    let totals = run.model.totals();
    reached.opened += totals.opened;
    reached.expired += totals.expired;
    reached.late += totals.late;
    reached.would_have_opened += totals.would_have_opened;
}

fn run_all<S: Subject>(name: u64) {
    let mut reached = Reached::default();
    for seed in 0..SEQUENCES {
        run::<S>(seed * 2 + name, &mut reached);
    }
    let Reached { opened, closed, expired, late, would_have_opened, denied } = reached;
    // Sequences that never open the breaker prove little.
    let least = [opened, closed, expired, late, would_have_opened, denied].into_iter().min();
    assert!(least > Some(SEQUENCES / 10), "{reached:?}");
}

#[test]
fn the_core_does_what_the_model_does() {
    run_all::<CoreSubject>(0);
}

#[test]
fn the_library_does_what_the_model_does() {
    run_all::<InLibrary>(1);
}
