//! What is called: workers that take their time, a queue before them, and bad times.

use super::LineError;
use rand::{Rng, RngExt as _};
use sluicegate::internal::grammar::{self, Options, SyntaxError, number, quoted, span};
use sluicegate_core::Span;
use sluicegate_core::bounds::PERIOD_MAX;
use sluicegate_core::time::SECOND;
use std::fmt;
use std::str::FromStr;

/// The most workers.
pub const WORKERS_MAX: u32 = 100_000;
/// The longest that a call takes on average.
const TAKES_MAX: Span = Span::from_micros(3_600 * SECOND);
/// The most times as slow.
pub const SLOWER_MAX: u32 = 1_000;
/// The most bad times of a kind.
pub const EPISODES_MAX: usize = 20;
/// The default share of a call's time that is random, in percent.
const RANDOM_DEFAULT: u32 = 50;

/// A dependency; made by `"workers=10 takes=50ms slow=20s..40s:x10 fail=50s..60s:100%".parse()`.
///
/// A call takes `takes` on average. Half of that (`random=50%`) is at random, exponentially; the
/// rest is always the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// How many calls it works on at once.
    pub workers: u32,
    /// How long a call takes on average.
    pub takes: Span,
    /// Which part of that is at random, in per cent.
    pub random: u32,
    /// How many calls may wait for a worker before further calls are rejected; unlimited by
    /// default.
    pub backlog: Option<u32>,
    /// The bad times.
    pub episodes: Vec<Episode>,
}

/// A bad time, counted from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Episode {
    /// From when on.
    pub from: Span,
    /// Up to when.
    pub to: Span,
    /// What goes wrong with calls that are begun meanwhile.
    pub trouble: Trouble,
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Calls take this many times longer.
    Slow(u32),
    /// The percentage of calls that fail.
    Fail(u32),
}

impl Dependency {
    fn troubles(&self, at: Span) -> impl Iterator<Item = Trouble> + '_ {
        self.episodes
            .iter()
            .filter(move |episode| (episode.from..episode.to).contains(&at))
            .map(|episode| episode.trouble)
    }

    /// How long a call takes that is begun then, and whether it ends well.
    pub(super) fn serve(&self, at: Span, random: &mut impl Rng) -> (Span, bool) {
        let mut slower = 1;
        let mut fails = 0;
        for trouble in self.troubles(at) {
            match trouble {
                Trouble::Slow(times) => slower = slower.max(u64::from(times)),
                Trouble::Fail(percent) => fails = fails.max(percent),
            }
        }
        let chance: f64 = random.random();
        let is_good = random.random_range(0..100) >= fails;
        // The logarithm of libm, not of the system, so that every machine draws the same.
        let drawn = -libm::log1p(-chance) * f64::from(self.random) / 100.0;
        let part = f64::from(100 - self.random) / 100.0 + drawn;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most an hour in microseconds, times a few dozen, and not negative"
        )]
        let micros = (self.takes.as_micros() as f64 * part) as u64;
        (Span::from_micros(micros.saturating_mul(slower).max(1)), is_good)
    }
}

impl FromStr for Dependency {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Dependency, LineError> {
        LineError::check_length("dependency", text, "workers=10 takes=50ms slow=20s..40s:x10")?;
        dependency(text).map_err(|mistake| LineError::new("dependency", text, mistake))
    }
}

fn dependency(text: &str) -> Result<Dependency, SyntaxError> {
    let takes =
        "a dependency takes workers=N takes=DURATION random=P% backlog=N slow=FROM..TO:xN fail=FROM..TO:P%";
    let mut options = Options::read(takes, text.split_ascii_whitespace())?;
    let Some(workers) = options.take("workers") else {
        return Err(SyntaxError::new(
            "workers= is missing",
            "say how many calls it works on at once: workers=10",
        ));
    };
    let workers = within("workers", number("workers", workers)?, 1, WORKERS_MAX)?;
    let Some(takes) = options.take("takes") else {
        return Err(SyntaxError::new("takes= is missing", "say how long a call takes: takes=50ms"));
    };
    let takes = span(takes)?;
    if takes == Span::ZERO || takes > TAKES_MAX {
        return Err(SyntaxError::new(format!("takes={takes} is not from 1us to 1h"), "such as takes=50ms"));
    }
    let random = options.take("random").map(|word| percent("random", word, 0)).transpose()?;
    let backlog = options.take("backlog").map(|word| number("backlog", word)).transpose()?;
    let backlog = backlog.map(|backlog| within("backlog", backlog, 0, 1_000_000_000)).transpose()?;
    let slow = options.take("slow").map_or_else(|| Ok(Vec::new()), |word| episodes("slow", word, times))?;
    let percent = |word: &str| percent("fail", word, 1).map(Trouble::Fail);
    let fail = options.take("fail").map_or_else(|| Ok(Vec::new()), |word| episodes("fail", word, percent))?;
    options.reject_unknown()?;
    let random = random.unwrap_or(RANDOM_DEFAULT);
    Ok(Dependency { workers, takes, random, backlog, episodes: [slow, fail].concat() })
}

