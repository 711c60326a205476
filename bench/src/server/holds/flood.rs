//! New keys without end against a server that may hold a million, while an offender who has used up
//! his limit keeps trying. Memory has to stay as it is, and the offender has to stay denied: a
//! flood must not buy an amnesty.

use super::megabytes;
use crate::measure::{head, row};
use crate::server::Outcome;
use crate::server::client::{Client, Reply};
use crate::server::load::{Load, Until};
use crate::server::options::Options;
use crate::server::ours::FLOODED;
use crate::server::requests::{Fresh, KEY, Template};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PARTS: u64 = 10;
const PIPELINE: usize = 64;
const OFFENDER: &str = "the-offender-himself";
/// Between two tries of the offender.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Default)]
struct Tries {
    made: AtomicU64,
    denied: AtomicU64,
    stop: AtomicBool,
}

pub fn run(options: &Options) -> Outcome<()> {
    let Some(mut ours) = super::ours(options)? else { return Ok(()) };
    let address = ours.process.address;
    let tries = Tries::default();
    let mut load = Load::connect(address, options.connections.unwrap_or(50).min(1000))?;
    let mut flood = Fresh { template: Template::new(&["RL.CHECK", "flood", KEY]), from: 0 };
    println!(
        "{} new keys, one RL.CHECK each under `token-bucket {FLOODED}/day`, pipeline {PIPELINE}, max_keys = {}:\n",
        options.flood, options.keys,
    );
    head([
        "progress",
        "thousand commands per second",
        "new keys allowed",
        "memory, MB",
        "offender's tries",
        "denied",
    ]);
    std::thread::scope(|scope| {
        let offender = scope.spawn(|| offend(address, &tries));
        let flooded = (|| {
            line("before", "", "", ours.process.memory(), &tries);
            for part in 1..=PARTS {
                let count = options.flood * part / PARTS - options.flood * (part - 1) / PARTS;
                let tally = load.run(&mut flood, PIPELINE, Until::Sent(count))?;
                if tally.errors > 0 {
                    return Err(format!("{} of {} replies are errors", tally.errors, tally.replies));
                }
                let speed = format!("{:.0}", tally.replies as f64 / tally.took.as_secs_f64() / 1e3);
                let allowed = format!("{:.2} %", tally.ones as f64 * 100.0 / tally.replies.max(1) as f64);
                line(&format!("{} %", part * 100 / PARTS), &speed, &allowed, ours.process.memory(), &tries);
            }
            Ok(())
        })();
        tries.stop.store(true, Ordering::Relaxed);
        let offended = offender.join().unwrap_or_else(|_| Err("the offender's thread failed".to_owned()));
        flooded.and(offended)
    })?;
    let [made, denied] = [&tries.made, &tries.denied].map(|count| count.load(Ordering::Relaxed) as f64);
    println!("\nThe offender was denied {:.4} % of its tries.", denied * 100.0 / made.max(1.0));
    if !ours.process.runs() {
        return Err("the server has ended".to_owned());
    }
    Ok(())
}

fn line(part: &str, speed: &str, allowed: &str, memory: f64, tries: &Tries) {
    let [made, denied] = [&tries.made, &tries.denied].map(|count| count.load(Ordering::Relaxed).to_string());
    let [part, speed, allowed] = [part, speed, allowed].map(str::to_owned);
    row([part, speed, allowed, megabytes(memory), made, denied]);
}

/// Uses up the limit, then tries again and again.
fn offend(address: SocketAddr, tries: &Tries) -> Outcome<()> {
    let mut client = Client::connect(address).map_err(|error| error.to_string())?;
    let mut allowed = || match client.call(&["RL.CHECK", "flood", OFFENDER]) {
        Ok(Reply::Numbers(numbers)) => Ok(numbers.first() == Some(&1)),
        other => Err(format!("the offender was answered {other:?}")),
    };
    for _ in 0..FLOODED {
        allowed()?;
    }
    while !tries.stop.load(Ordering::Relaxed) {
        let denied = !allowed()?;
        tries.made.fetch_add(1, Ordering::Relaxed);
        tries.denied.fetch_add(u64::from(denied), Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
