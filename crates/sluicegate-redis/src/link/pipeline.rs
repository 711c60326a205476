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

use super::no_answer::NoAnswer;
use crate::script::{Script, ScriptCall};
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

/// A script call on its way to a node.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) call: &'a ScriptCall,
    /// The node does not have the hash slot yet and has to be told that we know (`ASKING`).
    pub(crate) asking: bool,
}

/// Sends calls in one write, in this order. An answer for each.
pub(crate) async fn send(
    channel: &mut Channel,
    calls: &[Outgoing<'_>],
    until: Instant,
) -> Vec<Result<Value, NoAnswer>> {
    if let [Outgoing { call, asking: false }] = calls {
        // A single call needs no pipeline, no copy of its command, and no look at which scripts are known.
        let sent = timeout_at(until, channel.connection.send_packed_command(&call.command)).await;
        match in_time(sent).and_then(NoAnswer::or_answer) {
            Err(NoAnswer::NoScript(_)) => channel.known().clear(),
            answer => return vec![answer],
        }
    }
    let mut answers = vec![Err(NoAnswer::Late); calls.len()];
    let mut pending: Vec<usize> = (0..calls.len()).collect();
    let mut loads = 0;
    while !pending.is_empty() {
        let write = Write::new(calls, &pending, &channel.known());
        let pipeline = &write.pipeline;
        let sent = timeout_at(until, channel.connection.send_packed_commands(pipeline, 0, pipeline.len()));
        let replies = match in_time(sent.await) {
            Ok(replies) => replies,
            // Calls of earlier writes keep their answers.
            Err(none) => {
                for index in pending {
                    answers[index] = Err(none.clone());
                }
                return answers;
            }
        };
        let mut missing = Vec::new();
        let mut found = Vec::new();
        for (&index, answer) in pending.iter().zip(write.read(calls, &pending, replies)) {
            match answer {
                Err(NoAnswer::NoScript(_)) => missing.push(index),
                Ok(_) => add(&mut found, calls[index].call.script),
                Err(_) => {}
            }
            answers[index] = answer;
        }
        let mut known = channel.known();
        if missing.is_empty() {
            for script in found {
                add(&mut known, script);
            }
        } else {
            // SCRIPT FLUSH removes all scripts, not one.
            known.clear();
        }
        pending = if loads < LOADS_MAX { missing } else { Vec::new() };
        loads += 1;
    }
    answers
}

/// One write: the scripts to load, then the calls.
struct Write {
    scripts: Vec<&'static Script>,
    pipeline: Pipeline,
}

impl Write {
    fn new(calls: &[Outgoing<'_>], pending: &[usize], known: &[&'static Script]) -> Write {
        let mut scripts: Vec<&'static Script> = Vec::new();
        let mut pipeline = Pipeline::with_capacity(pending.len());
        for &index in pending {
            let script: &'static Script = calls[index].call.script;
            if !has(known, script) {
                add(&mut scripts, script);
            }
        }
        for script in &scripts {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text());
        }
        for &index in pending {
            if calls[index].asking {
                pipeline.add_command(Cmd::new().arg("ASKING").to_owned());
            }
            pipeline.add_command(calls[index].call.command.clone());
        }
        Write { scripts, pipeline }
    }

    /// An answer for each of the pending. If its script was refused, that is the reason: the server's words
    /// about the script ("no permission") help more than that it is missing.
    fn read(
        &self,
        calls: &[Outgoing<'_>],
        pending: &[usize],
        replies: Vec<Value>,
    ) -> Vec<Result<Value, NoAnswer>> {
        let mut replies = replies.into_iter();
        let mut refused: Vec<(&'static Script, String)> = Vec::new();
        for script in &self.scripts {
            if let Some(Err(NoAnswer::Refused(said))) = replies.next().map(NoAnswer::or_answer) {
                refused.push((script, said));
            }
        }
        let answer = |&index: &usize| {
            let Outgoing { call, asking } = calls[index];
            if asking {
                replies.next();
            }
            match replies.next().map(NoAnswer::or_answer) {
                None => Err(NoAnswer::Lost("the server sent fewer replies than there were calls".to_owned())),
                Some(Err(NoAnswer::NoScript(said))) => {
                    let script: &'static Script = call.script;
                    Err(match refused.iter().find(|(known, _)| std::ptr::eq(*known, script)) {
                        Some((_, why)) => NoAnswer::Refused(why.clone()),
                        None => NoAnswer::NoScript(said),
                    })
                }
                Some(answer) => answer,
            }
        };
        pending.iter().map(answer).collect()
    }
}

fn in_time<T>(sent: Result<redis::RedisResult<T>, tokio::time::error::Elapsed>) -> Result<T, NoAnswer> {
    match sent {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(NoAnswer::Lost(error.to_string())),
        Err(_) => Err(NoAnswer::Late),
    }
}
