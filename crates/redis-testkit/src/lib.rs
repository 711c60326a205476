//! Real Redis and Valkey servers for tests and benchmarks, on free loopback ports.
//!
//! `Server::start(&Options::redis())` starts a server that lives until the value is dropped.
//! Nothing is installed, no port is fixed, and the data is in a temporary folder that is removed
//! with the server. If the test process dies without dropping anything, a watchdog kills its
//! servers: see `watchdog.rs`.
//!
//! [`Server`] is a single server, [`Replicated`] a master with a replica, [`Sentinels`] the same
//! under three sentinels, [`Cluster`] a cluster, and [`Proxy`] a connection that can be cut, held,
//! delayed or made to lose replies.
//!
//! Failures panic with a reason: a test could not handle an error better.

#![allow(clippy::missing_panics_doc, reason = "everything here panics on failure")]

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
