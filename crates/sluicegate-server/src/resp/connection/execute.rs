//! Runs the commands that `MULTI` queued.

use super::{BATCH_MAX, Connection};
use crate::net::Stream;
use crate::protocol::Protocol;
use crate::resp::handler::{self, Answered, NextAction};
use crate::resp::transaction::Transaction;
use tokio::time::Instant;

impl<S: Stream> Connection<'_, S> {
    /// Answers the commands of a transaction in order, as those of a pipeline: in batches, and no
    /// more than `unread_replies_max` bytes of replies are pending. Returns `false` if the client
    /// is gone.
    pub(super) async fn execute(&mut self, transaction: &Transaction) -> bool {
        let (commands, unread_max) = (transaction.commands(), self.service.limits.unread_replies_max);
        let mut answered = 0;
        while answered < commands.len() && !self.session.leaving {
            let began = Instant::now();
            let (session, replies) = (&mut self.session, &mut self.replies);
            let batch = (commands.before(answered + BATCH_MAX), answered);
            let Answered { commands: mut some, then, .. } =
                handler::answer(batch, unread_max, session, replies, self.service).await;
            if matches!(then, NextAction::Wait)
                && let Some(command) = commands.get(answered + some)
            {
                handler::answer_without_waiting(command, session, replies, self.service).await;
                some += 1;
            }
            answered += some;
            let requests = u64::try_from(some).unwrap_or(u64::MAX);
            self.service.metrics.answered(Protocol::Resp, requests, began.elapsed());
            if self.replies.bytes().len() >= unread_max && !self.flush().await {
                return false;
            }
        }
        true
    }
}
