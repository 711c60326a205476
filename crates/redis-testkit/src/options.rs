//! The options of a server.

use crate::valkey::valkey;
use std::path::PathBuf;

/// The options of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(crate) program: PathBuf,
    pub(crate) password: Option<String>,
    pub(crate) user: Option<User>,
    pub(crate) tls: bool,
    pub(crate) sentinel: bool,
    pub(crate) cluster: bool,
    /// Further lines of its configuration.
    pub(crate) lines: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: String,
    pub(crate) rules: String,
}

impl Options {
    /// A Redis server without persistence.
    pub fn redis() -> Options {
        Options::of(PathBuf::from("redis-server"))
    }

    /// A Valkey server without persistence, if one is installed. If not, stderr says so.
    pub fn valkey() -> Option<Options> {
        valkey().map(Options::of)
    }

    fn of(program: PathBuf) -> Options {
        Options {
            program,
            password: None,
            user: None,
            tls: false,
            sentinel: false,
            cluster: false,
            lines: Vec::new(),
        }
    }

    /// Requires this password.
    pub fn password(mut self, password: &str) -> Options {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds a user with these ACL rules, as in `~sluice:* +evalsha`, and uses it in the server's
    /// URL.
    pub fn user(mut self, name: &str, password: &str, rules: &str) -> Options {
        self.user =
            Some(User { name: name.to_owned(), password: password.to_owned(), rules: rules.to_owned() });
        self
    }

    /// Enables TLS with a self-signed certificate, and uses it in the server's URL.
    pub fn tls(mut self) -> Options {
        self.tls = true;
        self
    }

    /// Persists every write before it is answered, so that it survives a kill.
    pub fn append_only(self) -> Options {
        self.with("appendonly yes").with("appendfsync always")
    }

    /// Limits the data to `bytes`, without eviction.
    pub fn max_memory(self, bytes: u64) -> Options {
        self.with(&format!("maxmemory {bytes}")).with("maxmemory-policy noeviction")
    }

    /// Adds a line to the server's configuration file.
    pub fn with(mut self, line: &str) -> Options {
        self.lines.push(line.to_owned());
        self
    }

    pub(crate) fn sentinel(mut self) -> Options {
        self.sentinel = true;
        self
    }

    pub(crate) fn cluster(mut self) -> Options {
        self.cluster = true;
        self
    }
}
