//! `RL.ACQUIRE`, `RL.RENEW` and `RL.RELEASE`: leases of `concurrency` limits.

use super::super::codec::Command;
use super::Context;
use super::arguments::{options, target, text, whole};
use super::limits::{DECISION, cost_and_max_wait, decision};
use super::rejection::Rejection;
use sluicegate::Span;

/// Whether `MAXWAIT` makes a call wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// The call waits in the key's queue.
    InQueue,
    /// The call is answered at once, as in a batch and when the server stops.
    Never,
}

/// Returns `true` if an `RL.ACQUIRE` may wait: it has a valid, nonzero `MAXWAIT`. An invalid one is
/// rejected at once.
pub(super) fn waits(command: Command<'_>) -> bool {
    let Ok([_, Some(max_wait)]) = options(command, 3, ["COST", "MAXWAIT"]) else { return false };
    whole(max_wait, "").is_ok_and(|ms| ms > 0)
}

pub(super) async fn acquire(command: Command<'_>, context: Context<'_>, wait: Wait) -> Result<(), Rejection> {
    let Context { now, session, replies, service } = context;
    let target = target(command)?;
    let (cost, max_wait) = cost_and_max_wait(command, &service.engine)?;
    let requested = service.limits.wait_for_lease(max_wait.unwrap_or(Span::ZERO))?;
    let max_wait = if wait == Wait::InQueue { requested } else { Span::ZERO };
    // Boxed because the store client's future is large and most connections never need it.
    let mut leased = Box::pin(service.engine.acquire(target, cost, max_wait, now)).await?;
    decision(&leased.decided(), DECISION + 1, replies);
    match leased.lease.take() {
        Some(lease) => {
            replies.bulk(lease.text().as_bytes());
            session.undelivered.add(lease, replies.bytes().len());
        }
        None => replies.nil(),
    }
    Ok(())
}

pub(super) async fn renew(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let done = service.engine.renew(target(command)?, lease(command)?, now).await?;
    replies.integer(u8::from(done));
    Ok(())
}

pub(super) async fn release(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let done = service.engine.release(target(command)?, lease(command)?, now).await?;
    replies.integer(u8::from(done));
    Ok(())
}

fn lease(command: Command<'_>) -> Result<&str, Rejection> {
    text(command.get(3).unwrap_or_default(), "lease")
}
