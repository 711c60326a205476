//! The memory of a connection: the buffer grows with the bytes that have arrived, never with the
//! lengths a client announces, and is shrunk when the client falls silent.

use super::Connection;

/// The buffer of a silent client: enough for what most clients send at once.
pub(super) const READ_LEN_MIN: usize = 1024;
/// The largest read. The buffer of a client that fills it grows up to this size.
pub(super) const READ_LEN_MAX: usize = 64 * 1024;

impl<S> Connection<'_, S> {
    /// Makes room for the next read.
    pub(super) fn make_room(&mut self) {
        let was_filled = self.buffer.len() == self.buffer.capacity();
        self.drop_answered();
        let wanted = match self.buffer.capacity() {
            0 => READ_LEN_MIN,
            held if was_filled && held < READ_LEN_MAX => held * 4,
            held if self.buffer.len() == held => held * 2,
            _ => return,
        };
        self.buffer.reserve_exact(wanted - self.buffer.len());
    }

    /// Drops the bytes of answered commands.
    pub(super) fn drop_answered(&mut self) {
        self.buffer.drain(..self.parser.used());
        self.parser.removed();
    }

    /// Returns `true` if the connection holds more memory than a silent client needs.
    pub(super) fn holds_much(&self) -> bool {
        self.buffer.capacity().max(self.replies.held()).max(self.parser.held()) > READ_LEN_MIN
    }

    /// Frees the memory of a burst. No command is incomplete: that would be another timeout.
    pub(super) fn shrink(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(READ_LEN_MIN);
        self.parser.shrink();
        self.replies.shrink();
    }
}
