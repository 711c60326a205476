//! The memory of a connection: the buffer grows with what has arrived, never with what was
//! announced, and what a burst needed is given back when the client falls silent.

use super::Connection;

/// What is held for a silent client: enough for what most send at once.
pub(super) const READ_LEN_MIN: usize = 1024;
/// A client that fills its buffer is read in larger pieces, up to this.
pub(super) const READ_LEN_MAX: usize = 64 * 1024;

impl<S> Connection<'_, S> {
    /// Makes room to read into.
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

    /// Removes the bytes of commands that are answered.
    pub(super) fn drop_answered(&mut self) {
        self.buffer.drain(..self.parser.used());
        self.parser.removed();
    }

    /// Whether there is memory that a silent client does not need.
    pub(super) fn holds_much(&self) -> bool {
        self.buffer.capacity().max(self.replies.held()).max(self.parser.held()) > READ_LEN_MIN
    }

    /// Gives back what a burst has needed. (No command has begun: that has another deadline.)
    pub(super) fn shrink(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(READ_LEN_MIN);
        self.parser.shrink();
        self.replies.shrink();
    }
}
