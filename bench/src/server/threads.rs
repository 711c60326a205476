//! Two cores serve more than one: the same load on our server with one worker thread and with two,
//! nothing pinned.
//!
//! On a machine with two cores the load has to live there too. So the table says how many cores the
//! server and the load were busy for: where both together come to all the cores there are, the
//! machine was full, and more threads could not have served more. The deeper the pipeline, the
//! lighter the load is beside the server.

use super::Outcome;
use super::load::{Load, Tally, Until};
use super::options::Options;
use super::ours::{self, Ours, THROTTLE};
use super::process::{cpu_of, run_anywhere};
use super::requests::{Fresh, KEY, Prepared, Template};
use crate::measure::{head, median, own_thread_cpu, row};
use std::time::Duration;

const PIPELINES: [usize; 3] = [1, 16, 64];
const THREADS: [usize; 2] = [1, 2];

/// Commands a second in thousands, cores that the server was busy for, cores that the load was.
type Figure = [f64; 3];

struct Contender {
    ours: Ours,
    loads: [(Load, Prepared); 2],
}

pub fn run(options: &Options) -> Outcome<()> {
    let Some(program) = &options.sluice else { return Ok(()) };
    run_anywhere()?;
    let words = [&["CL.THROTTLE", KEY][..], &THROTTLE].concat();
    let requests = Prepared::new(&Template::new(&words), options.keys);
    let half = options.connections.unwrap_or(50).div_ceil(2);
    let mut contenders = Vec::new();
    for threads in THREADS {
        let ours = ours::start(options, program, threads, 2 * options.keys, None)?;
        let address = ours.process.address;
        let mut first = Load::connect(address, half)?;
        let template = Template::new(&[&words[..], &["100"]].concat());
        first.run(&mut Fresh { template, from: 0 }, 64, Until::Sent(options.keys))?;
        let second = Load::connect(address, half)?;
        let loads = [(first, requests.second()), (second, requests.second().second())];
        contenders.push(Contender { ours, loads });
    }
    let mut figures = vec![[const { Vec::new() }; PIPELINES.len()]; THREADS.len()];
    for round in 0..=options.rounds {
        for (place, pipeline) in PIPELINES.into_iter().enumerate() {
            for (contender, figures) in contenders.iter_mut().zip(&mut figures) {
                let figure = measure(contender, pipeline, options.seconds)?;
                if round > 0 {
                    figures[place].push(figure);
                }
            }
        }
    }
    report(options, &figures);
    Ok(())
}

/// Two threads of load at once, each with half the connections.
fn measure(contender: &mut Contender, pipeline: usize, seconds: f64) -> Outcome<Figure> {
    let own = std::process::id();
    let (server, load) = (contender.ours.process.cpu(), cpu_of(own));
    let until = Until::Passed(Duration::from_secs_f64(seconds));
    let [first, second] = &mut contender.loads;
    let drive = |(load, requests): &mut (Load, Prepared)| {
        let tally = load.run(requests, pipeline, until);
        // Before the thread ends, as the time of an ended thread is in no list of threads.
        (tally, own_thread_cpu())
    };
    let ((first, first_cpu), (second, _)) = std::thread::scope(|scope| {
        let handle = scope.spawn(|| drive(first));
        let second = drive(second);
        (handle.join().unwrap_or_else(|_| (Err("a load thread failed".to_owned()), Duration::ZERO)), second)
    });
    let (first, second): (Tally, Tally) = (first?, second?);
    if first.errors + second.errors > 0 {
        return Err(format!("{} replies are errors", first.errors + second.errors));
    }
    let took = first.took.max(second.took).as_secs_f64();
    let server = contender.ours.process.cpu().saturating_sub(server).as_secs_f64();
    let load = (cpu_of(own) + first_cpu).saturating_sub(load).as_secs_f64();
    Ok([(first.replies + second.replies) as f64 / took / 1e3, server / took, load / took])
}

fn report(options: &Options, figures: &[[Vec<Figure>; PIPELINES.len()]]) {
    println!(
        "Ours with one worker thread and with two, CL.THROTTLE, {} resident keys, two load threads with {} connections, nothing\n\
         pinned (median of {} interleaved rounds of {} s):\n",
        options.keys,
        options.connections.unwrap_or(50),
        options.rounds,
        options.seconds,
    );
    head([
        "pipeline",
        "worker threads",
        "thousand commands per second",
        "cores the server used",
        "cores the load used",
        "ratio to one thread",
    ]);
    for (place, pipeline) in PIPELINES.iter().enumerate() {
        for (threads, figures_of) in THREADS.iter().zip(figures) {
            let of = |which: usize| median(figures_of[place].iter().map(|figure| figure[which]).collect());
            let pairs = figures_of[place].iter().zip(&figures[0][place]);
            let ratio = median(pairs.map(|(these, one)| these[0] / one[0]).collect());
            let [speed, server, load] = [of(0), of(1), of(2)];
            let [pipeline, threads] = [pipeline, threads].map(ToString::to_string);
            let cells =
                [format!("{speed:.0}"), format!("{server:.2}"), format!("{load:.2}"), format!("{ratio:.2}")];
            let [speed, server, load, ratio] = cells;
            row([pipeline, threads, speed, server, load, ratio]);
        }
    }
}
