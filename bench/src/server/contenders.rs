//! Who is measured: servers that run side by side, each filled with the same keys, and what each is
//! asked.

use super::Outcome;
use super::client::{Client, Reply};
use super::load::{Load, Until};
use super::options::Options;
use super::ours::{self, Ours, THROTTLE};
use super::process::Process;
use super::redis::{self, RedisCell};
use super::requests::{Fresh, KEY, Prepared, Template};
use super::{floor, requests};
use std::rc::Rc;

pub const OURS: &str = "ours, CL.THROTTLE";
pub const OURS_BY_RULE: &str = "ours, RL.CHECK by rule";
pub const FLOOR: &str = "floor: fixed reply, one thread";
pub const REDIS_CELL: &str = "redis-cell, CL.THROTTLE";
pub const REDIS_PING: &str = "redis-server, PING";
pub const REDIS_INCR: &str = "redis-server, INCR";

/// A server that is asked one thing.
pub struct Contender {
    pub name: &'static str,
    pub load: Load,
    pub requests: Prepared,
    server: Rc<Server>,
    /// Bytes that a key takes, if keys were put in.
    pub bytes_a_key: Option<f64>,
}

enum Server {
    Ours(Ours),
    Other(Process),
}

impl Contender {
    pub fn process(&self) -> &Process {
        self.server.process()
    }
}

impl Server {
    fn process(&self) -> &Process {
        match self {
            Server::Ours(ours) => &ours.process,
            Server::Other(process) => process,
        }
    }
}

/// Starts them all, one core for the servers, and puts the keys in.
pub fn start(options: &Options) -> Outcome<Vec<Contender>> {
    let core = Some(options.server_core);
    let mut contenders = Vec::new();
    if let Some(program) = &options.sluice {
        for (name, ask) in [(OURS, throttle(&[])), (OURS_BY_RULE, by_rule(&[]))] {
            let server = Server::Ours(ours::start(options, program, 1, 2 * options.keys, core)?);
            contenders.extend(contender(options, name, server.into(), &ask)?);
        }
    }
    let cell = RedisCell::find()?;
    println!("redis-cell is {}.\n", cell.version);
    let cell = Rc::new(Server::Other(redis::start("redis-cell", Some(&cell), core)?));
    contenders.extend(contender(options, REDIS_CELL, cell, &throttle(&[]))?);
    let plain = Rc::new(Server::Other(redis::start("redis-server", None, core)?));
    contenders.extend(contender(options, REDIS_INCR, Rc::clone(&plain), &["INCR", KEY])?);
    contenders.extend(contender(options, REDIS_PING, plain, &["PING"])?);
    let floor = Rc::new(Server::Other(floor::start(core)?));
    contenders.extend(contender(options, FLOOR, floor, &throttle(&[]))?);
    Ok(contenders)
}

/// One that answers without an error; another is named and left out.
fn contender(
    options: &Options,
    name: &'static str,
    server: Rc<Server>,
    ask: &[&str],
) -> Outcome<Option<Contender>> {
    let address = server.process().address;
    let broken = |problem: &dyn std::fmt::Display| format!("{name}: {problem}");
    let first =
        Client::connect(address).and_then(|mut client| client.call(ask)).map_err(|error| broken(&error))?;
    if let Reply::Error(error) = first {
        println!("{name} is left out, as it answers: {error}\n");
        return Ok(None);
    }
    let connections = options.connections.unwrap_or(50);
    let mut load = Load::connect(address, connections).map_err(|problem| broken(&problem))?;
    // Filled with a hundred units a key where the command takes a cost, so that no key recovers
    // during the run.
    let filler: Option<Vec<&str>> = match name {
        OURS | REDIS_CELL => Some(throttle(&["100"])),
        OURS_BY_RULE => Some(by_rule(&["COST", "100"])),
        REDIS_INCR => Some(ask.to_vec()),
        _ => None,
    };
    let before = server.process().memory();
    if let Some(words) = &filler {
        let mut keys = Fresh { template: Template::new(words), from: 0 };
        let tally = load.run(&mut keys, 64, Until::Sent(options.keys)).map_err(|problem| broken(&problem))?;
        if tally.errors > 0 {
            return Err(format!("{name}: {} errors while the keys were put in", tally.errors));
        }
    }
    let grown = server.process().memory() - before;
    let bytes_a_key = filler.map(|_| grown / options.keys as f64);
    let requests = Prepared::new(&Template::new(ask), options.keys);
    Ok(Some(Contender { name, load, requests, server, bytes_a_key }))
}

/// `CL.THROTTLE key 10000 1000 86400`, and more words.
fn throttle(more: &[&'static str]) -> Vec<&'static str> {
    [&["CL.THROTTLE", requests::KEY][..], &THROTTLE, more].concat()
}

/// `RL.CHECK bench key`, and more words.
fn by_rule(more: &[&'static str]) -> Vec<&'static str> {
    [&["RL.CHECK", "bench", requests::KEY][..], more].concat()
}
