//! What a limit does, promises and costs, in sentences with its own numbers.

use sluicegate::Limit;
use sluicegate::limit::{Initial, Spec, WindowSpec};
use sluicegate_core::smooth::WarmUp;
use sluicegate_core::{Rate, Span, Time};
use sluicegate_sim::human::{count, span};

/// The sentences about one limit.
pub(crate) struct Words {
    pub(crate) does: String,
    pub(crate) promise: String,
    pub(crate) worst: String,
    pub(crate) clock: &'static str,
    pub(crate) memory: String,
    pub(crate) instead: &'static str,
}

const CELL: &str = "16 bytes of state, regardless of how many calls.";
const WIDE_CELL: &str = "24 bytes of state, regardless of how many calls.";
const BUCKET_CLOCK: &str =
    "On a shared store, a step back of its clock makes the limit stricter by at most the step.";
const WINDOW_CLOCK: &str =
    "If the clock steps back, a call is decided as if it came with the latest allowed one.";

pub(crate) fn of(limit: &Limit) -> Words {
    match limit.spec() {
        Spec::TokenBucket { rate, burst, initial } => token_bucket(*rate, *burst, *initial),
        Spec::LeakyBucket { rate, capacity } => leaky_bucket(*rate, *capacity),
        Spec::MinInterval { interval } => min_interval(*interval),
        Spec::Pacer { rate, queue } => pacer(*rate, *queue),
        Spec::FixedWindow { count, windows } => fixed_window(*count, windows),
        Spec::SlidingLog { rate, count_all } => sliding_log(*rate, *count_all),
        Spec::SlidingWindow { rate } => sliding_window(*rate),
        Spec::Smooth { rate, warm_up, initial, .. } => smooth(limit, *rate, *warm_up, *initial),
        Spec::Concurrency { count, ttl } => concurrency(*count, *ttl),
        other => unreachable!("{other:?} has no words; a test explains every algorithm"),
    }
}

fn token_bucket(rate: Rate, burst: u64, initial: Option<Initial>) -> Words {
    let start = match initial {
        None => "A new key starts full.".to_owned(),
        Some(Initial { tokens, start, .. }) => {
            let since = if start.is_some() { "at its start" } else { "when the limiter was created" };
            format!("A key that has never called held {} {since} and refills from then on.", count(tokens))
        }
    };
    Words {
        does: format!(
            "Holds up to {}; {}. A call takes tokens for its whole cost, or none and is denied. {start}",
            units(burst, "token"),
            refill(rate, "are added", "is added")
        ),
        promise: bucket_promise(rate, burst),
        worst: bucket_worst(rate, burst, "saved up"),
        clock: BUCKET_CLOCK,
        memory: CELL.to_owned(),
        instead: "For at most N in any period use sliding-log; for an even flow use pacer.",
    }
}

fn leaky_bucket(rate: Rate, capacity: u64) -> Words {
    Words {
        does: format!(
            "A funnel that holds {}; {}. A call pours in its whole cost, or none and is denied. It decides \
             exactly like token-bucket with that burst.",
            units(capacity, "unit"),
            refill(rate, "leak out", "leaks out")
        ),
        promise: bucket_promise(rate, capacity),
        worst: bucket_worst(rate, capacity, "of free room"),
        clock: BUCKET_CLOCK,
        memory: CELL.to_owned(),
        instead: "For callers that wait in the funnel instead of being denied use pacer.",
    }
}

fn min_interval(interval: Span) -> Words {
    let interval = span(interval);
    Words {
        does: format!(
            "Allows the next call {interval} after an allowed one. It is token-bucket with a single token, so no \
             call may cost more than 1."
        ),
        promise: format!("Two allowed calls are at least {interval} apart."),
        worst: format!("1 in any {interval}."),
        clock: BUCKET_CLOCK,
        memory: CELL.to_owned(),
        instead: "For a short burst followed by a pause use token-bucket.",
    }
}

fn pacer(rate: Rate, queue: u64) -> Words {
    Words {
        does: format!(
            "Allowed calls leave one after another, {}. Each gets a delay until its time slot; {} may wait, and \
             further calls are denied.",
            each(rate),
            count(queue)
        ),
        promise: format!(
            "Calls that observe their delay leave {} apart; each unit of cost takes one time slot.",
            interval(rate)
        ),
        worst: format!("{} admitted at once, but they leave one after another.", count(queue + 1)),
        clock: "If the clock steps back, time slots stay where they are, and delays grow by the step.",
        memory: CELL.to_owned(),
        instead: "For callers that should act immediately or be denied use token-bucket.",
    }
}