/// `20s..40s:x10,60s..70s:x3`
fn episodes(
    what: &str,
    word: &str,
    trouble: impl Fn(&str) -> Result<Trouble, SyntaxError>,
) -> Result<Vec<Episode>, SyntaxError> {
    let example = if what == "slow" { "slow=20s..40s:x10" } else { "fail=20s..40s:100%" };
    let pieces: Vec<&str> = word.split(',').collect();
    if pieces.len() > EPISODES_MAX {
        let problem = format!("{} times of {what}= are above the maximum, {EPISODES_MAX}", pieces.len());
        return Err(SyntaxError::new(problem, "leave some out"));
    }
    let one = |piece: &str| {
        let parts = piece.split_once(':').and_then(|(when, how)| Some((when.split_once("..")?, how)));
        let Some(((from, to), how)) = parts else {
            let problem = format!("{what}={} does not say from when to when and how", quoted(piece));
            return Err(SyntaxError::new(problem, format!("write {example}")));
        };
        // The start has no unit.
        let from = if from == "0" { Span::ZERO } else { span(from)? };
        let to = span(to)?;
        if from >= to || to > PERIOD_MAX {
            let problem = format!("{what}={} does not end after it begins", quoted(piece));
            return Err(SyntaxError::new(problem, format!("write {example}")));
        }
        Ok(Episode { from, to, trouble: trouble(how)? })
    };
    pieces.into_iter().map(one).collect()
}

fn times(word: &str) -> Result<Trouble, SyntaxError> {
    let times = word.strip_prefix('x').unwrap_or(word);
    within("slow x", number("slow", times)?, 2, SLOWER_MAX).map(Trouble::Slow)
}

fn percent(what: &str, word: &str, least: u32) -> Result<u32, SyntaxError> {
    within(what, grammar::percent(what, word)?, least, 100)
}

fn within(what: &str, value: u64, least: u32, most: u32) -> Result<u32, SyntaxError> {
    u32::try_from(value).ok().filter(|value| (least..=most).contains(value)).ok_or_else(|| {
        SyntaxError::new(
            format!("{what} {value} is not from {least} to {most}"),
            format!("use {least} to {most}"),
        )
    })
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workers={} takes={}", self.workers, self.takes)?;
        if self.random != RANDOM_DEFAULT {
            write!(f, " random={}%", self.random)?;
        }
        if let Some(backlog) = self.backlog {
            write!(f, " backlog={backlog}")?;
        }
        for kind in ["slow", "fail"] {
            let of_kind: Vec<String> = self.episodes.iter().filter_map(|one| one.said(kind)).collect();
            if !of_kind.is_empty() {
                write!(f, " {kind}={}", of_kind.join(","))?;
            }
        }
        Ok(())
    }
}

impl Episode {
    /// `20s..40s:x10`, if it is of that kind.
    fn said(&self, kind: &str) -> Option<String> {
        let Episode { from, to, trouble } = self;
        match trouble {
            Trouble::Slow(times) if kind == "slow" => Some(format!("{from}..{to}:x{times}")),
            Trouble::Fail(percent) if kind == "fail" => Some(format!("{from}..{to}:{percent}%")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn seconds(seconds: u64) -> Span {
        Span::from_micros(seconds * SECOND)
    }

    #[test]
    fn a_line_is_printed_as_it_is_read() {
        for line in [
            "workers=10 takes=50ms",
            "workers=10 takes=50ms random=0% backlog=100 slow=20s..40s:x10,1min..70s:x3 fail=50s..1min:100%",
        ] {
            assert_eq!(line.parse::<Dependency>().unwrap().to_string(), line);
        }
        let default = "workers=1 takes=1s random=50% slow=0s..1s:x2".parse::<Dependency>().unwrap();
        assert_eq!(default.to_string(), "workers=1 takes=1s slow=0s..1s:x2");
    }

    #[test]
    fn a_mistake_says_what_to_write() {
        for (line, said) in [
            ("takes=50ms", "workers= is missing; say how many calls it works on at once: workers=10"),
            ("workers=10", "takes= is missing; say how long a call takes: takes=50ms"),
            ("workers=0 takes=50ms", "workers 0 is not from 1 to 100000; use 1 to 100000"),
            ("workers=1 takes=2h", "takes=2h is not from 1us to 1h; such as takes=50ms"),
            (
                "workers=1 takes=1s slow=5s:x2",
                r#"slow="5s:x2" does not say from when to when and how; write slow=20s..40s:x10"#,
            ),
            (
                "workers=1 takes=1s slow=9s..5s:x2",
                r#"slow="9s..5s:x2" does not end after it begins; write slow=20s..40s:x10"#,
            ),
            ("workers=1 takes=1s slow=1s..5s:x1", "slow x 1 is not from 2 to 1000; use 2 to 1000"),
            ("workers=1 takes=1s fail=1s..5s:1", r#"fail "1" has no %; write 1%"#),
        ] {
            let error = line.parse::<Dependency>().unwrap_err().to_string();
            assert_eq!(error, format!("dependency \"{line}\": {said}"));
        }
        let many = vec!["1s..2s:x2"; EPISODES_MAX + 1].join(",");
        let error = format!("workers=1 takes=1s slow={many}").parse::<Dependency>().unwrap_err().to_string();
        assert!(error.ends_with("21 times of slow= are above the maximum, 20; leave some out"), "{error}");
    }

    #[test]
    fn calls_take_as_long_as_is_said_on_average() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let line = "workers=1 takes=50ms slow=10s..20s:x10 fail=30s..40s:25%";
        let dependency: Dependency = line.parse().unwrap();
        let mut mean = |at: u64| {
            let served: Vec<(Span, bool)> =
                (0..20_000).map(|_| dependency.serve(seconds(at), &mut random)).collect();
            let all: u64 = served.iter().map(|(took, _)| took.as_micros()).sum();
            let least = served.iter().map(|(took, _)| took.as_micros()).min().unwrap();
            (all / 20_000, least, served.iter().filter(|(_, is_good)| !is_good).count())
        };
        let (usual, least, failed) = mean(0);
        assert!((49_000..51_000).contains(&usual) && least >= 25_000 && failed == 0, "{usual} {least}");
        assert!((490_000..510_000).contains(&mean(10).0));
        assert!((4_700..5_300).contains(&mean(30).2));
        assert_eq!(mean(40).2, 0);
    }
}
