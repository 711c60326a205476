//! The scripts, and one call of one of them.

use redis::Cmd;
use sluicegate::Time;
use std::sync::LazyLock;

/// A script: its text, and the name by which a server knows it once it is loaded.
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

/// One script call, ready to be sent: `EVALSHA sha n key... argument...`.
pub(crate) struct ScriptCall {
    /// To be loaded where the server does not know it.
    pub(crate) script: &'static LazyLock<Script>,
    pub(crate) command: Cmd,
    /// The first key: in a cluster it says where to go, and all others have to be there too.
    pub(crate) key: Vec<u8>,
}

impl ScriptCall {
    /// A call on some keys, of which there is at least one. Arguments follow with [`ScriptCall::arg`].
    pub(crate) fn new(script: &'static LazyLock<Script>, keys: &[impl AsRef<[u8]>]) -> ScriptCall {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&script.sha).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        ScriptCall { script, command, key: keys.first().map(|key| key.as_ref().to_vec()).unwrap_or_default() }
    }

    /// Adds the time of the call, which is the first argument of every script; `None` is the server's.
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
