//! The state of a client connection.

use super::transaction::Transaction;
use super::undelivered::UndeliveredLeases;
use crate::engine::RuleCache;
use crate::net::Peer;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The state of a client connection.
pub(super) struct Session {
    /// Unique within this process.
    pub(super) id: u64,
    /// Where the client connects from.
    pub(super) peer: Peer,
    /// `true` if the client has authenticated, or no password is configured.
    pub(super) authenticated: bool,
    /// Wrong passwords since the last right one. Neither `RESET` nor `HELLO` clears it.
    pub(super) wrong_passwords: u8,
    /// The name that the client gave itself.
    pub(super) name: Box<str>,
    pub(super) library_name: Box<str>,
    pub(super) library_version: Box<str>,
    /// The rules that its calls have used recently.
    pub(super) cache: RuleCache,
    /// Leases in replies that are not sent yet.
    pub(super) undelivered: UndeliveredLeases,
    /// The commands since `MULTI`. Boxed because most connections never send it.
    pub(super) transaction: Option<Box<Transaction>>,
    /// The client has sent `QUIT`; later commands are not answered.
    pub(super) leaving: bool,
}

impl Session {
    /// The state of a client that has just connected.
    pub(super) fn new(peer: Peer, authenticated: bool) -> Session {
        Session {
            // Relaxed: the id must be unique, and orders nothing.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            peer,
            authenticated,
            wrong_passwords: 0,
            name: Box::default(),
            library_name: Box::default(),
            library_version: Box::default(),
            cache: RuleCache::default(),
            undelivered: UndeliveredLeases::default(),
            transaction: None,
            leaving: false,
        }
    }
}
