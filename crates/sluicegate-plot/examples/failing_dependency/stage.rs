//! What the example plays on: a bank with ten clerks and two bad times, customers with a second of
//! patience, and a picture.

use sluicegate::clock::{Clock as _, TokioClock};
use sluicegate_core::{Span, Time};
use sluicegate_plot::{OverloadFigure, OverloadView, Theme, svg};
use sluicegate_sim::human::{TIE, about, percent};
use sluicegate_sim::overload::{Dependency, End, Ran, Record, Report, Totals, Trouble};
use sluicegate_sim::simulate::Timeline;
use sluicegate_sim::traffic::Clock;
use std::error::Error;
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// How long a customer waits.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);
/// How long it goes on, in seconds, and how many customers come in each.
const SECONDS: u64 = 60;
const A_SECOND: u64 = 150;
/// What the bank is like, and when it is not well.
const BANK: &str = "workers=10 takes=50ms slow=15s..30s:x10 fail=40s..50s:100%";

/// How a call ended that did not end well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Denied,
    Failed,
    TimedOut,
}

/// What is called. It works on, whether or not anybody still waits for it.
#[derive(Clone)]
pub(crate) struct Bank {
    like: Arc<Dependency>,
    clock: TokioClock,
    opened: Time,
    clerks: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    record: Arc<Mutex<Record>>,
}

impl Bank {
    /// Pays, sooner or later.
    pub(crate) async fn pay(&self) -> Result<(), Ended> {
        let (bank, mut work) = (self.clone(), JoinSet::new());
        let (tell, reported) = tokio::sync::oneshot::channel();
        work.spawn(async move {
            bank.inside.fetch_add(1, Ordering::Relaxed);
            let clerk = bank.clerks.acquire().await;
            let (took, is_good) = bank.now();
            sleep(took).await;
            drop(clerk);
            bank.inside.fetch_sub(1, Ordering::Relaxed);
            let is_wasted = tell.send(is_good).is_err();
            bank.lock().worked(took.into(), is_wasted);
        });
        // Who leaves does not take the work along.
        work.detach_all();
        if reported.await.unwrap_or(false) { Ok(()) } else { Err(Ended::Failed) }
    }

    /// How long a call takes now, and whether it ends well.
    fn now(&self) -> (Duration, bool) {
        let at = self.clock.now().since(self.opened);
        let bad = self.like.episodes.iter().filter(|bad| (bad.from..bad.to).contains(&at));
        let mut how = (Duration::from(self.like.takes), true);
        for bad in bad {
            match bad.trouble {
                Trouble::Slow(times) => how.0 *= times,
                Trouble::Fail(_) => how.1 = false,
            }
        }
        how
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What has been played so far.
#[derive(Default)]
pub(crate) struct Stage {
    ran: Vec<Ran>,
}

impl Stage {
    /// Simulates customers who call as given for a minute. Returns what became of their calls.
    pub(crate) async fn play<F, C>(&mut self, label: &str, call: C) -> Totals
    where
        C: Fn(Bank) -> F,
        F: Future<Output = Result<(), Ended>> + Send + 'static,
    {
        let clock = TokioClock::new();
        let opened = clock.now();
        let like = Arc::new(like());
        let bank = Bank {
            clerks: Arc::new(Semaphore::new(usize::try_from(like.workers).unwrap_or(1))),
            like,
            clock,
            opened,
            inside: Arc::default(),
            record: Arc::new(Mutex::new(Record::new(timeline(opened)))),
        };
        let mut customers = JoinSet::new();
        let began = Instant::now();
        for customer in 0..SECONDS * A_SECOND {
            sleep_until(began + Duration::from_micros(customer * 1_000_000 / A_SECOND)).await;
            let (one, paid) = (bank.clone(), call(bank.clone()));
            customers.spawn(async move {
                let came = one.clock.now();
                one.lock().tries();
                let paid = tokio::time::timeout(TIMEOUT, paid).await.unwrap_or(Err(Ended::TimedOut));
                let end = match paid {
                    Ok(()) => End::Good,
                    Err(Ended::Denied) => End::Denied,
                    Err(Ended::Failed) => End::Failed,
                    Err(Ended::TimedOut) => End::TimedOut,
                };
                one.lock().ended(came, one.clock.now(), end);
            });
            bank.lock().at_work(clock.now(), bank.inside.load(Ordering::Relaxed));
        }
        while customers.join_next().await.is_some() {}
        // The bank goes on until it is empty.
        while bank.inside.load(Ordering::Relaxed) > 0 {
            sleep(TIMEOUT).await;
        }
        let empty = Record::new(timeline(opened));
        let outcome = std::mem::replace(&mut *bank.lock(), empty).finish();
        let totals = outcome.totals;
        self.ran.push(Ran { label: label.to_owned(), outcome });
        totals
    }

    /// A table on standard output, and the picture.
    pub(crate) fn draw(self, path: Option<OsString>) -> Result<(), Box<dyn Error>> {
        let mut table = format!("{:38}{:>8}{:>10}{:>10}{:>10}\n", "", "good", "denied", "failed", "p99");
        for Ran { label, outcome } in &self.ran {
            let totals = outcome.totals;
            let part = |some| percent(some, totals.offered);
            let in_vain = part(totals.failed + totals.timed_out);
            let (good, refused, p99) = (part(totals.good), part(totals.denied), about(totals.p99));
            table += &format!("{label:38}{good:>8}{refused:>10}{in_vain:>10}{p99:>10}\n");
        }
        let like = like();
        let report = Report {
            source: format!("{A_SECOND} customers a second with a patience of {TIMEOUT:?}; {like}"),
            clock: Clock::Since(Time::EPOCH),
            first: Time::EPOCH,
            timeline: timeline(Time::EPOCH),
            timeout: TIMEOUT.into(),
            workers: like.workers,
            episodes: like.episodes,
            ran: self.ran,
        };
        let views = [OverloadView::Calls, OverloadView::Waits];
        let title = Some("A failing dependency, without protection and with");
        let picture = svg(&OverloadFigure { title, views: &views }.draw(&report), Theme::Auto);
        let path = path.map_or_else(|| std::env::temp_dir().join("failing_dependency.svg"), PathBuf::from);
        std::fs::write(&path, picture)?;
        say(&format!("{}picture: {}\n", table.replace(TIE, " "), path.display()));
        Ok(())
    }
}

#[allow(clippy::print_stdout, reason = "an example talks to a person")]
fn say(words: &str) {
    print!("{words}");
}

fn like() -> Dependency {
    BANK.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// A piece a second.
fn timeline(from: Time) -> Timeline {
    let last = from.saturating_add(Span::from_micros(SECONDS * 1_000_000 - 1));
    Timeline::round(Clock::Since(from), from, last, SECONDS)
}
