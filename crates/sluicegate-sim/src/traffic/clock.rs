//! Times in words.

use crate::human;
use crate::values::MONTHS;
use sluicegate_core::Time;
use sluicegate_core::time::DAY;

/// How the times of traffic are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// From its beginning: `1 min 30 s`.
    Since(Time),
    /// By the calendar: `2026-11-11 12:00:00`.
    Utc,
}

impl Clock {
    /// A moment in full: `2026-11-11 12:00:00` in UTC; or to the second, `1 min 30 s`.
    pub fn tell(self, at: Time) -> String {
        match self {
            Clock::Since(start) => human::moment(at.since(start)),
            Clock::Utc => format!("{} {}", date(at), hours(at)),
        }
    }

    /// A moment without its year: `Nov 11 12:00:00`; or to the second, `1 min 30 s`.
    pub fn tell_briefly(self, at: Time) -> String {
        match self {
            Clock::Since(start) => human::moment(at.since(start)),
            Clock::Utc => format!("{} {}", day(at), hours(at)),
        }
    }

    /// A moment on a long axis: `2026-11-11`; or exactly, `400 d`.
    pub fn tell_date(self, at: Time) -> String {
        match self {
            Clock::Since(_) => self.tell_on_axis(at),
            Clock::Utc => date(at),
        }
    }

    /// A moment on an axis: `Nov 11` at midnight, else `12:00:00`; or exactly, `1 min 30 s`.
    pub fn tell_on_axis(self, at: Time) -> String {
        match self {
            Clock::Since(start) => human::span(at.since(start)),
            Clock::Utc if at.as_micros().is_multiple_of(DAY) => day(at),
            Clock::Utc => {
                let hours = hours(at);
                // On the full minute the seconds say nothing.
                hours.strip_suffix(":00").filter(|minutes| minutes.len() == 5).unwrap_or(&hours).to_owned()
            }
        }
    }
}

/// `2026-11-11`
fn date(at: Time) -> String {
    at.to_string().get(..10).unwrap_or_default().to_owned()
}

/// `Nov 11`
fn day(at: Time) -> String {
    let date = date(at);
    let part =
        |from, to| date.get(from..to).and_then(|digits| digits.parse::<usize>().ok()).unwrap_or_default();
    let month = MONTHS.get(part(5, 7).wrapping_sub(1)).unwrap_or(&"");
    format!("{month} {}", part(8, 10))
}

/// `12:00:00`, with the parts of a second that there are: `12:00:00.5`
fn hours(at: Time) -> String {
    let text = at.to_string();
    let hours = text.get(11..).unwrap_or_default().trim_end_matches('Z');
    if hours.contains('.') { hours.trim_end_matches('0').to_owned() } else { hours.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_reported_by_the_calendar_or_from_the_beginning() {
        let noon: u64 = 1_794_398_400_000_000;
        let at = |micros| Time::saturating_from_micros(noon + micros);
        let since = Clock::Since(at(0));
        let shown = |clock: Clock, micros| {
            [clock.tell(at(micros)), clock.tell_briefly(at(micros)), clock.tell_on_axis(at(micros))]
                .map(|text| text.replace(human::TIE, " "))
        };
        assert_eq!(shown(Clock::Utc, 0), ["2026-11-11 12:00:00", "Nov 11 12:00:00", "12:00"]);
        assert_eq!(
            shown(Clock::Utc, 5_500_000),
            ["2026-11-11 12:00:05.5", "Nov 11 12:00:05.5", "12:00:05.5"]
        );
        assert_eq!(shown(Clock::Utc, 43_200_000_000), ["2026-11-12 00:00:00", "Nov 12 00:00:00", "Nov 12"]);
        assert_eq!(shown(since, 90_000_000), ["1 min 30 s"; 3]);
        assert_eq!(shown(since, 90_000_001), ["1 min 30 s", "1 min 30 s", "90.000001 s"]);
    }
}
