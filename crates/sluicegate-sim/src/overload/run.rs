//! One run: what happens next, until nothing does.

use super::protection::{Passed, Protected};
use super::record::{End, Outcome, Record};
use super::{Protection, Scenario};
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use sluicegate::BuildError;
use sluicegate::clock::ManualClock;
use sluicegate_core::{Span, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub(super) fn run(scenario: &Scenario<'_>, protection: &Protection) -> Result<Outcome, BuildError> {
    let clock = ManualClock::at(scenario.traffic.first());
    let mut run = Run {
        scenario,
        protected: protection.guard(&clock)?,
        clock,
        record: Record::new(scenario.timeline()),
        tries: Vec::new(),
        next: BinaryHeap::new(),
        waiting: VecDeque::new(),
        working: 0,
    };
    let mut arrivals = scenario.traffic.calls().iter().zip(0_u32..).peekable();
    loop {
        // What was under way comes before what is new at the same time.
        let event = run.next.peek().map(|Reverse((at, ..))| *at);
        match (event, arrivals.peek()) {
            (Some(at), Some((call, _))) if at <= call.at => run.go_on(),
            (Some(_), None) => run.go_on(),
            (_, Some((call, number))) => {
                let (at, number) = (call.at, *number);
                arrivals.next();
                run.pass_time(at);
                run.try_call(number, 0);
            }
            (None, None) => break,
        }
    }
    run.pass_time(scenario.timeline().end());
    Ok(run.record.finish())
}

struct Run<'a> {
    scenario: &'a Scenario<'a>,
    protected: Protected,
    clock: ManualClock,
    record: Record,
    /// Each try in the order in which they were let through.
    tries: Vec<Try>,
    /// What is to come: the earliest first, and at one time in the order of the tries.
    next: BinaryHeap<Reverse<(Time, usize, Event)>>,
    /// Tries that wait for a worker, the first first.
    waiting: VecDeque<usize>,
    /// How many workers are busy.
    working: u32,
}

/// A try that was let through.
struct Try {
    /// Whose.
    call: u32,
    /// How many there were before it.
    again: u32,
    /// `None` once its caller has gone.
    passed: Option<Passed>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A worker is done with a try, after so long.
    Done { took: Span, is_good: bool },
    /// The caller of a try has waited for long enough.
    GivesUp,
    /// A caller tries again; this one's number is its call's.
    Again { again: u32 },
}

impl Run<'_> {
    fn now(&self) -> Time {
        use sluicegate::clock::Clock as _;
        self.clock.now()
    }

    /// How many the dependency has.
    fn at_work(&self) -> usize {
        self.waiting.len() + usize::try_from(self.working).unwrap_or(usize::MAX)
    }

    fn pass_time(&mut self, to: Time) {
        let at_work = self.at_work();
        self.record.up_to(to, at_work, || self.protected.look());
        self.clock.set(to);
    }

    /// The next thing happens.
    fn go_on(&mut self) {
        let Some(Reverse((at, number, event))) = self.next.pop() else { return };
        self.pass_time(at);
        match event {
            Event::Done { took, is_good } => self.done(number, took, is_good),
            Event::GivesUp => self.end(number, End::TimedOut),
            Event::Again { again } => self.try_call(u32::try_from(number).unwrap_or(u32::MAX), again),
        }
    }

    fn try_call(&mut self, call: u32, again: u32) {
        self.record.tries();
        let Some(passed) = self.protected.ask() else {
            self.ended(call, again, End::Denied);
            return;
        };
        let number = self.tries.len();
        self.tries.push(Try { call, again, passed: Some(passed) });
        let backlog = self.scenario.dependency.backlog.map_or(usize::MAX, |backlog| backlog as usize);
        if self.working < self.scenario.dependency.workers {
            self.work_on(number);
        } else if self.waiting.len() < backlog {
            self.waiting.push_back(number);
        } else {
            self.end(number, End::Failed);
            return;
        }
        let timeout = self.now().saturating_add(self.scenario.callers.timeout);
        self.next.push(Reverse((timeout, number, Event::GivesUp)));
        let at_work = self.at_work();
        self.record.at_work(self.now(), at_work);
    }

    /// A worker begins, not knowing whether anybody still waits for it.
    fn work_on(&mut self, number: usize) {
        self.working += 1;
        // Each try of each call has random numbers of its own, so that it takes as long whatever
        // protects it.
        let (call, again) = self.tries.get(number).map_or((0, 0), |one| (one.call, one.again));
        let one = (u64::from(call) << 8 | u64::from(again)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.scenario.seed ^ one);
        let since = self.now().since(self.scenario.traffic.first());
        let (took, is_good) = self.scenario.dependency.serve(since, &mut random);
        self.next.push(Reverse((self.now().saturating_add(took), number, Event::Done { took, is_good })));
    }

    fn done(&mut self, number: usize, took: Span, is_good: bool) {
        self.working -= 1;
        let is_wasted = self.tries.get(number).is_none_or(|one| one.passed.is_none());
        self.record.worked(took, is_wasted);
        self.end(number, if is_good { End::Good } else { End::Failed });
        if self.working < self.scenario.dependency.workers
            && let Some(next) = self.waiting.pop_front()
        {
            self.work_on(next);
        }
    }

    /// A try has ended for its caller, if there is one.
    fn end(&mut self, number: usize, end: End) {
        let Some(ended) = self.tries.get_mut(number) else { return };
        let Some(passed) = ended.passed.take() else { return };
        let (call, again) = (ended.call, ended.again);
        passed.end(end == End::Good);
        self.ended(call, again, end);
    }

    /// What a caller does next.
    fn ended(&mut self, call: u32, again: u32, end: End) {
        let callers = self.scenario.callers;
        if end != End::Good && again < callers.retries {
            let at = self.now().saturating_add(callers.backoff);
            self.next.push(Reverse((at, call as usize, Event::Again { again: again + 1 })));
        } else if let Some(made) = self.scenario.traffic.calls().get(call as usize) {
            self.record.ended(made.at, self.now(), end);
        }
    }
}
