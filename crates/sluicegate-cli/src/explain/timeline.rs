//! A small timeline of real decisions: the core is asked, nothing is made up.

use crate::human::{count, span};
use sluicegate::core::Account;
use sluicegate::core::{AnyLimit, Decision, RetryAfter, Span, Time};
use sluicegate::{Limit, Spec, WindowSpec};
use std::fmt::Write as _;

/// 2026-11-11T12:00:00Z: any moment would do, but the same one shows the same every time.
const NOON: u64 = 1_794_398_400_000_000;
/// How wide the bar of what remains is.
const BAR: u64 = 16;

pub(crate) fn of(limit: &Limit) -> String {
    let start = beginning(limit);
    let mut key = Key { limits: [limit.made_at(start)], account: Account::default(), start, text: header() };
    key.show(limit);
    key.text
}

/// Noon of a day, or when the limit opens if that is later.
fn beginning(limit: &Limit) -> Time {
    let noon = Time::saturating_from_micros(NOON);
    match limit.spec() {
        Spec::FixedWindow { windows: WindowSpec::Aligned { start, .. }, .. } => noon.max(*start),
        _ => noon,
    }
}

fn header() -> String {
    format!("{:>17}  {:>13}  {:<6}  {:<20}  and then\n", "at", "cost", "answer", "remaining")
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
            self.call(now, 1);
        }
        if paced && all > 2 {
            self.call(now, 1);
        }
        let left = self.account.peek(&self.limits, now, 0).remaining();
        if left > 0 {
            self.call(now, left);
        }
        let denied = self.call(now, 1);
        // Come back one tick too soon, then when told.
        if let Some(RetryAfter::After(wait)) = denied.retry_after() {
            let too_soon = wait.less(Span::from_micros(1));
            if too_soon > Span::ZERO {
                self.call(now.after(too_soon), 1);
                // A denied call that counts moves the moment at which the next may pass.
                if let Some(RetryAfter::After(again)) =
                    self.account.peek(&self.limits, now.after(too_soon), 1).retry_after()
                {
                    now = now.after(too_soon).after(again);
                }
            } else {
                now = now.after(wait);
            }
            self.call(now, 1);
        }
        let rested = now.after(self.account.peek(&self.limits, now, 0).reset_after());
        if rested > now {
            let standing = self.account.peek(&self.limits, rested, 0);
            self.row(rested, "-", "", &standing, "as good as new");
        }
        self.call(rested, all.saturating_add(1));
    }

    fn call(&mut self, now: Time, cost: u32) -> Decision {
        let decision = self.account.check(&self.limits, now, cost);
        let then = match decision.retry_after() {
            Some(RetryAfter::Never) => "never: above the limit".to_owned(),
            Some(RetryAfter::After(wait)) => format!("again in {}", span(wait)),
            None if decision.delay() > Span::ZERO => format!("leaves in {}", span(decision.delay())),
            None => String::new(),
        };
        let answer = if decision.allowed() { "yes" } else { "no" };
        self.row(now, &count(cost.into()), answer, &decision, &then);
        decision
    }

    fn row(&mut self, now: Time, cost: &str, answer: &str, decision: &Decision, then: &str) {
        let at = span_exact(now.since(self.start));
        let remaining = u64::from(decision.remaining());
        let filled = (remaining * BAR).div_ceil(u64::from(decision.limit()).max(1)).min(BAR);
        let bar: String = (0..BAR).map(|place| if place < filled { '█' } else { '░' }).collect();
        let row = format!("{at:>17}  {cost:>13}  {answer:<6}  {bar} {}  {then}", count(remaining));
        let _ = writeln!(self.text, "{}", row.trim_end());
    }
}

/// A length that shows when it is a microsecond short: `2 s - 1 µs`.
fn span_exact(length: Span) -> String {
    let next = length.as_micros() + 1;
    if next > 1_000 && next.is_multiple_of(1_000) {
        format!("{} - 1 µs", span(Span::from_micros(next)))
    } else {
        span(length)
    }
}