fn fixed_window(most: u64, windows: &WindowSpec) -> Words {
    let (where_they_are, length) = match windows {
        WindowSpec::Aligned { start, period } if *start == Time::EPOCH => {
            (format!("consecutive windows of {} from the Unix epoch", span(*period)), span(*period))
        }
        WindowSpec::Aligned { period, .. } => (
            format!(
                "consecutive windows of {} from the given start; earlier calls are denied",
                span(*period)
            ),
            span(*period),
        ),
        WindowSpec::First { period } => {
            (format!("the first allowed call opens a window of {}", span(*period)), span(*period))
        }
        WindowSpec::Calendar { unit, zone } => {
            (format!("each calendar {unit} in {zone}, whatever its real length"), format!("one {unit}"))
        }
        other => unreachable!("{other:?} has no words; a test explains every kind"),
    };
    // A window that a call opens has that call at its start, a whole period before the next window.
    let end = if matches!(windows, WindowSpec::First { .. }) { most - 1 } else { most };
    let (once, end, both) = (count(most), count(end), count(end + most));
    Words {
        does: format!(
            "Counts calls in windows: {where_they_are}. Each window admits {once}; the count restarts with the \
             next window."
        ),
        promise: format!("Each window admits at most {once}."),
        worst: format!(
            "{both} within {length}: {end} at the end of a window and {once} at the start of the next."
        ),
        clock: WINDOW_CLOCK,
        memory: CELL.to_owned(),
        instead: "If twice the limit around a boundary is too much, use sliding-window or sliding-log.",
    }
}

fn sliding_log(rate: Rate, count_all: bool) -> Words {
    let (most, period) = (count(rate.count()), span(rate.period()));
    let (denied, clock) = if count_all {
        (
            "A denied call is logged too, so a caller that keeps retrying stays denied.",
            "If the clock steps back, a call is decided as if it came with the latest one.",
        )
    } else {
        ("A denied call leaves no trace.", WINDOW_CLOCK)
    };
    Words {
        does: format!(
            "Logs every call of the last {period}, and allows a call if the total does not exceed {most}. \
             {denied}"
        ),
        promise: format!("Any period of {period} admits at most {most}, wherever it begins."),
        worst: format!("{most} in any {period}."),
        clock,
        memory: format!(
            "16 bytes per call within {period}, up to {} bytes, and twice that while the log grows.",
            count(16 * rate.count())
        ),
        instead: "For a close estimate in 16 bytes use sliding-window.",
    }
}

fn sliding_window(rate: Rate) -> Words {
    let (most, period) = (count(rate.count()), span(rate.period()));
    Words {
        does: format!(
            "Counts calls in windows of {period} from the Unix epoch. The previous window's count fades evenly \
             during the current window; that share plus the current count may reach {most}."
        ),
        promise: format!(
            "The estimate never exceeds {most}. It is exact if the previous window's calls came evenly."
        ),
        worst: format!(
            "Up to {} in any {period}, if one window's calls all come at its end and the next window's as early as \
             possible.",
            count(2 * rate.count() - 1)
        ),
        clock: WINDOW_CLOCK,
        memory: if rate.count() > u32::MAX.into() { WIDE_CELL } else { CELL }.to_owned(),
        instead: "For an exact count in any period use sliding-log.",
    }
}

