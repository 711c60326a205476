//! What a limit does, promises and costs, in sentences with its own numbers.

use crate::human::{count, span};
use sluicegate::core::{Rate, Span};
use sluicegate::{Limit, Spec, WindowSpec};

/// The sentences about one limit.
pub(crate) struct Words {
    pub(crate) does: String,
    pub(crate) promise: String,
    pub(crate) worst: String,
    pub(crate) clock: String,
    pub(crate) memory: String,
    pub(crate) instead: String,
}

const CELL: &str = "16 bytes, however many calls.";
const BUCKET_CLOCK: &str = "A step back makes it stricter by the step until the clock has caught up.";
const WINDOW_CLOCK: &str = "A call before the latest allowed one is decided as if it came then.";

pub(crate) fn of(limit: &Limit) -> Words {
    match limit.spec() {
        Spec::TokenBucket { rate, burst, initial } => {
            let start = initial.map_or_else(
                || "A new key starts full.".to_owned(),
                |initial| {
                    let since = initial.start.map_or("the limiter was made", |_| "its start");
                    format!(
                        "A key that has never called held {} when {since} and has been filling since.",
                        count(initial.tokens.into())
                    )
                },
            );
            Words {
                does: format!(
                    "Holds up to {}; {} come back every {}, {}. A call takes as many tokens as it costs, or none and is denied. {start}",
                    units(*burst, "token"),
                    count(rate.count().into()),
                    span(rate.period()),
                    each(*rate)
                ),
                promise: bucket_promise(*rate, *burst),
                worst: bucket_worst(*rate, *burst, "saved up"),
                clock: BUCKET_CLOCK.to_owned(),
                memory: CELL.to_owned(),
                instead:
                    "For never more than so many in any period use sliding-log; for an even flow use pacer."
                        .to_owned(),
            }
        }
        Spec::LeakyBucket { rate, capacity } => Words {
            does: format!(
                "A funnel that holds {}; {} leak out every {}, {}. A call pours in its cost, all of it or none. It decides exactly like token-bucket with that burst.",
                units(*capacity, "unit"),
                count(rate.count().into()),
                span(rate.period()),
                each(*rate)
            ),
            promise: bucket_promise(*rate, *capacity),
            worst: bucket_worst(*rate, *capacity, "in the funnel"),
            clock: BUCKET_CLOCK.to_owned(),
            memory: CELL.to_owned(),
            instead: "For callers that queue in the funnel instead of being denied use pacer.".to_owned(),
        },
        Spec::MinInterval { interval } => Words {
            does: format!(
                "After an allowed call the next is allowed {} later, not sooner. It is token-bucket with a single token.",
                span(*interval)
            ),
            promise: format!(
                "Two allowed calls are at least {} apart. No call may cost more than 1.",
                span(*interval)
            ),
            worst: format!("1 in any {}.", span(*interval)),
            clock: BUCKET_CLOCK.to_owned(),
            memory: CELL.to_owned(),
            instead: "For a few at once and then a pause use token-bucket.".to_owned(),
        },
        Spec::Pacer { rate, queue } => Words {
            does: format!(
                "Allowed calls leave one after another, {}. Each is told how long to wait for its slot; {} may wait, the next is denied.",
                each(*rate),
                count((*queue).into())
            ),
            promise: format!(
                "Calls that wait as told leave {} apart, each unit of cost taking a slot.",
                interval(*rate)
            ),
            worst: format!(
                "{} allowed at once, but they leave one after another.",
                count(u64::from(*queue) + 1)
            ),
            clock: "A step back keeps the slots where they are: waits grow by the step.".to_owned(),
            memory: CELL.to_owned(),
            instead: "For callers that should act at once or be denied use token-bucket.".to_owned(),
        },
        Spec::FixedWindow { count: most, windows } => fixed_window(*most, windows),
        Spec::SlidingLog { rate, count_all } => {
            let all = if *count_all {
                " A denied call is entered too, so that a caller who keeps trying stays denied."
            } else {
                " A denied call leaves no trace."
            };
            Words {
                does: format!(
                    "Remembers every call of the last {} and allows one if it and they come to no more than {}.{all}",
                    span(rate.period()),
                    count(rate.count().into())
                ),
                promise: format!(
                    "Any stretch of {} admits at most {}, wherever it begins.",
                    span(rate.period()),
                    count(rate.count().into())
                ),
                worst: format!("{} in any {}.", count(rate.count().into()), span(rate.period())),
                clock: WINDOW_CLOCK.to_owned(),
                memory: format!(
                    "16 bytes a call within {}, so up to {} bytes and a little.",
                    span(rate.period()),
                    count(16 * u64::from(rate.count()))
                ),
                instead: "For nearly the same in 16 bytes use sliding-window.".to_owned(),
            }
        }
        Spec::SlidingWindow { rate } => Words {
            does: format!(
                "Counts each {} from the epoch. What the last window admitted fades evenly while this one goes on; that share and this window's count may come to {}.",
                span(rate.period()),
                count(rate.count().into())
            ),
            promise: format!(
                "The estimate never exceeds {}; for calls that come evenly it is the true number.",
                count(rate.count().into())
            ),
            worst: format!(
                "just under {} in any {}, if one window's calls all come at its end and the next window's as soon as they may.",
                count(2 * u64::from(rate.count())),
                span(rate.period())
            ),
            clock: WINDOW_CLOCK.to_owned(),
            memory: CELL.to_owned(),
            instead: "For an exact count in any period use sliding-log.".to_owned(),
        },
        other => unreachable!("no words for {other:?}"),
    }
}

