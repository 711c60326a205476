//! Rounds, medians and tables: what every measurement here needs.

use std::time::{Duration, Instant};

/// A name, and what measures it once and answers with the figure.
pub type Contender<'a> = (String, Box<dyn FnMut() -> f64 + 'a>);

/// What each contender came to in each round.
pub struct Rounds {
    names: Vec<String>,
    figures: Vec<Vec<f64>>,
}

/// Every contender once in each round, in turn: a noisy minute of the machine then hits all alike.
pub fn interleaved(mut contenders: Vec<Contender<'_>>, rounds: usize) -> Rounds {
    let mut figures = vec![Vec::new(); contenders.len()];
    // A first round for nothing, in which caches and branch predictors get used to it.
    for round in 0..=rounds {
        for ((_, measure), figures) in contenders.iter_mut().zip(&mut figures) {
            let figure = measure();
            if round > 0 {
                figures.push(figure);
            }
        }
    }
    Rounds { names: contenders.into_iter().map(|(name, _)| name).collect(), figures }
}

impl Rounds {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub fn median(&self, name: &str) -> f64 {
        median(self.of(name).to_vec())
    }

    /// The median, with the lowest and the highest round: two cells of a table.
    pub fn spread(&self, name: &str) -> [String; 2] {
        let figures = self.of(name);
        let lowest = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = figures.iter().copied().fold(0.0, f64::max);
        [format!("{:.1}", self.median(name)), format!("{lowest:.1} to {highest:.1}")]
    }

    /// How much more than another it took in each round.
    pub fn beyond(&self, name: &str, other: &str) -> Vec<f64> {
        self.of(name).iter().zip(self.of(other)).map(|(more, less)| more - less).collect()
    }

    /// How many times as long as a rival: the median of what it was in each round, as both then met
    /// the same machine.
    pub fn ratio(&self, name: &str, rival: &str) -> f64 {
        median(self.of(name).iter().zip(self.of(rival)).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// The same as a cell of a table.
    pub fn ratio_cell(&self, name: &str, rival: &str) -> String {
        format!("{:.2}", self.ratio(name, rival))
    }

    fn of(&self, name: &str) -> &[f64] {
        let place = self.names.iter().position(|known| known == name);
        &self.figures[place.unwrap_or_else(|| panic!("no contender is called {name}"))]
    }
}

/// The median of some figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The time per repetition, in nanoseconds.
pub fn nanos_each(count: u64, act: impl FnOnce()) -> f64 {
    let began = Instant::now();
    act();
    each(began.elapsed(), count)
}

pub fn each(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e9 / count as f64
}

/// Processor time of the thread that asks.
pub fn own_thread_cpu() -> Duration {
    // The system brings the figure up to date when a thread steps back, and else only with its
    // ticks of some milliseconds.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_ascii_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// The head of a Markdown table.
pub fn head<const N: usize>(columns: [&str; N]) {
    row(columns.map(str::to_owned));
    println!("|{}", "---|".repeat(N));
}

/// A row of a Markdown table.
pub fn row<const N: usize>(cells: [String; N]) {
    println!("| {} |", cells.join(" | "));
}

/// Whether a figure keeps within a bar.
pub fn verdict(met: bool) -> String {
    if met { "met" } else { "not met" }.to_owned()
}

/// A figure of `/proc/self/status`, in bytes: `VmRSS` is the memory in use, `VmHWM` the most there
/// ever was.
pub fn memory(figure: &str) -> f64 {
    let status =
        std::fs::read_to_string("/proc/self/status").expect("Linux tells a process about its memory");
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    let kilobytes = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<f64>().ok());
    kilobytes.expect("a number of kilobytes") * 1024.0
}
