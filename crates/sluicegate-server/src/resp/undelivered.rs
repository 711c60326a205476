//! Undelivered leases: those in replies that are on their way to a client.
//!
//! When all of a reply has been handed to the system, its client may have read it and be at work:
//! the lease is the client's. Before, the client cannot know it, and if it goes the lease is
//! released.

use crate::engine::UndeliveredLease;

/// The leases in replies that wait to be sent. On drop, those are released whose replies are not
/// sent.
#[derive(Default)]
pub(super) struct UndeliveredLeases(Vec<InReply>);

struct InReply {
    lease: UndeliveredLease,
    /// How many bytes are to be written until all of the reply is sent.
    left: usize,
}

impl UndeliveredLeases {
    /// The last reply that waits has this lease in it. `waiting`: how many bytes of replies wait,
    /// that one included.
    pub(super) fn add(&mut self, lease: UndeliveredLease, waiting: usize) {
        self.0.push(InReply { lease, left: waiting });
    }

    /// These many bytes more are written: a client that has been sent a reply in full may know its
    /// lease.
    pub(super) fn wrote(&mut self, bytes: usize) {
        let sent = self.0.iter().take_while(|reply| reply.left <= bytes).count();
        self.0.drain(..sent).for_each(|reply| reply.lease.delivered());
        for reply in &mut self.0 {
            reply.left -= bytes;
        }
    }
}