fn fixed_window(most: u32, windows: &WindowSpec) -> Words {
    let most = u64::from(most);
    let (where_they_are, length) = match windows {
        WindowSpec::Aligned { start, period } => {
            let from = if start.as_micros() == 0 {
                "the Unix epoch"
            } else {
                "the given start; before it all calls with a cost are denied"
            };
            (format!("one {} window after another from {from}", span(*period)), span(*period))
        }
        WindowSpec::First { period } => {
            (format!("a window of {} that the first allowed call opens", span(*period)), span(*period))
        }
        WindowSpec::Calendar { unit, zone } => {
            (format!("each calendar {unit} in {zone}, as long as it really is there"), format!("{unit}"))
        }
        other => unreachable!("no words for {other:?}"),
    };
    Words {
        does: format!(
            "Counts calls in windows: {where_they_are}. Each window admits {}, and the count starts again with the next.",
            count(most)
        ),
        promise: format!("Each window admits at most {}.", count(most)),
        worst: format!(
            "{} in a stretch as long as one {length}: {} at the end of a window and {} at the start of the next.",
            count(2 * most),
            count(most),
            count(most)
        ),
        clock: WINDOW_CLOCK.to_owned(),
        memory: CELL.to_owned(),
        instead: "Where twice the limit around a boundary hurts use sliding-window or sliding-log."
            .to_owned(),
    }
}

fn units(number: u32, unit: &str) -> String {
    format!("{} {unit}{}", count(number.into()), if number == 1 { "" } else { "s" })
}

fn interval(rate: Rate) -> String {
    let (count, period) = (u64::from(rate.count()), rate.period().as_micros());
    if period.is_multiple_of(count) {
        span(Span::from_micros(period / count))
    } else {
        format!("{}/{} of {}", 1, self::count(count), span(rate.period()))
    }
}

/// `one each 2 s`.
fn each(rate: Rate) -> String {
    let (count, period) = (u64::from(rate.count()), rate.period().as_micros());
    if period.is_multiple_of(count) {
        format!("one each {}", interval(rate))
    } else {
        format!("evenly, each after {}", interval(rate))
    }
}

fn bucket_promise(rate: Rate, burst: u32) -> String {
    format!(
        "A stretch of any length admits at most {} and {} for each {} of it.",
        count(burst.into()),
        count(rate.count().into()),
        span(rate.period())
    )
}

fn bucket_worst(rate: Rate, burst: u32, saved: &str) -> String {
    let total = u64::from(burst) + u64::from(rate.count());
    format!(
        "{} in any {}: {} {saved}, and {} that come back meanwhile.",
        count(total),
        span(rate.period()),
        count(burst.into()),
        count(rate.count().into())
    )
}
