//! Sends script calls over one connection, and loads scripts that the server does not have.
//!
//! A call names its script by hash. A server that was restarted, promoted or received `SCRIPT
//! FLUSH` replies NOSCRIPT, which proves that nothing ran: the script is then loaded and the call
//! sent once more, in one write. Nothing else is ever sent twice here.
//!
//! **Order.** Calls of one write run in order. A call that is sent once more would run after the
//! calls behind it, so scripts that the server may lack are loaded in front of the calls, in the
//! same write. What remains is a `SCRIPT FLUSH` between two writes: calls whose script was loaded
//! again in the meantime may then run before other calls on the same key. Each is still charged
//! once.

use super::call_error::CallError;
use crate::script::{Script, ScriptCall};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::{Instant, timeout_at};

/// The most times that scripts are loaded for one call. A second time helps only against repeated
/// flushes.
const LOADS_MAX: usize = 3;

/// A connection, and the scripts that its server is known to have. A new connection assumes none.
#[derive(Clone)]
pub(crate) struct Channel {
    connection: MultiplexedConnection,
    known: Arc<Mutex<Vec<&'static Script>>>,
}

impl Channel {
    pub(crate) fn new(connection: MultiplexedConnection) -> Channel {
        Channel { connection, known: Arc::default() }
    }

    pub(crate) fn connection(&self) -> &MultiplexedConnection {
        &self.connection
    }

    fn known(&self) -> MutexGuard<'_, Vec<&'static Script>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a script unless it is in the list.
fn add(scripts: &mut Vec<&'static Script>, script: &'static Script) {
    if !has(scripts, script) {
        scripts.push(script);
    }
}

fn has(scripts: &[&'static Script], script: &'static Script) -> bool {
    scripts.iter().any(|other| std::ptr::eq(*other, script))
}

/// A script call to one node.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) call: &'a ScriptCall,
    /// The node is about to receive the hash slot, so `ASKING` must precede the call.
    pub(crate) asking: bool,
}

/// Sends calls in one write, in order, and returns an answer for each.
pub(crate) async fn send(
    channel: &mut Channel,
    calls: &[Outgoing<'_>],
    until: Instant,
) -> Vec<Result<Value, CallError>> {
    if let [Outgoing { call, asking: false }] = calls {
        // A single call needs no pipeline, no copy of its command and no lock on the known scripts.
        let sent = timeout_at(until, channel.connection.send_packed_command(&call.command)).await;
        match answer_in_time(sent).and_then(CallError::read) {
            Err(CallError::NoScript(_)) => channel.known().clear(),
            answer => return vec![answer],
        }
    }
    let mut answers = vec![Err(CallError::TimedOut); calls.len()];
    let mut pending: Vec<usize> = (0..calls.len()).collect();
    let mut loads = 0;
    while !pending.is_empty() {
        let write = Write::new(calls, &pending, &channel.known());
        let pipeline = &write.pipeline;
        let sent = timeout_at(until, channel.connection.send_packed_commands(pipeline, 0, pipeline.len()));
        let replies = match answer_in_time(sent.await) {
            Ok(replies) => replies,
            // Calls answered by earlier writes keep their answers.
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
                Err(CallError::NoScript(_)) => missing.push(index),
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

/// One write: scripts to load, then the calls.
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

    /// Returns an answer for each pending call. If loading its script was rejected, that is the
    /// reason: "no permission" helps more than "no such script".
    fn read(
        &self,
        calls: &[Outgoing<'_>],
        pending: &[usize],
        replies: Vec<Value>,
    ) -> Vec<Result<Value, CallError>> {
        let mut replies = replies.into_iter();
        let mut rejected: Vec<(&'static Script, String)> = Vec::new();
        for script in &self.scripts {
            if let Some(Err(CallError::Rejected(message))) = replies.next().map(CallError::read) {
                rejected.push((script, message));
            }
        }
        let answer = |&index: &usize| {
            let Outgoing { call, asking } = calls[index];
            if asking {
                replies.next();
            }
            match replies.next().map(CallError::read) {
                None => Err(CallError::Disconnected(
                    "the server sent fewer replies than there were calls".to_owned(),
                )),
                Some(Err(CallError::NoScript(message))) => {
                    let script: &'static Script = call.script;
                    Err(match rejected.iter().find(|(known, _)| std::ptr::eq(*known, script)) {
                        Some((_, why)) => CallError::Rejected(why.clone()),
                        None => CallError::NoScript(message),
                    })
                }
                Some(answer) => answer,
            }
        };
        pending.iter().map(answer).collect()
    }
}

fn answer_in_time<T>(
    sent: Result<redis::RedisResult<T>, tokio::time::error::Elapsed>,
) -> Result<T, CallError> {
    match sent {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(CallError::Disconnected(error.to_string())),
        Err(_) => Err(CallError::TimedOut),
    }
}
