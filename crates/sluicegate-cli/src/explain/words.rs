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

const CELL: &str = "16 bytes of state, however many calls.";
const BUCKET_CLOCK: &str =
    "A step back makes it stricter, by the step at most, until the clock has caught up.";
const WINDOW_CLOCK: &str = "A call before the latest allowed one is decided as if it came then.";

pub(crate) fn of(limit: &Limit) -> Words {
    match limit.spec() {
        Spec::TokenBucket { rate, burst, initial } => token_bucket(*rate, *burst, *initial),
        Spec::LeakyBucket { rate, capacity } => leaky_bucket(*rate, *capacity),
        Spec::MinInterval { interval } => min_interval(*interval),
        Spec::Pacer { rate, queue } => pacer(*rate, *queue),
        Spec::FixedWindow { count, windows } => fixed_window(u64::from(*count), windows),
        Spec::SlidingLog { rate, count_all } => sliding_log(*rate, *count_all),
        Spec::SlidingWindow { rate } => sliding_window(*rate),
        Spec::Smooth { rate, warm_up, initial, .. } => smooth(limit, *rate, *warm_up, *initial),
        Spec::Concurrency { count, ttl } => concurrency(*count, *ttl),
        other => unreachable!("{other:?} has no words; a test explains every algorithm"),
    }
}

fn token_bucket(rate: Rate, burst: u32, initial: Option<Initial>) -> Words {
    let start = match initial {
        None => "A new key starts full.".to_owned(),
        Some(Initial { tokens, start, .. }) => {
            let since = if start.is_some() { "at its start" } else { "when the limiter was made" };
            format!(
                "A key that has never called held {} {since} and has been filling since.",
                count(tokens.into())
            )
        }
    };
    Words {
        does: format!(
            "Holds up to {}; {}. A call takes as many tokens as it costs, or none and is denied. {start}",
            units(burst, "token"),
            refill(rate, "come back", "comes back")
        ),
        promise: bucket_promise(rate, burst),
        worst: bucket_worst(rate, burst, "saved up"),
        clock: BUCKET_CLOCK,
        memory: CELL.to_owned(),
        instead: "For never more than so many in any period use sliding-log; for an even flow use pacer.",
    }
}

fn leaky_bucket(rate: Rate, capacity: u32) -> Words {
    Words {
        does: format!(
            "A funnel that holds {}; {}. A call pours in its cost, all of it or none. It decides exactly like \
             token-bucket with that burst.",
            units(capacity, "unit"),
            refill(rate, "leak out", "leaks out")
        ),
        promise: bucket_promise(rate, capacity),
        worst: bucket_worst(rate, capacity, "of free room"),
        clock: BUCKET_CLOCK,
        memory: CELL.to_owned(),
        instead: "For callers that queue in the funnel instead of being denied use pacer.",
    }
}

fn min_interval(interval: Span) -> Words {
    let interval = span(interval);
    Words {
        does: format!(
            "After an allowed call the next is allowed {interval} later, not sooner. It is token-bucket with a \
             single token, so no call may cost more than 1."
        ),
        promise: format!("Two allowed calls are at least {interval} apart."),
        worst: format!("1 in any {interval}."),
        clock: BUCKET_CLOCK,
        memory: CELL.to_owned(),
        instead: "For a few at once and then a pause use token-bucket.",
    }
}

fn pacer(rate: Rate, queue: u32) -> Words {
    Words {
        does: format!(
            "Allowed calls leave one after another, {}. Each is told how long to wait for its slot; {} may wait, \
             the next is denied.",
            each(rate),
            count(queue.into())
        ),
        promise: format!(
            "Calls that wait as told leave {} apart, each unit of cost taking a slot.",
            interval(rate)
        ),
        worst: format!("{} allowed at once, but they leave one after another.", count(u64::from(queue) + 1)),
        clock: "A step back keeps the slots where they are: waits grow by the step.",
        memory: CELL.to_owned(),
        instead: "For callers that should act at once or be denied use token-bucket.",
    }
}

