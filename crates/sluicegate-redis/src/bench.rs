//! The script call of a check, for the benchmark that compares our scripts with others.

use crate::encode::EncodedLimit;
use crate::names::Names;
use crate::script::ScriptCall;
use redis::Arg;
use sluicegate::{Limit, Span};

/// The parts of a script call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The text of the script.
    pub script: String,
    /// The one key.
    pub key: Vec<u8>,
    /// The arguments.
    pub arguments: Vec<Vec<u8>>,
}

/// Returns the script call of a check under one limit, at the server's time. `None` for a limit
/// that cannot be shared.
pub fn check(limit: &Limit, key: &[u8], cost: u64) -> Option<Sent> {
    let encoded = EncodedLimit::new(limit, None)?;
    let name = Names::new(crate::KEY_PREFIX_DEFAULT, "bench")?.state(0, encoded.letter, key);
    let mut call = ScriptCall::new(encoded.check(), &[&name]).at(None);
    encoded.add_check(&mut call, cost, Span::ZERO, None);
    // Skips EVALSHA, the hash, the number of keys, and the key.
    let arguments = call.command.args_iter().skip(4).filter_map(|argument| match argument {
        Arg::Simple(bytes) => Some(bytes.to_vec()),
        _ => None,
    });
    Some(Sent { script: call.script.text().to_owned(), key: name, arguments: arguments.collect() })
}
