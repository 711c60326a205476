//! A short timeline of real decisions, made by the core.

use super::leases;
use sluicegate::Limit;
use sluicegate::limit::{Spec, WindowSpec};
use sluicegate_core::{Account, AnyLimit, Decision, RetryAfter, Span, Time};
use sluicegate_sim::human::{TIE, count, span};
use std::fmt::Write as _;

/// 2026-11-11T12:00:00Z. Any time would do, but a fixed one prints the same text every time.
const NOON: u64 = 1_794_398_400_000_000;
/// Width of the bar that shows what remains.
const BAR: u64 = 16;

/// The header row.
pub(super) const HEADER: &str =
    "                 at           cost  answer  remaining             and then\n";

pub(crate) fn of(limit: &Limit) -> String {
    let (start, said) = beginning(limit);
    let Some(made) = limit.made_at(start) else {
        return limit.as_concurrency().map_or_else(String::new, leases::of);
    };
    let text = said.map_or(HEADER.to_owned(), |said| format!("At 0 s it is {said}.\n\n{HEADER}"));
    let mut key = Key { limits: [made], account: Account::default(), start, text };
    match limit.spec() {
        Spec::Smooth { .. } => key.show_smooth(),
        _ => key.show(limit),
    }
    key.text
}

/// When the timeline begins: at noon, or when the limit opens if that is later. The text is for
/// limits whose decisions depend on the date.
fn beginning(limit: &Limit) -> (Time, Option<&'static str>) {
    let noon = Time::saturating_from_micros(NOON);
    match limit.spec() {
        Spec::FixedWindow { windows: WindowSpec::Aligned { start, .. }, .. } if *start > noon => {
            (*start, Some("the limit's start"))
        }
        Spec::FixedWindow { windows: WindowSpec::First { .. }, .. } => (noon, None),
        Spec::FixedWindow { .. } | Spec::SlidingWindow { .. } => {
            (noon, Some("Wednesday 2026-11-11, 12:00 UTC"))
        }
        _ => (noon, None),
    }
}

/// A key under the limit, and the text so far.
struct Key {
    limits: [AnyLimit; 1],
    account: Account<AnyLimit>,
    start: Time,
    text: String,
}

impl Key {
    fn show(&mut self, limit: &Limit) {
        let all = self.account.peek(&self.limits, self.start, 0).limit();
        let paced = matches!(limit.spec(), Spec::Pacer { .. });
        let mut now = self.start;
        // Take one, then all that is left, then one too many.
        if self.account.peek(&self.limits, now, 0).remaining() > 0 {
            let _ = self.call(now, 1);
        }
        if paced && all > 2 {
            let _ = self.call(now, 1);
        }
        let left = self.account.peek(&self.limits, now, 0).remaining();
        if left > 0 {
            let _ = self.call(now, left);
        }
        let denied = self.call(now, 1);
        // Retry one tick too soon, then on time.
        if let Some(RetryAfter::After(wait)) = denied.retry_after() {
            let too_soon = now.saturating_add(wait.saturating_sub(Span::from_micros(1)));
            now = now.saturating_add(wait);
            if too_soon > self.start {
                // The printed wait is rounded for reading, so the label subtracts the tick in
                // words.
                let label = format!("{}{TIE}-{TIE}1{TIE}µs", span(now.since(self.start)));
                let denied = self.call_at(&label, too_soon, 1);
                // Under `count=all` the denied call moves the time at which the next is allowed.
                if let Some(RetryAfter::After(wait)) = denied.retry_after() {
                    now = too_soon.saturating_add(wait);
                }
            }
            let _ = self.call(now, 1);
        }
        let rested = now.saturating_add(self.account.peek(&self.limits, now, 0).reset_after());
        if rested > now {
            let standing = self.account.peek(&self.limits, rested, 0);
            self.row(&span(rested.since(self.start)), "-", "", &standing, "fully recovered");
        }
        let _ = self.call(rested, all.saturating_add(1));
    }

    /// Under `smooth` the next call pays: a call and the next one, which may wait; then a large
    /// call after a pause.
    fn show_smooth(&mut self) {
        let all = self.account.peek(&self.limits, self.start, 0).limit();
        let mut now = self.start;
        let _ = self.call(now, 1);
        let _ = self.call(now, 1);
        // Cannot fail: `smooth` supports the verb, and the longest wait denies nothing.
        if let Ok(decision) = self.account.check_within(&self.limits, now, 1, Span::MAX) {
            let then = format!("waits, and leaves in {}", span(decision.delay()));
            self.row(&span(now.since(self.start)), "1", "yes", &decision, &then);
            now = now.saturating_add(decision.delay());
        }
        let rested = now.saturating_add(self.account.peek(&self.limits, now, 0).reset_after());
        let standing = self.account.peek(&self.limits, rested, 0);
        self.row(&span(rested.since(self.start)), "-", "", &standing, "fully recovered");
        let _ = self.call(rested, all.saturating_add(2));
        let _ = self.call(rested, 1);
    }

    fn call(&mut self, now: Time, cost: u64) -> Decision {
        self.call_at(&span(now.since(self.start)), now, cost)
    }

    fn call_at(&mut self, label: &str, now: Time, cost: u64) -> Decision {
        let decision = self.account.check(&self.limits, now, cost);
        let then = match decision.retry_after() {
            Some(RetryAfter::Never) => "never: above the limit".to_owned(),
            Some(RetryAfter::After(wait)) => format!("retry in {}", span(wait)),
            None if decision.delay() > Span::ZERO => format!("leaves in {}", span(decision.delay())),
            None => String::new(),
        };
        let answer = if decision.allowed() { "yes" } else { "no" };
        self.row(label, &count(cost), answer, &decision, &then);
        decision
    }

    fn row(&mut self, at: &str, cost: &str, answer: &str, decision: &Decision, then: &str) {
        row(&mut self.text, at, (cost, answer), decision, then);
    }
}

/// Appends a row: the time, the cost and answer, what remains, and what follows from it.
pub(super) fn row(
    text: &mut String,
    at: &str,
    (cost, answer): (&str, &str),
    decision: &Decision,
    then: &str,
) {
    let remaining = decision.remaining();
    // Rounded down: a full bar means that nothing is used.
    let filled = (remaining * BAR / decision.limit().max(1)).min(BAR);
    let bar: String = (0..BAR).map(|place| if place < filled { '█' } else { '░' }).collect();
    let row = format!("{at:>19}  {cost:>13}  {answer:<6}  {bar} {}  {then}", count(remaining));
    let _ = writeln!(text, "{}", row.trim_end());
}
