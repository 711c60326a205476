//! Script calls over one connection, and scripts that the server turns out not to know.
//!
//! A call names its script. A server that was restarted, promoted or told `SCRIPT FLUSH` answers NOSCRIPT,
//! which proves that nothing ran: then the script is loaded and the call sent once more, both in one write.
//! Nothing else is ever sent twice here.
//!
//! Order     Calls that are sent together run in their order. A call that has to be sent once more would run after those
//!           behind it, so scripts that the server is not known to have are loaded in front of the calls, in the same
//!           write. What is left is somebody who says `SCRIPT FLUSH` between two writes: then calls of a script that was
//!           loaded again in the meantime may run before others on the same key. Each is still charged once.

use super::reply::Reply;
use crate::script::{Script, Trip};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::{Instant, timeout_at};

/// How often scripts are loaded for one call. More than once helps only if somebody flushes them all the time.
const LOADS_MAX: usize = 3;

/// A connection, and the scripts that its server is known to have. A new one knows of none.
#[derive(Clone)]
pub(crate) struct Channel {
    connection: MultiplexedConnection,
    known: Arc<Mutex<Vec<&'static Script>>>,
}

impl Channel {
    pub(crate) fn new(connection: MultiplexedConnection) -> Channel {
        Channel { connection, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, Vec<&'static Script>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a script to some, each once.
fn add(scripts: &mut Vec<&'static Script>, script: &'static Script) {
    if !has(scripts, script) {
        scripts.push(script);
    }
}

fn has(scripts: &[&'static Script], script: &'static Script) -> bool {
    scripts.iter().any(|other| std::ptr::eq(*other, script))
}

/// A call on its way to a node.
#[derive(Clone, Copy)]
pub(crate) struct Parcel<'a> {
    pub(crate) trip: &'a Trip,
    /// Whether the node does not have the slot yet and has to be told that we know (`ASKING`).
    pub(crate) asking: bool,
}

/// No reply came. The call may have been charged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unanswered {
    Late,
    Lost(String),
}

/// Sends a call.
pub(crate) async fn ship(
    channel: &mut Channel,
    parcel: Parcel<'_>,
    until: Instant,
) -> Result<Reply, Unanswered> {
    if !parcel.asking {
        // The way of nearly every call: no pipeline, no copy of the command, and no look at what is known.
        let sent = timeout_at(until, channel.connection.send_packed_command(&parcel.trip.command)).await;
        match Reply::read(in_time(sent)?) {
            Reply::NoScript(_) => channel.known().clear(),
            reply => return Ok(reply),
        }
    }
    let replies = ship_each(channel, &[parcel], until).await;
    replies.into_iter().next().unwrap_or(Err(Unanswered::Late))
}

/// Sends several calls in one write, in this order. A reply for each.
pub(crate) async fn ship_each(
    channel: &mut Channel,
    parcels: &[Parcel<'_>],
    until: Instant,
) -> Vec<Result<Reply, Unanswered>> {
    let mut replies: Vec<Result<Reply, Unanswered>> = Vec::new();
    replies.resize_with(parcels.len(), || Err(Unanswered::Late));
    let mut pending: Vec<usize> = (0..parcels.len()).collect();
    let mut rounds = 0;
    while !pending.is_empty() {
        let round = Round::new(parcels, &pending, &channel.known());
        let pipeline = &round.pipeline;
        let sent = timeout_at(until, channel.connection.send_packed_commands(pipeline, 0, pipeline.len()));
        let values = match in_time(sent.await) {
            Ok(values) => values,
            // Those of earlier rounds keep their replies.
            Err(unanswered) => {
                for index in pending {
                    replies[index] = Err(unanswered.clone());
                }
                return replies;
            }
        };
        let mut missing = Vec::new();
        let mut found = Vec::new();
        for (&index, reply) in pending.iter().zip(round.read(parcels, &pending, values)) {
            match reply {
                Ok(Reply::NoScript(_)) => missing.push(index),
                Ok(Reply::Answer(_)) => add(&mut found, parcels[index].trip.script),
                _ => {}
            }
            replies[index] = reply;
        }
        let mut known = channel.known();
        if missing.is_empty() {
            for script in found {
                add(&mut known, script);
            }
        } else {
            // Whoever flushed one has flushed all.
            known.clear();
        }
        pending = if rounds < LOADS_MAX { missing } else { Vec::new() };
        rounds += 1;
    }
    replies
}

/// One write: the scripts to load, then the calls.
struct Round {
    scripts: Vec<&'static Script>,
    pipeline: Pipeline,
}

impl Round {
    fn new(parcels: &[Parcel<'_>], pending: &[usize], known: &[&'static Script]) -> Round {
        let mut scripts: Vec<&'static Script> = Vec::new();
        let mut pipeline = Pipeline::with_capacity(pending.len());
        for &index in pending {
            let script: &'static Script = parcels[index].trip.script;
            if !has(known, script) {
                add(&mut scripts, script);
            }
        }
        for script in &scripts {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text());
        }
        for &index in pending {
            if parcels[index].asking {
                pipeline.add_command(Cmd::new().arg("ASKING").to_owned());
            }
            pipeline.add_command(parcels[index].trip.command.clone());
        }
        Round { scripts, pipeline }
    }

    /// A reply for each of the pending. Where its script was refused, that is the reply: the server's words
    /// about the script ("no permission") help more than that it is missing.
    fn read(
        &self,
        parcels: &[Parcel<'_>],
        pending: &[usize],
        values: Vec<Value>,
    ) -> Vec<Result<Reply, Unanswered>> {
        let mut values = values.into_iter();
        let mut refused: Vec<(&'static Script, String)> = Vec::new();
        for script in &self.scripts {
            if let Some(Reply::Refused(said)) = values.next().map(Reply::read) {
                refused.push((script, said));
            }
        }
        let mut replies = Vec::with_capacity(pending.len());
        for &index in pending {
            let parcel = parcels[index];
            if parcel.asking {
                values.next();
            }
            let reply = match values.next().map(Reply::read) {
                None => {
                    Err(Unanswered::Lost("the server sent fewer replies than there were calls".to_owned()))
                }
                Some(Reply::NoScript(said)) => {
                    let script: &'static Script = parcel.trip.script;
                    match refused.iter().find(|(known, _)| std::ptr::eq(*known, script)) {
                        Some((_, why)) => Ok(Reply::Refused(why.clone())),
                        None => Ok(Reply::NoScript(said)),
                    }
                }
                Some(reply) => Ok(reply),
            };
            replies.push(reply);
        }
        replies
    }
}

fn in_time<T>(sent: Result<redis::RedisResult<T>, tokio::time::error::Elapsed>) -> Result<T, Unanswered> {
    match sent {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Unanswered::Lost(error.to_string())),
        Err(_) => Err(Unanswered::Late),
    }
}
