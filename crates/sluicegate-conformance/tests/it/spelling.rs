//! Every allowed spelling of a limit reads as the same limit.
//!
//! The model spells: it takes a canonical text apart, word by word, and writes each number and
//! period in a random allowed way, with its own tables. The library must read the limit that it
//! started from.

use fastrand::Rng;
use sluicegate::Limit;
use sluicegate_conformance::random;
use std::collections::BTreeSet;

const LIMITS: u64 = 2_000;
const SPELLINGS: usize = 8;

/// A canonical unit, its length in microseconds, and its spellings.
const UNITS: [(&str, u64, &[&str]); 6] = [
    ("us", 1, &["us", "usec", "usecs", "microsecond", "microseconds", "\u{b5}s", "\u{3bc}s"]),
    ("ms", 1_000, &["ms", "msec", "msecs", "millisecond", "milliseconds"]),
    ("s", 1_000_000, &["s", "sec", "secs", "second", "seconds"]),
    ("min", 60_000_000, &["min", "mins", "m", "minute", "minutes"]),
    ("h", 3_600_000_000, &["h", "hr", "hrs", "hour", "hours"]),
    ("d", 86_400_000_000, &["d", "day", "days"]),
];

const SUFFIXES: [(&str, u64); 5] =
    [("k", 1_000), ("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000)];

/// Writes limits in random spellings, and remembers which it used.
struct Speller {
    rng: Rng,
    used: BTreeSet<String>,
}

impl Speller {
    fn list(&mut self, limits: &[Limit]) -> String {
        let texts: Vec<String> = limits.iter().map(|limit| self.limit(&limit.to_string())).collect();
        let plus = format!("{}+{}", self.gap(), self.gap());
        texts.join(&plus)
    }

    fn limit(&mut self, canonical: &str) -> String {
        let mut words = canonical.split(' ');
        let (algorithm, measure) = (words.next().unwrap(), words.next().unwrap());
        let mut options: Vec<String> = words.map(|word| self.option(word)).collect();
        self.rng.shuffle(&mut options);
        let measure = match measure.split_once('/') {
            Some((count, period)) => {
                let of_calendar = canonical.contains(" tz=") || ["week", "month", "year"].contains(&period);
                let period = if of_calendar { self.calendar(period) } else { self.period(period) };
                format!("{}/{period}", self.count(count))
            }
            None if algorithm == "concurrency" => self.count(measure),
            None => self.period(measure),
        };
        let mut text = if self.rng.bool() { self.gap() } else { String::new() };
        for word in [algorithm.to_owned(), measure].into_iter().chain(options) {
            text += &word;
            text += &self.gap();
        }
        text
    }

    fn option(&mut self, word: &str) -> String {
        let (name, value) = word.split_once('=').unwrap();
        let value = match name {
            "burst" | "capacity" | "queue" | "initial" => self.count(value),
            "ttl" | "warmup" => self.period(value),
            _ => value.to_owned(),
        };
        format!("{name}={value}")
    }

    fn count(&mut self, digits: &str) -> String {
        let number: u64 = digits.parse().unwrap();
        let (suffix, factor) = SUFFIXES[self.rng.usize(..SUFFIXES.len())];
        if number.is_multiple_of(factor) && self.rng.bool() {
            self.used.insert(suffix.to_owned());
            return self.digits(number / factor) + suffix;
        }
        self.digits(number)
    }

    /// Digits, perhaps with leading zeros and underscores.
    fn digits(&mut self, number: u64) -> String {
        let zeros = if self.rng.u8(..8) == 0 { "00" } else { "" };
        let plain = format!("{zeros}{number}");
        let mut text = String::new();
        for (index, digit) in plain.chars().enumerate() {
            if index > 0 && self.rng.u8(..6) == 0 {
                text.push('_');
            }
            text.push(digit);
        }
        text
    }

    /// The same length in any unit that divides it.
    fn period(&mut self, canonical: &str) -> String {
        let (n, unit) = canonical.split_at(canonical.bytes().take_while(u8::is_ascii_digit).count());
        let micros = UNITS.iter().find(|(name, ..)| *name == unit).unwrap().1
            * if n.is_empty() { 1 } else { n.parse().unwrap() };
        let dividing: Vec<_> = UNITS.iter().filter(|(_, size, _)| micros % size == 0).collect();
        let (_, size, spellings) = dividing[self.rng.usize(..dividing.len())];
        let unit = self.unit(spellings);
        let n = micros / size;
        if n == 1 && self.rng.bool() { unit } else { self.digits(n) + &unit }
    }

    /// A unit of the calendar is one, whatever it is called.
    fn calendar(&mut self, canonical: &str) -> String {
        match canonical {
            "day" => {
                let one = if self.rng.bool() { "1" } else { "" };
                format!("{one}{}", self.unit(&["d", "day", "days"]))
            }
            "week" => self.unit(&["week", "weeks"]),
            "month" => self.unit(&["month", "months"]),
            "year" => self.unit(&["year", "years"]),
            other => panic!("{other} is no unit of the calendar"),
        }
    }

    fn unit(&mut self, spellings: &[&str]) -> String {
        let spelling = spellings[self.rng.usize(..spellings.len())];
        self.used.insert(spelling.to_owned());
        // A lone M is the one unit that is not read in any case.
        match self.rng.u8(..4) {
            0 if spelling != "m" => spelling.to_ascii_uppercase(),
            1 if spelling != "m" && spelling.is_ascii() => {
                spelling[..1].to_ascii_uppercase() + &spelling[1..]
            }
            _ => spelling.to_owned(),
        }
    }

    fn gap(&mut self) -> String {
        (0..self.rng.usize(1..4)).map(|_| if self.rng.u8(..4) == 0 { '\t' } else { ' ' }).collect()
    }
}

fn limits(rng: &mut Rng) -> Vec<Limit> {
    match rng.u8(..4) {
        0 => random::list(rng),
        1 => {
            let ttl = if rng.bool() {
                format!(" ttl={}us", random::number(rng, 1, 1 << 48))
            } else {
                String::new()
            };
            vec![format!("concurrency {}{ttl}", random::number(rng, 1, 1_000_000_000)).parse().unwrap()]
        }
        _ => {
            let algorithm = Limit::CHECKS[rng.usize(..Limit::CHECKS.len())];
            vec![random::limit(rng, algorithm)]
        }
    }
}

#[test]
fn every_spelling_reads_as_the_same_limit() {
    let mut speller = Speller { rng: Rng::with_seed(1), used: BTreeSet::new() };
    for seed in 0..LIMITS {
        let limits = limits(&mut Rng::with_seed(seed));
        let canonical = Limit::list_text(&limits);
        assert_eq!(Limit::parse_list(&canonical).as_ref(), Ok(&limits), "{canonical}");
        for _ in 0..SPELLINGS {
            let text = speller.list(&limits);
            let read = Limit::parse_list(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert_eq!(read, limits, "{text:?}");
            assert_eq!(Limit::list_text(&read), canonical, "{text:?}");
        }
    }
    let units = UNITS.iter().flat_map(|(_, _, spellings)| spellings.iter().copied());
    let all = units.chain(SUFFIXES.map(|(suffix, _)| suffix)).chain(["week", "months", "year"]);
    for spelling in all {
        assert!(speller.used.contains(spelling), "{spelling:?} was never tried");
    }
}
