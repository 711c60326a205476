//! `RL.ACQUIRE`, `RL.RENEW` and `RL.RELEASE`: leases, of which so many may be out at once.

use super::super::codec::{Command, Replies};
use super::super::session::Session;
use super::arguments::{options, target, text, whole};
use super::limiting::{self, DECISION, cost_and_max_wait, decision};
use super::rejection::Rejection;
use crate::service::Service;
use sluicegate::{Span, Time};

/// What taking a lease needs: the session remembers it until its client has been told.
pub(super) struct Turn<'t> {
    pub(super) now: Time,
    pub(super) session: &'t mut Session,
    pub(super) replies: &'t mut Replies,
    pub(super) service: &'t Service,
}

/// Whether somebody stands in line who says MAXWAIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Patience {
    InLine,
    /// It is answered at once, whatever it says.
    None,
}

/// Whether `RL.ACQUIRE` may have to wait: it says so, and says it right. Mistakes are told at once.
pub(super) fn waits(command: Command<'_>) -> bool {
    let Ok([_, Some(max_wait)]) = options(command, 3, ["COST", "MAXWAIT"]) else { return false };
    whole(max_wait, "").is_ok_and(|ms| ms > 0)
}

pub(super) async fn acquire(
    command: Command<'_>,
    turn: Turn<'_>,
    patience: Patience,
) -> Result<(), Rejection> {
    let Turn { now, session, replies, service } = turn;
    let target = target(command)?;
    let (cost, max_wait) = cost_and_max_wait(command, &service.engine)?;
    let said = service.limits.wait_for_lease(max_wait.unwrap_or(Span::ZERO))?;
    let max_wait = if patience == Patience::InLine { said } else { Span::ZERO };
    // The future of a shared store's client is large, and most connections never need it.
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

pub(super) async fn renew(command: Command<'_>, turn: limiting::Turn<'_>) -> Result<(), Rejection> {
    let limiting::Turn { now, engine, replies } = turn;
    let done = engine.renew(target(command)?, lease(command)?, now).await?;
    replies.integer(u8::from(done));
    Ok(())
}

pub(super) async fn release(command: Command<'_>, turn: limiting::Turn<'_>) -> Result<(), Rejection> {
    let limiting::Turn { now, engine, replies } = turn;
    let done = engine.release(target(command)?, lease(command)?, now).await?;
    replies.integer(u8::from(done));
    Ok(())
}

fn lease(command: Command<'_>) -> Result<&str, Rejection> {
    text(command.get(3).unwrap_or_default(), "lease")
}