fn fixed_window(most: u64, windows: &WindowSpec) -> Words {
    let (where_they_are, length) = match windows {
        WindowSpec::Aligned { start, period } if *start == Time::EPOCH => {
            (format!("one of {} after another from the Unix epoch on", span(*period)), span(*period))
        }
        WindowSpec::Aligned { period, .. } => (
            format!(
                "one of {} after another from the given start on, before which all is denied",
                span(*period)
            ),
            span(*period),
        ),
        WindowSpec::First { period } => {
            (format!("the first allowed call opens one of {}", span(*period)), span(*period))
        }
        WindowSpec::Calendar { unit, zone } => {
            (format!("each calendar {unit} in {zone}, as long as it really is there"), format!("one {unit}"))
        }
        other => unreachable!("{other:?} has no words; a test explains every kind"),
    };
    // A window that a call opens has that call at its start, a whole period before the next window.
    let end = if matches!(windows, WindowSpec::First { .. }) { most - 1 } else { most };
    let (once, end, both) = (count(most), count(end), count(end + most));
    Words {
        does: format!(
            "Counts calls in windows: {where_they_are}. Each window admits {once}, and the count starts again with \
             the next."
        ),
        promise: format!("Each window admits at most {once}."),
        worst: format!(
            "{both} within {length}: {end} at the end of a window and {once} at the start of the next."
        ),
        clock: WINDOW_CLOCK,
        memory: CELL.to_owned(),
        instead: "Where twice the limit around a boundary hurts use sliding-window or sliding-log.",
    }
}

fn sliding_log(rate: Rate, count_all: bool) -> Words {
    let (most, period) = (count(rate.count().into()), span(rate.period()));
    let (denied, clock) = if count_all {
        (
            "A denied call is entered too, so that a caller who keeps trying stays denied.",
            "A call before the latest one is decided as if it came then.",
        )
    } else {
        ("A denied call leaves no trace.", WINDOW_CLOCK)
    };
    Words {
        does: format!(
            "Remembers every call of the last {period} and allows one if it and they come to no more than {most}. \
             {denied}"
        ),
        promise: format!("Any stretch of {period} admits at most {most}, wherever it begins."),
        worst: format!("{most} in any {period}."),
        clock,
        memory: format!(
            "16 bytes for each call within {period}, up to {} bytes, and as much again while it grows.",
            count(16 * u64::from(rate.count()))
        ),
        instead: "For nearly the same in 16 bytes use sliding-window.",
    }
}

fn sliding_window(rate: Rate) -> Words {
    let (most, period) = (count(rate.count().into()), span(rate.period()));
    Words {
        does: format!(
            "Counts calls in windows of {period} from the Unix epoch on. What the last window admitted fades evenly \
             while this one goes on; that share and this window's count may come to {most}."
        ),
        promise: format!(
            "The estimate never exceeds {most}. It is the true number if the last window's calls came evenly."
        ),
        worst: format!(
            "up to {} in any {period}, if one window's calls all come at its end and the next window's as soon as they \
             may.",
            count(2 * u64::from(rate.count()) - 1)
        ),
        clock: WINDOW_CLOCK,
        memory: CELL.to_owned(),
        instead: "For an exact count in any period use sliding-log.",
    }
}

fn smooth(limit: &Limit, rate: Rate, warm_up: Option<WarmUp>, initial: Option<u32>) -> Words {
    let most = limit.at_once();
    let stored = match most {
        0 => "Less than one permit is stored".to_owned(),
        1 => "One permit is stored".to_owned(),
        most => format!("Up to {} permits are stored", count(most.into())),
    };
    let (what_they_are, starts, at_once) = match warm_up {
        None => (
            "which later calls take first, for free".to_owned(),
            "with nothing stored",
            format!(" Of calls that cost 1, {} at once.", count(u64::from(most) + 1)),
        ),
        Some(WarmUp { period, cold }) => {
            let what_they_are = format!(
                "which means that it goes cold: the first then takes {cold} times as long, and the full rate is there \
                 after {} of load",
                span(period)
            );
            (what_they_are, "cold", String::new())
        }
    };
    let starts =
        initial.map_or_else(|| starts.to_owned(), |stored| format!("with {} stored", count(stored.into())));
    Words {
        does: format!(
            "Guava's RateLimiter: {}. A call goes when what was taken before it is paid for, whatever its own cost, which \
             the next one waits for. {stored} while nobody calls, {what_they_are}. A key starts {starts} when the \
             limiter is made.",
            refill(rate, "permits come in", "permit comes in")
        ),
        promise: match warm_up {
            None => format!(
                "After an allowed call the next is allowed when that one's cost, less what was stored, has come in, {}.",
                each(rate)
            ),
            Some(_) => format!(
                "After an allowed call the next is allowed when that one's cost has come in, {}, and later while it is \
                 cold.",
                each(rate)
            ),
        },
        worst: format!("One call of any cost at once, and then none until it is paid for.{at_once}"),
        clock: "A step back keeps the moment of the next call where it is: waits grow by the step.",
        memory: CELL.to_owned(),
        instead: "To deny what is too large use token-bucket; for callers in line, with nothing stored, use pacer.",
    }
}

