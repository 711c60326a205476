//! Real Redis and Valkey servers for tests and benchmarks, on free loopback ports.
//!
//! In plain words: a test that says `Server::start(&Options::redis())` has a server of its own until the value is dropped. Nothing is
//! installed, no port is fixed, data is in a temporary folder that goes away with the server. Should the test process die
//! without dropping anything, a watchdog ends its servers: see `watchdog.rs`.
//!
//! [`Server`] is one server, [`Replicated`] a master with its replica, [`Sentinels`] the same under three sentinels, [`Cluster`]
//! several masters that share the slots, and [`Proxy`] a connection that can be cut, held, delayed or made to lose replies.
//!
//! What cannot be done panics and says why: this is for tests, where nobody could do better with an error.

#![allow(clippy::missing_panics_doc, reason = "everything here panics when it cannot be done")]

mod client;
mod cluster;
mod folder;
mod options;
mod ports;
mod proxy;
mod replicated;
mod sentinels;
mod server;
mod valkey;
mod wait;
mod watchdog;

pub use client::{Client, Reply};
pub use cluster::Cluster;
pub use options::Options;
pub use proxy::Proxy;
pub use replicated::Replicated;
pub use sentinels::Sentinels;
pub use server::Server;
pub use valkey::valkey;
pub use wait::until;
