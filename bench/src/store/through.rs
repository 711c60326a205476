//! Decisions a second through our server, of what the same script reaches without it, on the same
//! Redis.
//!
//! redis-server has one core. The load, and our server when it is asked, share the other: so what
//! our server takes, the load lacks, and the share that is printed is lower than with a core for
//! each.

use super::ours;
use crate::measure::{head, median, row, verdict};
use crate::server::Outcome;
use crate::server::client::{Client, Reply};
use crate::server::load::{Load, Until};
use crate::server::options::Options;
use crate::server::ours::{RULE, start_on_store};
use crate::server::process::{Process, cpu_of, keep_to_core};
use crate::server::redis;
use crate::server::requests::{KEY, Prepared, Template, Turns};
use std::time::Duration;

const PIPELINES: [usize; 2] = [16, 64];

/// The least share that we want to reach.
const BAR: f64 = 0.85;

/// Thousand decisions a second, and cores that redis-server, our server and the load were busy for.
type Figure = [f64; 4];

struct Way {
    name: &'static str,
    load: Load,
    requests: Prepared,
    figures: [Vec<Figure>; PIPELINES.len()],
}

pub fn run(options: &Options) -> Outcome<()> {
    let Some(program) = &options.sluice else { return Ok(()) };
    keep_to_core(options.client_core)?;
    let store = redis::start("redis-server", None, Some(options.server_core))?;
    let served = start_on_store(options, program, 1, Some(options.client_core), store.address)?;
    let mut client = Client::connect(store.address).map_err(|error| error.to_string())?;
    let raw = |cost, client: &mut Client| ours::check(RULE, cost)?.apart("raw:").load(client);
    let (check, fill) = (raw(1, &mut client)?, raw(100, &mut client)?);
    let mut ways = [
        way(options, "raw EVALSHA", &store, &check, &fill)?,
        way(
            options,
            "RL.CHECK through sluice serve",
            &served.process,
            &Template::new(&["RL.CHECK", "bench", KEY]),
            &Template::new(&["RL.CHECK", "bench", KEY, "COST", "100"]),
        )?,
    ];
    is_in_store(&mut client, 2 * options.keys)?;
    for round in 0..=options.rounds {
        for place in 0..PIPELINES.len() {
            for way in &mut ways {
                let figure = measure(way, &store, &served.process, place, options.seconds);
                let figure = figure.map_err(|problem| format!("{}: {problem}", way.name))?;
                if round > 0 {
                    way.figures[place].push(figure);
                }
            }
        }
    }
    report(options, &ways);
    Ok(())
}

/// Connects, and fills the keys so that none recovers during the run.
fn way(
    options: &Options,
    name: &'static str,
    server: &Process,
    check: &Template,
    fill: &Template,
) -> Outcome<Way> {
    let mut load = Load::connect(server.address, options.connections.unwrap_or(50))?;
    let mut turns = Turns { template: fill.clone(), keys: options.keys, at: 0 };
    let tally = load.run(&mut turns, 16, Until::Sent(options.keys))?;
    if tally.errors > 0 {
        return Err(format!("{name}: {} errors while the keys were put in", tally.errors));
    }
    Ok(Way { name, load, requests: Prepared::new(check, options.keys), figures: Default::default() })
}

/// Both ways have put their keys there: a server that counted in its own memory would look very
/// fast.
fn is_in_store(client: &mut Client, keys: u64) -> Outcome<()> {
    match client.call(&["DBSIZE"]).map_err(|error| error.to_string())? {
        Reply::Numbers(found)
            if found.iter().any(|found| u64::try_from(*found).is_ok_and(|found| found >= keys)) =>
        {
            Ok(())
        }
        other => Err(format!("the store should have {keys} keys or more, but DBSIZE answers {other:?}")),
    }
}

fn measure(way: &mut Way, store: &Process, served: &Process, place: usize, seconds: f64) -> Outcome<Figure> {
    let busy = || [store.cpu(), served.cpu(), cpu_of(std::process::id())];
    let before = busy();
    let until = Until::Passed(Duration::from_secs_f64(seconds));
    let tally = way.load.run(&mut way.requests, PIPELINES[place], until)?;
    if tally.errors > 0 {
        return Err(format!("{} of {} replies are errors", tally.errors, tally.replies));
    }
    let after = busy();
    let took = tally.took.as_secs_f64();
    let [store, served, load] =
        [0, 1, 2].map(|who: usize| after[who].saturating_sub(before[who]).as_secs_f64() / took);
    Ok([tally.replies as f64 / took / 1e3, store, served, load])
}

fn report(options: &Options, ways: &[Way; 2]) {
    println!(
        "Decisions through sluice serve with its keys in Redis, compared with raw EVALSHA of the same script on the same Redis by the same load:\n\
         `{RULE}`, {} connections, {} resident keys. redis-server has one core; our server, with one worker thread, and the load\n\
         share the other (median of {} interleaved rounds of {} s):\n",
        options.connections.unwrap_or(50),
        options.keys,
        options.rounds,
        options.seconds,
    );
    head([
        "",
        "pipeline",
        "thousand decisions per second",
        "cores redis-server used",
        "sluice",
        "the load",
        "ratio to raw",
        "bar",
        "",
    ]);
    for (place, pipeline) in PIPELINES.iter().enumerate() {
        for way in ways {
            let of = |which: usize| median(way.figures[place].iter().map(|figure| figure[which]).collect());
            let pairs = way.figures[place].iter().zip(&ways[0].figures[place]);
            let share = median(pairs.map(|(these, raw)| these[0] / raw[0]).collect());
            let ours = way.name != ways[0].name;
            let [bar, met] = if ours { [BAR.to_string(), verdict(share >= BAR)] } else { Default::default() };
            let [speed, store, served, load] = [0, 1, 2, 3].map(of);
            row([
                way.name.to_owned(),
                pipeline.to_string(),
                format!("{speed:.0}"),
                format!("{store:.2}"),
                format!("{served:.2}"),
                format!("{load:.2}"),
                format!("{share:.2}"),
                bar,
                met,
            ]);
        }
    }
}
