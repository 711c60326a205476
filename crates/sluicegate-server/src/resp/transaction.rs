//! The commands between `MULTI` and `EXEC`. Nothing is charged before `EXEC`.

use super::codec::{Command, CommandQueue, Commands};
use std::fmt;

/// The most commands of a transaction.
pub(super) const TRANSACTION_COMMANDS_MAX: usize = 1_024;

/// The commands since `MULTI`, copied from the buffer they arrived in.
#[derive(Default, Debug)]
pub(super) struct Transaction {
    queue: CommandQueue,
    wire_len: usize,
    /// A command could not be queued, so `EXEC` will fail.
    failed: bool,
}

/// The queue of a transaction is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransactionFull {
    Commands,
    /// The most bytes of all its commands.
    Bytes(usize),
}

impl fmt::Display for TransactionFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransactionFull::Commands => {
                write!(f, "a transaction has at most {TRANSACTION_COMMANDS_MAX} commands")?;
            }
            TransactionFull::Bytes(most) => write!(f, "a transaction has at most {most} bytes")?,
        }
        f.write_str("; send EXEC earlier, or the rest without MULTI")
    }
}

impl Transaction {
    /// Queues a command, unless the transaction has failed already.
    ///
    /// # Errors
    /// If the queue is full; then the transaction has failed.
    pub(super) fn queue(&mut self, command: Command<'_>, bytes_max: usize) -> Result<(), TransactionFull> {
        if self.failed {
            return Ok(());
        }
        let wire_len = self.wire_len + command.wire_len();
        let full = if self.queue.commands().len() == TRANSACTION_COMMANDS_MAX {
            TransactionFull::Commands
        } else if wire_len > bytes_max {
            TransactionFull::Bytes(bytes_max)
        } else {
            self.queue.push(command);
            self.wire_len = wire_len;
            return Ok(());
        };
        self.fail();
        Err(full)
    }

    /// Makes `EXEC` fail, and drops the queue: its commands will not run.
    pub(super) fn fail(&mut self) {
        *self = Transaction { failed: true, ..Transaction::default() };
    }

    /// Returns `true` if `EXEC` will fail.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The queued commands.
    pub(super) fn commands(&self) -> Commands<'_> {
        self.queue.commands()
    }
}
