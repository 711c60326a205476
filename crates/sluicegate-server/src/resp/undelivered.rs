//! Undelivered leases: those whose replies are not fully sent.
//!
//! Once the system has taken all of a reply, the client may have read it and started its work: the
//! lease is the client's. Until then the client cannot know the lease, and if the connection
//! closes, the lease is released.

use crate::engine::UndeliveredLease;

/// The leases in pending replies. Dropping this releases them.
#[derive(Default)]
pub(super) struct UndeliveredLeases(Vec<InReply>);

struct InReply {
    lease: UndeliveredLease,
    /// The bytes still to be written until the reply is complete.
    left: usize,
}

impl UndeliveredLeases {
    /// Adds the lease in the last pending reply. `pending` is the number of bytes up to the end of
    /// that reply.
    pub(super) fn add(&mut self, lease: UndeliveredLease, pending: usize) {
        self.0.push(InReply { lease, left: pending });
    }

    /// Records that more bytes were written, and marks the leases in complete replies as delivered.
    pub(super) fn wrote(&mut self, bytes: usize) {
        let sent = self.0.iter().take_while(|reply| reply.left <= bytes).count();
        self.0.drain(..sent).for_each(|reply| reply.lease.delivered());
        for reply in &mut self.0 {
            reply.left -= bytes;
        }
    }
}
