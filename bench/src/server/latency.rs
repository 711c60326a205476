//! Latency at half the peak, in an open loop: commands go out when the clock says so, whatever has
//! been answered, and the time counts from the moment a command should have gone out. So a server
//! that stalls is charged for all who wait.

use super::Outcome;
use super::contenders::{self, Contender};
use super::load::{Load, SILENCE_MAX, Until};
use super::options::Options;
use super::process::keep_to_core;
use super::requests::Requests;
use crate::histogram::Histogram;
use crate::measure::{head, median, row};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

pub fn run(options: &Options) -> Outcome<()> {
    keep_to_core(options.client_core)?;
    let mut contenders = contenders::start(options)?;
    let mut peaks = vec![Vec::new(); contenders.len()];
    for _ in 0..options.rounds {
        for (contender, peaks) in contenders.iter_mut().zip(&mut peaks) {
            let Contender { load, requests, .. } = contender;
            let tally = load.run(requests, 1, Until::Passed(Duration::from_secs_f64(options.seconds)))?;
            peaks.push(tally.replies as f64 / tally.took.as_secs_f64());
        }
    }
    let peaks: Vec<f64> = peaks.into_iter().map(median).collect();
    let mut histograms: Vec<Histogram> = contenders.iter().map(|_| Histogram::default()).collect();
    for _ in 0..options.rounds {
        for ((contender, peak), histogram) in contenders.iter_mut().zip(&peaks).zip(&mut histograms) {
            let Contender { load, requests, .. } = contender;
            open_loop(load, requests, peak / 2.0, options.seconds, histogram)
                .map_err(|problem| format!("{}: {problem}", contender.name))?;
        }
    }
    println!(
        "From the intended time of sending to the reply, µs: {} connections, pipeline 1, at half of each server's peak in the same run,\n\
         {} resident keys, the server on one core and the load on another ({} interleaved rounds of {} s in total):\n",
        options.connections.unwrap_or(50),
        options.keys,
        options.rounds,
        options.seconds,
    );
    head(["", "peak, k/s", "commands, k/s", "median", "p99", "p99.9"]);
    for ((contender, peak), histogram) in contenders.iter().zip(&peaks).zip(&mut histograms) {
        let [a, b, c] = histogram.at_most(SHARES).map(|nanos| format!("{:.0}", nanos as f64 / 1e3));
        let [peak, rate] = [*peak, peak / 2.0].map(|rate| format!("{:.0}", rate / 1e3));
        row([contender.name.to_owned(), peak, rate, a, b, c]);
    }
    Ok(())
}

/// A fixed number of commands per second, spread evenly over the connections.
pub fn open_loop(
    load: &mut Load,
    requests: &mut dyn Requests,
    rate: f64,
    seconds: f64,
    histogram: &mut Histogram,
) -> Outcome<()> {
    let (poll, events, connections, buffer) = load.parts();
    let mut waiting: Vec<VecDeque<Instant>> = vec![VecDeque::new(); connections.len()];
    let mut seen: Vec<u64> = connections.iter().map(|connection| connection.replies.complete).collect();
    let began = Instant::now();
    let (mut sent, total) = (0_u64, (rate * seconds) as u64);
    let mut answered = 0;
    let mut last = began;
    while answered < total {
        let mut now = Instant::now();
        // Everything that is due by now, however late.
        while sent < total {
            let due = began + Duration::from_secs_f64(sent as f64 / rate);
            if due > now {
                break;
            }
            let place = sent as usize % connections.len();
            waiting[place].push_back(due);
            connections[place].send(requests, 1).map_err(|error| error.to_string())?;
            sent += 1;
        }
        // The core is the load's own, so it looks again at once instead of sleeping past the next
        // moment.
        poll.poll(events, Some(Duration::ZERO)).map_err(|error| error.to_string())?;
        if !events.is_empty() {
            last = now;
        }
        for event in &*events {
            let place = event.token().0;
            connections[place].write().map_err(|error| error.to_string())?;
            if event.is_readable() {
                connections[place].read(buffer)?;
                now = Instant::now();
            }
            while seen[place] < connections[place].replies.complete {
                seen[place] += 1;
                answered += 1;
                let due = waiting[place].pop_front().ok_or("a reply without a command")?;
                histogram.note((now - due).as_nanos() as u64);
            }
        }
        if now - last > SILENCE_MAX {
            return Err(format!("no reply for {} s", SILENCE_MAX.as_secs()));
        }
    }
    Ok(())
}
