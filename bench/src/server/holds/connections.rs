//! Ten thousand connections at once: what an idle one costs, and whether each is answered.

use super::{Tried, megabytes};
use crate::measure::{head, row};
use crate::server::Outcome;
use crate::server::client::Client;
use crate::server::options::Options;
use crate::server::process::open_files;
use std::time::Instant;

/// Files that a server and this program have open besides the connections.
const OTHER_FILES: usize = 1000;

pub fn run(options: &Options) -> Outcome<()> {
    let count = options.connections.unwrap_or(10_000);
    open_files(count + OTHER_FILES)?;
    let rows: Vec<_> = super::all(options)?.iter_mut().map(|tried| measure(tried, count)).collect();
    println!("{count} connections at once, memory of the server in MB:\n");
    head([
        "",
        "connected",
        "memory before",
        "all idle",
        "bytes per idle connection",
        "answered once",
        "memory after",
        "bytes per connection",
        "seconds in total",
    ]);
    rows.into_iter().for_each(row);
    Ok(())
}

fn measure(tried: &mut Tried, count: usize) -> [String; 9] {
    let name = tried.name().to_owned();
    let process = tried.process();
    let began = Instant::now();
    let before = process.memory();
    let mut clients: Vec<Client> = (0..count).map_while(|_| Client::connect(process.address).ok()).collect();
    // One more round trip, so that the server has taken up the last of them too.
    let last = clients.last_mut().map(|client| client.call(&["PING"]));
    let connected = clients.len();
    let idle = process.memory();
    let ask = |place: usize, client: &mut Client| {
        let key = format!("connection-{place}");
        client.call(&["CL.THROTTLE", &key, "15", "30", "60"]).is_ok()
    };
    let answered =
        clients.iter_mut().enumerate().filter_map(|(place, client)| ask(place, client).then_some(())).count();
    let then = process.memory();
    let each = |now: f64| format!("{:.0}", (now - before) / connected.max(1) as f64);
    let well = process.runs() && last.is_some_and(|last| last.is_ok());
    [
        name,
        connected.to_string(),
        megabytes(before),
        megabytes(idle),
        each(idle),
        if well { answered.to_string() } else { format!("{answered}, and something failed") },
        megabytes(then),
        each(then),
        format!("{:.1}", began.elapsed().as_secs_f64()),
    ]
}
