//! Leases in replies that are on their way to a client.
//!
//! When all of a reply has been handed to the system, its client may have read it and be at work: the lease is the client's.
//! Before, the client cannot know it, and if it goes the lease is given back.

use crate::engine::UndeliveredLease;

/// The leases in replies that wait to be sent. Dropped, those are given back whose replies are not out.
#[derive(Default)]
pub(super) struct Owed(Vec<InReply>);

struct InReply {
    lease: UndeliveredLease,
    /// How many bytes are to be written until all of the reply is out.
    left: usize,
}

impl Owed {
    /// The last reply that waits has this lease in it. `waiting`: how many bytes of replies wait, that one included.
    pub(super) fn add(&mut self, lease: UndeliveredLease, waiting: usize) {
        self.0.push(InReply { lease, left: waiting });
    }

    /// So many bytes more are written: a client that has been sent a reply in full may know its lease.
    pub(super) fn wrote(&mut self, bytes: usize) {
        let out = self.0.iter().take_while(|reply| reply.left <= bytes).count();
        self.0.drain(..out).for_each(|reply| reply.lease.delivered());
        for reply in &mut self.0 {
            reply.left -= bytes;
        }
    }
}
