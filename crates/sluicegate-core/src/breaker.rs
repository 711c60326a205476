//! Circuit breaker: stop calling what keeps failing, and try it again now and then.
//!
//! In plain words: count how calls end. When too many of the recent ones failed, let none through for a while; then let
//! a few through as probes. If they do well all is as before, otherwise the while begins again.
//!
//! ```text
//!                 too many failed or slow                       `open` has passed and somebody asks
//!     ┌────────┐ ─────────────────────────▶ ┌──────┐ ────────────────────────────────▶ ┌──────────┐
//!     │ Closed │                            │ Open │                                   │ HalfOpen │
//!     └────────┘                            └──────┘ ◀──────────────────────────────── └──────────┘
//!          ▲                                           too many probes failed or slow       │
//!          └────────────────────────────────────────────────────────────────────────────────┘
//!                                             enough probes did well
//!
//!     forced by hand, from any state:  ForcedOpen   Disabled   MetricsOnly
//! ```
//!
//! ```text
//! Settings   window: the last N calls, or a length of time cut into 20 slices; failure rate and slow rate in percent;
//!            min, open, probes, probe-ttl, slow
//! State      the phase, its generation, the counts of the window, the probes that are out
//! Formula    closed: after each outcome, open if total >= min and failed * 100 >= rate * total (or the same of slow calls)
//!            open: at now >= opened + open the next to ask is a probe, and the breaker half-open
//!            half-open: exactly `probes` are let through. With all of them ended, open if failed * 100 >= rate * probes (or the
//!            same of slow ones), close otherwise. It is decided sooner only when what is still out cannot change it.
//! Outcomes   success and failure count. An ignored call counts nothing, and a probe's place is free again. A dropped call counts
//!            nothing; a dropped probe is a failed one. A probe that has not ended `probe-ttl` after it was let through has failed, at
//!            that very moment, whoever finds out and when.
//! Late       a ticket knows the generation of the phase it is from. What ends in a later one changes nothing.
//! Promise    never more than `probes` calls pass in one half-open phase beside those that were ignored; no state lasts for ever unless
//!            it is forced or nobody asks: open ends after `open`, and half-open `probe-ttl` after its probes were let through. Only probes
//!            that are all ignored say nothing: then it stays half-open, and `probes` calls pass at a time.
//! Window     time: exactly the outcomes of the slice in progress and the 19 before it, slices counted from the epoch. Calls: exactly
//!            the last N outcomes.
//! Rounding   none: percentages are compared by multiplying. A slice is the window's twentieth, rounded up to a microsecond.
//! Clock      a step forward is ordinary time. A step back: what began in the future began now, so an open breaker is open for
//!            at most `open` longer and a probe lives at most `probe-ttl` longer; the slices keep their order and the latest becomes the
//!            one in progress. By up to one slice the latest just goes on: the clocks of two threads may differ a little.
//! Cost       a few additions an outcome. 2 bits a call, or 20 slices of 24 bytes; 16 bytes a probe that is out.
//!
//! Example    50%/10s min=20: 19 failures leave it closed. With 10 successes and 10 failures it opens.
//! Reference  Hystrix 1.5 (volume, rate, sleep window, one probe), resilience4j (count windows, slow calls, several probes, forced states).
//! ```
//!
//! ```
//! use sluicegate_core::breaker::{Answer, Machine, Outcome, Rules, State, Window};
//! use sluicegate_core::{Span, Time};
//!
//! let rules = Rules::new(50, Window::Calls(4))?;
//! let (mut breaker, now) = (Machine::new(rules), Time::EPOCH);
//! for outcome in [Outcome::Success, Outcome::Failure, Outcome::Success, Outcome::Failure] {
//!     let (Answer::Allowed(ticket), _) = breaker.ask(now) else { panic!("it is closed") };
//!     breaker.finish(ticket, outcome, Span::ZERO, || now);
//! }
//! assert_eq!(breaker.state(), State::Open);
//! # Ok::<(), sluicegate_core::bounds::OutOfBounds>(())
//! ```

mod machine;
mod probes;
mod rolling;
mod rules;

pub use machine::{Answer, Change, Changes, Forced, Machine, Outcome, State, Ticket, Totals};
pub use rolling::{Counts, SLICES};
pub use rules::{
    DURATION_MAX, MIN_DEFAULT, OPEN_DEFAULT, PROBES_DEFAULT, PROBES_MAX, Rules, SLOW_RATE_DEFAULT, Slow,
    WINDOW_CALLS_MAX, WINDOW_TIME_MIN, Window,
};