fn concurrency(at_once: u32, ttl: Option<Span>) -> Words {
    let all = count(at_once.into());
    let (lapses, crashed, clock) = match ttl {
        Some(ttl) => (
            format!("one that is neither returned nor renewed for {} lapses", span(ttl)),
            format!(
                "Whoever crashes holds its places for {} at most. Whoever is stopped for longer without renewing may still act when others have its places.",
                span(ttl)
            ),
            "A step back lets leases live longer, by the step at most.",
        ),
        None => (
            "one that is never returned is held for ever".to_owned(),
            "Whoever forgets to return its lease holds its places for ever; a server and a shared store want ttl=DURATION."
                .to_owned(),
            "It does not matter: nothing lapses.",
        ),
    };
    Words {
        does: format!(
            "Gives out leases for up to {} at once. Who has acted returns its lease; {lapses}.",
            units(at_once, "unit")
        ),
        promise: format!("At no moment are more than {all} out, however often they are taken and returned."),
        worst: format!("{all} at once, and as many again each time they are returned. {crashed}"),
        clock,
        memory: "Nothing for a key without leases; else as much as there are leases out.".to_owned(),
        instead: "For how often, not how many at once, use any of the others.",
    }
}

fn units(number: u32, unit: &str) -> String {
    format!("{} {unit}{}", count(number.into()), if number == 1 { "" } else { "s" })
}

/// `30 come back every 1 min, one each 2 s`.
fn refill(rate: Rate, several: &str, one: &str) -> String {
    if rate.count() == 1 {
        return format!("1 {one} every {}", span(rate.period()));
    }
    format!("{} {several} every {}, {}", count(rate.count().into()), span(rate.period()), each(rate))
}

/// The time between two units: `2 s`, or `1/7 of 1 s` where that is not whole.
fn interval(rate: Rate) -> String {
    let (number, period) = (u64::from(rate.count()), rate.period().as_micros());
    if period.is_multiple_of(number) {
        span(Span::from_micros(period / number))
    } else {
        format!("1/{} of {}", count(number), span(rate.period()))
    }
}

fn each(rate: Rate) -> String {
    format!("one each {}", interval(rate))
}

fn bucket_promise(rate: Rate, burst: u32) -> String {
    let (burst, rate_count) = (count(burst.into()), count(rate.count().into()));
    format!(
        "A stretch of any length admits at most {burst} and {rate_count} for each {} of it.",
        span(rate.period())
    )
}

/// What is saved up, and what comes in before a period is over; but at one instant no more than the bucket holds.
fn bucket_worst(rate: Rate, burst: u32, saved: &str) -> String {
    let (burst, number, micros) = (u64::from(burst), u64::from(rate.count()), rate.period().as_micros());
    let (by_instant, meanwhile) = (burst.saturating_mul(micros), number - number.div_ceil(micros));
    let period = span(rate.period());
    if by_instant < burst + meanwhile {
        return format!("{} in any {period}: {} in each microsecond.", count(by_instant), count(burst));
    }
    let total = count(burst + meanwhile);
    format!(
        "{total} in any {period}: {} {saved}, and {} more before it is over.",
        count(burst),
        count(meanwhile)
    )
}
