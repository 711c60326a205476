//! `MULTI`, `EXEC` and `DISCARD`: commands are queued, then answered in order. Each is decided by
//! itself, so calls of other clients may come in between.

use super::super::codec::{Command, Commands};
use super::super::commands::CommandId;
use super::super::transaction::Transaction;
use super::{Answered, Context, NextAction, Rejection, find, handshake, reject};

/// Queues the commands from an index on, until one ends the transaction.
pub(super) fn queue(
    (commands, from): (Commands<'_>, usize),
    unread_max: usize,
    context: Context<'_>,
) -> Answered {
    let Context { now, session, replies, service } = context;
    let mut answered = Answered::default();
    while let Some(command) = commands.get(from + answered.commands)
        && let Some(mut transaction) = session.transaction.take()
    {
        answered.commands += 1;
        match next(command, &mut transaction, service.limits.command_len_max) {
            Ok(TransactionStep::Queued) => {
                replies.simple("QUEUED");
                answered.queued += 1;
                session.transaction = Some(transaction);
            }
            Ok(TransactionStep::Execute) => {
                replies.array(transaction.commands().len());
                answered.then = NextAction::Execute(transaction);
            }
            Ok(TransactionStep::Discarded) => replies.simple("OK"),
            Ok(TransactionStep::Quit) => handshake::quit(Context { now, session, replies, service }),
            Ok(TransactionStep::Reset) => handshake::reset(Context { now, session, replies, service }),
            Err((rejection, ends)) => {
                reject(&rejection, replies, service);
                session.transaction = (!ends).then_some(transaction);
            }
        }
        if replies.bytes().len() >= unread_max {
            break;
        }
    }
    answered
}

/// `MULTI`: starts a transaction.
pub(super) fn multi(Context { session, replies, .. }: Context<'_>) {
    session.transaction = Some(Box::default());
    replies.simple("OK");
}

/// What a command does to a transaction.
enum TransactionStep {
    Queued,
    Execute,
    Discarded,
    Quit,
    Reset,
}

/// Queues a command, or says how it ends the transaction. An error says whether it does.
fn next(
    command: Command<'_>,
    transaction: &mut Transaction,
    bytes_max: usize,
) -> Result<TransactionStep, (Rejection, bool)> {
    let id = match find(command) {
        Ok(spec) => spec.id,
        Err(rejection) => {
            transaction.fail();
            let is_exec = command.get(0).is_some_and(|name| name.eq_ignore_ascii_case(b"EXEC"));
            return Err((rejection, is_exec));
        }
    };
    match id {
        CommandId::Exec if transaction.has_failed() => {
            Err((Rejection::line("EXECABORT Transaction discarded because of previous errors."), true))
        }
        CommandId::Exec => Ok(TransactionStep::Execute),
        CommandId::Discard => Ok(TransactionStep::Discarded),
        CommandId::Quit => Ok(TransactionStep::Quit),
        CommandId::ResetConnection => Ok(TransactionStep::Reset),
        CommandId::Multi => Err((Rejection::line("ERR MULTI calls can not be nested"), false)),
        _ => match transaction.queue(command, bytes_max) {
            Ok(()) => Ok(TransactionStep::Queued),
            Err(full) => Err((Rejection::error(format_args!("{full}")), false)),
        },
    }
}
