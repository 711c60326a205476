//! What is remembered of a client while it is connected.

use super::undelivered::UndeliveredLeases;
use crate::engine::RuleCache;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// One client.
pub(super) struct Session {
    /// A number that no other client of this process has had.
    pub(super) id: u64,
    /// Whether it has said the password, or needs none.
    pub(super) authenticated: bool,
    /// How many wrong passwords it has said before the right one. Neither `RESET` nor `HELLO` makes them forgotten.
    pub(super) wrong_passwords: u8,
    /// What it calls itself.
    pub(super) name: Box<str>,
    pub(super) library_name: Box<str>,
    pub(super) library_version: Box<str>,
    /// The rules that its calls have named lately.
    pub(super) cache: RuleCache,
    /// Leases that are in replies which it has not been sent yet.
    pub(super) undelivered: UndeliveredLeases,
    /// It said goodbye: what it sent afterwards is not answered.
    pub(super) leaving: bool,
}

impl Session {
    /// A client that has just connected.
    pub(super) fn new(authenticated: bool) -> Session {
        Session {
            // Only has to be unlike others; it orders nothing.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            authenticated,
            wrong_passwords: 0,
            name: Box::default(),
            library_name: Box::default(),
            library_version: Box::default(),
            cache: RuleCache::default(),
            undelivered: UndeliveredLeases::default(),
            leaving: false,
        }
    }
}
