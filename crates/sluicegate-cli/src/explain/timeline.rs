//! A small timeline of real decisions: the core is asked, nothing is made up.

use super::leases;
use sluicegate::Limit;
use sluicegate::limit::{Spec, WindowSpec};
use sluicegate_core::bounds::saturating_count;
use sluicegate_core::{Account, AnyLimit, Decision, RetryAfter, Span, Time};
use sluicegate_sim::human::{TIE, count, span};
use std::fmt::Write as _;

/// 2026-11-11T12:00:00Z: any moment would do, but the same one shows the same every time.
const NOON: u64 = 1_794_398_400_000_000;
/// How wide the bar of what remains is.
const BAR: u64 = 16;

/// What stands above the rows.
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

/// When the timeline begins: noon of a day, or when the limit opens if that is later. Where it matters, it is said.
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

/// One key under the limit, and what has been shown of it.
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
        // Come back one tick too soon, then when told.
        if let Some(RetryAfter::After(wait)) = denied.retry_after() {
            let too_soon = now.saturating_add(wait.saturating_sub(Span::from_micros(1)));
            now = now.saturating_add(wait);
            if too_soon > self.start {
                // As told, which is rounded for reading, less the tick.
                let label = format!("{}{TIE}-{TIE}1{TIE}µs", span(now.since(self.start)));
                let denied = self.call_at(&label, too_soon, 1);
                // A denied call that counts moves the moment at which the next may pass.
                if let Some(RetryAfter::After(wait)) = denied.retry_after() {
                    now = too_soon.saturating_add(wait);
                }
            }
            let _ = self.call(now, 1);
        }
        let rested = now.saturating_add(self.account.peek(&self.limits, now, 0).reset_after());
        if rested > now {
            let standing = self.account.peek(&self.limits, rested, 0);
            self.row(&span(rested.since(self.start)), "-", "", &standing, "as good as new");
        }
        let _ = self.call(rested, all.saturating_add(1));
    }

    /// Who comes next pays: one call and the one after it, which may wait; then a large one after a rest.
    fn show_smooth(&mut self) {
        let all = self.account.peek(&self.limits, self.start, 0).limit();
        let mut now = self.start;
        let _ = self.call(now, 1);
        let _ = self.call(now, 1);
        // Without a longest wait there is none to refuse; it cannot fail, as smooth offers it.
        if let Ok(decision) = self.account.check_within(&self.limits, now, 1, Span::MAX) {
            let then = format!("waits, and leaves in {}", span(decision.delay()));
            self.row(&span(now.since(self.start)), "1", "yes", &decision, &then);
            now = now.saturating_add(decision.delay());
        }
        let rested = now.saturating_add(self.account.peek(&self.limits, now, 0).reset_after());
        let standing = self.account.peek(&self.limits, rested, 0);
        self.row(&span(rested.since(self.start)), "-", "", &standing, "as good as new");
        let _ = self.call(rested, all.saturating_add(2));
        let _ = self.call(rested, 1);
    }

    fn call(&mut self, now: Time, cost: u64) -> Decision {
        self.call_at(&span(now.since(self.start)), now, cost)
    }

    fn call_at(&mut self, label: &str, now: Time, cost: u64) -> Decision {
        let decision = self.account.check(&self.limits, now, saturating_count(cost));
        let then = match decision.retry_after() {
            Some(RetryAfter::Never) => "never: above the limit".to_owned(),
            Some(RetryAfter::After(wait)) => format!("again in {}", span(wait)),
            None if decision.delay() > Span::ZERO => format!("leaves in {}", span(decision.delay())),
            None => String::new(),
        };
        let answer = if decision.allowed() { "yes" } else { "no" };
        self.row(label, &count(cost.into()), answer, &decision, &then);
        decision
    }

    fn row(&mut self, at: &str, cost: &str, answer: &str, decision: &Decision, then: &str) {
        row(&mut self.text, at, (cost, answer), decision, then);
    }
}

/// A moment, what was asked and answered, how the key stands, and what follows from it.
pub(super) fn row(
    text: &mut String,
    at: &str,
    (cost, answer): (&str, &str),
    decision: &Decision,
    then: &str,
) {
    let remaining = decision.remaining();
    let filled = (remaining * BAR).div_ceil(decision.limit().max(1)).min(BAR);
    let bar: String = (0..BAR).map(|place| if place < filled { '█' } else { '░' }).collect();
    let row = format!("{at:>19}  {cost:>13}  {answer:<6}  {bar} {}  {then}", count(remaining));
    let _ = writeln!(text, "{}", row.trim_end());
}
