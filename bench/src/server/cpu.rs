//! Processor time of the server for one command, and commands a second.

use super::Outcome;
use super::contenders::{self, Contender, FLOOR, OURS, OURS_BY_RULE, REDIS_CELL};
use super::load::Until;
use super::options::Options;
use super::process::{cpu_of, keep_to_core};
use crate::measure::{head, median, row, verdict};
use std::time::Duration;

const PIPELINES: [usize; 3] = [1, 16, 64];

/// Where we want to be: the pipeline, ours, the rival, and the highest ratio.
const BARS: [(usize, &str, f64); 3] = [(0, FLOOR, 1.2), (1, REDIS_CELL, 0.15), (2, REDIS_CELL, 0.12)];

/// One measurement.
#[derive(Clone, Copy)]
struct Figure {
    /// Of the server, µs a command.
    cpu: f64,
    /// Of the load generator, µs a command.
    generator: f64,
    thousands_a_second: f64,
}

/// The figures of each contender, by pipeline and round.
struct Figures(Vec<(&'static str, [Vec<Figure>; PIPELINES.len()])>);

pub fn run(options: &Options) -> Outcome<()> {
    keep_to_core(options.client_core)?;
    let mut contenders = contenders::start(options)?;
    let mut figures =
        Figures(contenders.iter().map(|contender| (contender.name, Default::default())).collect());
    // The first round is for nothing: caches, and buffers that grow once.
    for round in 0..=options.rounds {
        for (place, pipeline) in PIPELINES.into_iter().enumerate() {
            for (contender, (_, by_pipeline)) in contenders.iter_mut().zip(&mut figures.0) {
                let figure = measure(contender, pipeline, options.seconds)?;
                if round > 0 {
                    by_pipeline[place].push(figure);
                }
            }
        }
    }
    report(options, &contenders, &figures);
    Ok(())
}

fn measure(contender: &mut Contender, pipeline: usize, seconds: f64) -> Outcome<Figure> {
    let own = std::process::id();
    // Both figures are read while nothing is under way, so no thread is in the middle of a time
    // slice.
    let (server, generator) = (contender.process().cpu(), cpu_of(own));
    let until = Until::Passed(Duration::from_secs_f64(seconds));
    let tally = contender.load.run(&mut contender.requests, pipeline, until);
    let tally = tally.map_err(|problem| format!("{}: {problem}", contender.name))?;
    if tally.errors > 0 {
        return Err(format!("{}: {} of {} replies are errors", contender.name, tally.errors, tally.replies));
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / tally.replies as f64;
    Ok(Figure {
        cpu: each(contender.process().cpu().saturating_sub(server)),
        generator: each(cpu_of(own).saturating_sub(generator)),
        thousands_a_second: tally.replies as f64 / tally.took.as_secs_f64() / 1e3,
    })
}

impl Figures {
    fn of(&self, name: &str, place: usize) -> Option<&[Figure]> {
        let (_, by_pipeline) = self.0.iter().find(|(known, _)| *known == name)?;
        Some(&by_pipeline[place])
    }

    fn median(&self, name: &str, place: usize, figure: impl Fn(&Figure) -> f64) -> f64 {
        median(self.of(name, place).unwrap_or_default().iter().map(figure).collect())
    }

    /// Processor time, of a rival's: the median of the ratios within each round.
    fn ratio(&self, name: &str, rival: &str, place: usize) -> Option<f64> {
        let pairs = self.of(name, place)?.iter().zip(self.of(rival, place)?);
        Some(median(pairs.map(|(ours, theirs)| ours.cpu / theirs.cpu).collect()))
    }
}

fn report(options: &Options, contenders: &[Contender], figures: &Figures) {
    println!(
        "CPU time of the server, µs per command, and thousand commands per second: {} connections, {} resident keys of\n\
         20 bytes drawn uniformly, the server on one core and the load on another (median of {} interleaved rounds of {} s):\n",
        options.connections.unwrap_or(50),
        options.keys,
        options.rounds,
        options.seconds,
    );
    let columns = ["", "pipeline 1, µs", "k/s", "16, µs", "k/s", "64, µs", "k/s", "bytes per key"];
    head(columns);
    for contender in contenders {
        let [one, sixteen, sixty_four] = [0, 1, 2].map(|place| {
            let cpu = figures.median(contender.name, place, |figure| figure.cpu);
            let speed = figures.median(contender.name, place, |figure| figure.thousands_a_second);
            [format!("{cpu:.2}"), format!("{speed:.0}")]
        });
        let ([a, b], [c, d], [e, f]) = (one, sixteen, sixty_four);
        let bytes = contender.bytes_a_key.map_or_else(String::new, |bytes| format!("{bytes:.0}"));
        row([contender.name.to_owned(), a, b, c, d, e, f, bytes]);
    }
    println!("\nThe same CPU time as a ratio, the median of the ratios within each round:\n");
    head(["", "to the floor, 1", "16", "64", "to redis-cell, 1", "16", "64"]);
    for contender in contenders {
        let cell = |rival, place| {
            let ratio = figures.ratio(contender.name, rival, place);
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
        };
        let [a, b, c] = [0, 1, 2].map(|place| cell(FLOOR, place));
        let [d, e, f] = [0, 1, 2].map(|place| cell(REDIS_CELL, place));
        row([contender.name.to_owned(), a, b, c, d, e, f]);
    }
    println!("\nBars:\n");
    head(["what", "pipeline", "compared with", "ratio", "bar", ""]);
    for name in [OURS, OURS_BY_RULE] {
        for (place, rival, bar) in BARS {
            let Some(ratio) = figures.ratio(name, rival, place) else { continue };
            let [name, rival] = [name, rival].map(str::to_owned);
            let cells = [PIPELINES[place].to_string(), rival, format!("{ratio:.2}"), format!("{bar}")];
            let [pipeline, rival, ratio_cell, bar_cell] = cells;
            row([name, pipeline, rival, ratio_cell, bar_cell, verdict(ratio <= bar)]);
        }
    }
    let light = [0, 1, 2].map(|place| figures.median(FLOOR, place, |figure| figure.generator));
    println!(
        "\nThe load generator itself took {:.2}, {:.2} and {:.2} µs per command against the floor.",
        light[0], light[1], light[2]
    );
}
