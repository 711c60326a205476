//! Processor time of redis-server for one decision.
//!
//! All scripts are asked on one server, one after another in interleaved rounds, each with keys of
//! its own.

use super::contests::{self, Contest, ENTRIES, Keys, Pair};
use crate::measure::{head, median, row, verdict};
use crate::server::Outcome;
use crate::server::client::Client;
use crate::server::load::{Load, Tally, Until};
use crate::server::options::Options;
use crate::server::process::{Process, keep_to_core};
use crate::server::redis;
use crate::server::requests::{Prepared, Requests, Template, Turns};
use std::time::Duration;

const PIPELINES: [usize; 3] = [1, 16, 64];

/// The window of the logs that are steady.
const WINDOW: Duration = Duration::from_secs(1);

/// How many keys of a steady log are asked until it is known how many calls a second there are.
const FIRST_GUESS: u64 = 500;

/// A script with its keys filled, and what it was measured to take: µs a decision, by pipeline and
/// round.
struct Side {
    check: Template,
    requests: Asked,
    figures: [Vec<f64>; PIPELINES.len()],
}

/// Whom to ask.
enum Asked {
    Drawn(Prepared),
    /// By pipeline, as deeper ones are faster and then more keys get a hundred calls a second each.
    Steady([Turns; PIPELINES.len()]),
}

pub fn run(options: &Options) -> Outcome<()> {
    keep_to_core(options.client_core)?;
    let server = redis::start("redis-server", None, Some(options.server_core))?;
    let connections = options.connections.unwrap_or(50);
    let mut load = Load::connect(server.address, connections)?;
    let mut contests = Vec::new();
    for (place, contest) in contests::for_cpu()?.into_iter().enumerate() {
        let sides = [&contest.ours, &contest.rival];
        let [ours, rival] = sides.map(|pair| side(options, &server, &mut load, &contest, pair, place));
        contests.push((contest, [ours?, rival?]));
    }
    // The first round is for nothing but caches, buffers that grow once, and how many keys a steady
    // log needs.
    for round in 0..=options.rounds {
        for place in 0..PIPELINES.len() {
            for (contest, sides) in &mut contests {
                // Each goes first in turn, so that what the other leaves behind in caches hurts
                // both alike.
                for which in [round % 2, 1 - round % 2] {
                    let side = &mut sides[which];
                    let figure = side.measure(&server, &mut load, place, options.seconds, round == 0);
                    let figure = figure.map_err(|problem| format!("{}: {problem}", contest.name))?;
                    if round > 0 {
                        side.figures[place].push(figure);
                    }
                }
            }
        }
    }
    report(options, &contests);
    Ok(())
}

/// Loads the scripts and fills the keys.
fn side(
    options: &Options,
    server: &Process,
    load: &mut Load,
    contest: &Contest,
    pair: &Pair,
    place: usize,
) -> Outcome<Side> {
    let mut client = Client::connect(server.address).map_err(|error| error.to_string())?;
    let apart = format!("{place}");
    let check = pair.check.clone().apart(&apart).load(&mut client)?;
    let fill = pair.fill.clone().apart(&apart).load(&mut client)?;
    let requests = match contest.keys {
        Keys::Steady => Asked::Steady([0; PIPELINES.len()].map(|_| turns(&check, FIRST_GUESS))),
        Keys::Drawn { filled_by } => {
            let keys = options.keys.div_ceil(filled_by);
            let tally = load.run(&mut turns(&fill, keys), 64, Until::Sent(keys * filled_by))?;
            without_errors(tally)?;
            Asked::Drawn(Prepared::new(&check, keys))
        }
    };
    Ok(Side { check, requests, figures: Default::default() })
}

impl Side {
    /// µs a decision.
    fn measure(
        &mut self,
        server: &Process,
        load: &mut Load,
        place: usize,
        seconds: f64,
        first: bool,
    ) -> Outcome<f64> {
        if let Asked::Steady(turns_of) = &mut self.requests {
            // A window's worth before anything is counted, so that for each entry that comes one
            // leaves.
            let lead_in = load.run(&mut turns_of[place], PIPELINES[place], Until::Passed(WINDOW))?;
            without_errors(lead_in)?;
            if first {
                let in_a_window = lead_in.replies as f64 / lead_in.took.as_secs_f64() * WINDOW.as_secs_f64();
                turns_of[place] = turns(&self.check, (in_a_window as u64 / ENTRIES).max(1));
            }
        }
        let requests: &mut dyn Requests = match &mut self.requests {
            Asked::Drawn(prepared) => prepared,
            Asked::Steady(turns) => &mut turns[place],
        };
        // Read while nothing is under way, so no thread is in the middle of a time slice.
        let before = server.cpu();
        let tally = load.run(requests, PIPELINES[place], Until::Passed(Duration::from_secs_f64(seconds)))?;
        without_errors(tally)?;
        let took = server.cpu().saturating_sub(before);
        Ok(took.as_secs_f64() * 1e6 / tally.replies as f64)
    }
}

fn turns(template: &Template, keys: u64) -> Turns {
    Turns { template: template.clone(), keys, at: 0 }
}

fn without_errors(tally: Tally) -> Outcome<()> {
    if tally.errors > 0 {
        return Err(format!("{} of {} replies are errors", tally.errors, tally.replies));
    }
    Ok(())
}

fn report(options: &Options, contests: &[(Contest, [Side; 2])]) {
    println!(
        "CPU time of redis-server, µs per decision: {} connections, redis-server on one core and the load on another\n\
         (median of {} interleaved rounds of {} s):\n",
        options.connections.unwrap_or(50),
        options.rounds,
        options.seconds,
    );
    head(["", "pipeline 1, ours", "rival's", "16, ours", "rival's", "64, ours", "rival's", "rival"]);
    for (contest, [ours, rival]) in contests {
        let cell = |side: &Side, place: usize| format!("{:.2}", median(side.figures[place].clone()));
        let [[a, b], [c, d], [e, f]] = [0, 1, 2].map(|place| [cell(ours, place), cell(rival, place)]);
        row([contest.name.to_owned(), a, b, c, d, e, f, contest.rival_name.to_owned()]);
    }
    println!("\nRatios of ours to the rival's (the median of the ratios within each round), and bars:\n");
    head(["", "rival", "pipeline", "ratio", "bar", ""]);
    for (contest, [ours, rival]) in contests {
        for (place, pipeline) in PIPELINES.iter().enumerate() {
            let pairs = ours.figures[place].iter().zip(&rival.figures[place]);
            let ratio = median(pairs.map(|(ours, rival)| ours / rival).collect());
            let [bar, met] = bar_cells(ratio, contest.bar);
            let [name, rival_name] = [contest.name, contest.rival_name].map(str::to_owned);
            row([name, rival_name, pipeline.to_string(), format!("{ratio:.2}"), bar, met]);
        }
    }
}

/// The bar, and whether it is met; empty where there is none.
pub fn bar_cells(ratio: f64, bar: Option<f64>) -> [String; 2] {
    match bar {
        Some(bar) => [bar.to_string(), verdict(ratio <= bar)],
        None => [String::new(), String::new()],
    }
}
