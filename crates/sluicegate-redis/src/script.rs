//! Scripts and script calls.

use redis::Cmd;
use sluicegate::Time;
use std::sync::LazyLock;

/// A script: its text, and the hash that names it once it is loaded.
pub(crate) struct Script {
    text: String,
    sha: String,
}

impl Script {
    pub(crate) fn new(text: String) -> Script {
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Script { text, sha }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// A script call: `EVALSHA sha n key... argument...`.
pub(crate) struct ScriptCall {
    /// Loaded if the server does not have it.
    pub(crate) script: &'static LazyLock<Script>,
    pub(crate) command: Cmd,
    /// The first key, which routes the call in a cluster; all other keys must be in its slot.
    pub(crate) key: Vec<u8>,
}

impl ScriptCall {
    /// A call on these keys. Arguments follow with [`ScriptCall::arg`].
    pub(crate) fn new(script: &'static LazyLock<Script>, keys: &[impl AsRef<[u8]>]) -> ScriptCall {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&script.sha).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        ScriptCall { script, command, key: keys.first().map(|key| key.as_ref().to_vec()).unwrap_or_default() }
    }

    /// Adds the time of the call, the first argument of every script; `None` is the server's time.
    pub(crate) fn at(mut self, at: Option<Time>) -> ScriptCall {
        match at {
            Some(at) => self.command.arg(at.as_micros()),
            None => self.command.arg(""),
        };
        self
    }

    pub(crate) fn arg(&mut self, argument: impl redis::ToRedisArgs) -> &mut ScriptCall {
        self.command.arg(argument);
        self
    }
}
