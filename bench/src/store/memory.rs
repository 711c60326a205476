//! Memory of redis-server for one key, as it counts it itself: how much `used_memory` grows, over
//! many keys.

use super::contests::{self, Pair};
use super::cpu::bar_cells;
use crate::measure::{head, row};
use crate::server::Outcome;
use crate::server::client::{Client, Reply};
use crate::server::load::{Load, Until};
use crate::server::options::Options;
use crate::server::process::Process;
use crate::server::redis;
use crate::server::requests::Turns;

pub fn run(options: &Options) -> Outcome<()> {
    let server = redis::start("redis-server", None, None)?;
    println!(
        "Memory of redis-server per key of 20 bytes, including the prefix of its name, by used_memory over {} keys\n\
         ({} keys for logs of {} entries):\n",
        options.keys,
        options.keys / 10,
        contests::ENTRIES,
    );
    head(["", "ours, bytes per key", "rival's, bytes per key", "rival", "ratio", "bar", ""]);
    for (contest, calls) in contests::for_memory()? {
        let keys = if calls == 1 { options.keys } else { options.keys.div_ceil(10) };
        let ours = bytes_a_key(&server, &contest.ours, keys, calls)?;
        let rival = bytes_a_key(&server, &contest.rival, keys, calls)?;
        let [bar, met] = bar_cells(ours / rival, contest.bar);
        let [name, rival_name] = [contest.name, contest.rival_name].map(str::to_owned);
        let [ours, rival, ratio] =
            [format!("{ours:.0}"), format!("{rival:.0}"), format!("{:.2}", ours / rival)];
        row([name, ours, rival, rival_name, ratio, bar, met]);
    }
    Ok(())
}

/// Calls with this many new keys, and the memory per key.
fn bytes_a_key(server: &Process, pair: &Pair, keys: u64, calls: u64) -> Outcome<f64> {
    let mut client = Client::connect(server.address).map_err(|error| error.to_string())?;
    let template = pair.check.load(&mut client)?;
    let mut load = Load::connect(server.address, 1)?;
    // Once for nothing, so that the connection has the buffers that it will have.
    let mut turns = Turns { template, keys, at: 0 };
    load.run(&mut turns, 64, Until::Sent(keys.min(1000)))?;
    client.call(&["FLUSHALL", "SYNC"]).map_err(|error| error.to_string())?;
    turns.at = 0;
    let before = used_memory(&mut client)?;
    let tally = load.run(&mut turns, 64, Until::Sent(keys * calls))?;
    if tally.errors > 0 {
        return Err(format!("{} replies are errors", tally.errors));
    }
    let grown = used_memory(&mut client)? - before;
    Ok(grown / keys as f64)
}

fn used_memory(client: &mut Client) -> Outcome<f64> {
    let reply = client.call(&["INFO", "memory"]).map_err(|error| error.to_string())?;
    let Reply::Other(text) = reply else { return Err(format!("INFO answers {reply:?}")) };
    let bytes = text.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    bytes.ok_or_else(|| "INFO tells no used_memory".to_owned())
}