fn smooth(limit: &Limit, rate: Rate, warm_up: Option<WarmUp>, initial: Option<u64>) -> Words {
    let most = limit.at_once();
    let stored = match most {
        0 => "Less than one permit is stored".to_owned(),
        1 => "One permit is stored".to_owned(),
        most => format!("Up to {} permits are stored", count(most)),
    };
    let (what_they_are, starts, at_once) = match warm_up {
        None => (
            "which later calls use first, for free".to_owned(),
            "with nothing stored",
            format!(" Of calls with cost 1, {} at once.", count(most + 1)),
        ),
        Some(WarmUp { period, cold }) => {
            let what_they_are = format!(
                "so the limiter goes cold: the first permit then takes {cold} times as long, and the full rate is \
                 reached after {} of load",
                span(period)
            );
            (what_they_are, "cold", String::new())
        }
    };
    let starts = initial.map_or_else(|| starts.to_owned(), |stored| format!("with {} stored", count(stored)));
    Words {
        does: format!(
            "Guava's RateLimiter: {}. A call is allowed once all earlier cost is paid for; its own cost is paid \
             by the next call. {stored} while the key is idle, {what_they_are}. A key starts {starts} when the \
             limiter is created.",
            refill(rate, "permits are added", "permit is added")
        ),
        promise: match warm_up {
            None => format!(
                "After an allowed call the next is allowed once that cost, less the stored permits, is paid for, {}.",
                each(rate)
            ),
            Some(_) => format!(
                "After an allowed call the next is allowed once that cost is paid for, {}, and later while the limiter \
                 is cold.",
                each(rate)
            ),
        },
        worst: format!("One call of any cost, then none until it is paid for.{at_once}"),
        clock: "If the clock steps back, the time of the next call stays where it is, and waits grow by the step.",
        memory: CELL.to_owned(),
        instead: "To deny a cost that is too large use token-bucket; to queue calls without stored permits use pacer.",
    }
}

fn concurrency(at_once: u64, ttl: Option<Span>) -> Words {
    let all = count(at_once);
    let (expires, crashed, clock) = match ttl {
        Some(ttl) => (
            format!("a lease that is neither released nor renewed expires after {}", span(ttl)),
            format!(
                "A crashed holder keeps its permits for at most {}. A holder that is paused for longer without renewing may still act after others got its permits.",
                span(ttl)
            ),
            "If the clock steps back, leases live longer, by at most the step.",
        ),
        None => (
            "a lease that is never released is held forever".to_owned(),
            "A holder that never releases its lease keeps its permits forever; a server and a shared store require ttl=DURATION."
                .to_owned(),
            "Clock steps have no effect: nothing expires.",
        ),
    };
    Words {
        does: format!(
            "Grants leases for up to {} at once. The holder releases its lease when it is done; {expires}.",
            units(at_once, "unit")
        ),
        promise: format!(
            "At most {all} are held at any time, however often leases are granted and released."
        ),
        worst: format!("{all} at once, and as many again each time they are released. {crashed}"),
        clock,
        memory: "Nothing for a key without leases; otherwise in proportion to the leases held.".to_owned(),
        instead: "To limit a rate instead of concurrency, use any other algorithm.",
    }
}

fn units(number: u64, unit: &str) -> String {
    format!("{} {unit}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `30 are added every 1 min, one every 2 s`.
fn refill(rate: Rate, several: &str, one: &str) -> String {
    if rate.count() == 1 {
        return format!("1 {one} every {}", span(rate.period()));
    }
    format!("{} {several} every {}, {}", count(rate.count()), span(rate.period()), each(rate))
}

/// The time between two units: `2 s`, or `1/7 of 1 s` where that is not whole.
fn interval(rate: Rate) -> String {
    let (number, period) = (rate.count(), rate.period().as_micros());
    if period.is_multiple_of(number) {
        span(Span::from_micros(period / number))
    } else {
        format!("1/{} of {}", count(number), span(rate.period()))
    }
}

fn each(rate: Rate) -> String {
    format!("one every {}", interval(rate))
}

fn bucket_promise(rate: Rate, burst: u64) -> String {
    let (burst, rate_count) = (count(burst), count(rate.count()));
    format!("Any period admits at most {burst}, plus {rate_count} per {} of its length.", span(rate.period()))
}

/// What is saved up, and what comes in before a period is over; but at one instant no more than the
/// bucket holds.
fn bucket_worst(rate: Rate, burst: u64, saved: &str) -> String {
    let (number, micros) = (rate.count(), rate.period().as_micros());
    let (by_instant, meanwhile) = (burst.saturating_mul(micros), number - number.div_ceil(micros));
    let period = span(rate.period());
    if by_instant < burst + meanwhile {
        return format!("{} in any {period}: {} in each microsecond.", count(by_instant), count(burst));
    }
    let total = count(burst + meanwhile);
    format!(
        "{total} in any {period}: {} {saved}, and {} more before it ends.",
        count(burst),
        count(meanwhile)
    )
}
