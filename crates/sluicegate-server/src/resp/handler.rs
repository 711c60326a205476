//! Commands to replies.
//!
//! Commands that arrive together form a batch. The calls of all its checks are made before the
//! first is decided, so that their cache misses overlap. Commands are then answered in order and at
//! one reading of the clock; each sees the charges of those before it. Consecutive checks are
//! decided together: in a shared store they share a round trip. A command that arrives alone is a
//! batch of one.

mod arguments;
mod client;
mod handshake;
mod introspection;
mod leases;
mod limits;
mod rejection;
mod reservations;
mod transaction;

use self::leases::Wait;
use self::limits::DECISION;
use self::rejection::Rejection;
use super::codec::{Command, Commands, Replies, Shown};
use super::commands::{self, CommandId, CommandSpec};
use super::session::Session;
use super::transaction::Transaction;
use crate::engine::{Decided, Engine, RequestError, RuleCache, RuleCall, decide};
use crate::protocol::Protocol;
use crate::service::Service;
use sluicegate::Time;

/// A command of a batch, ready to be answered.
enum Step<'a> {
    /// A check whose rule has been found.
    Check(RuleCall<'a>),
    Throttle(RuleCall<'a>),
    /// Any other command.
    Other(&'static CommandSpec, Command<'a>),
    Rejected(Rejection),
}

/// What answering a command needs: the time of its batch, the client, and where to write the reply.
struct Context<'c> {
    now: Time,
    session: &'c mut Session,
    replies: &'c mut Replies,
    service: &'c Service,
}

/// The longest reply to a check, in bytes: an error. Bounds how many checks are decided together.
const CHECK_REPLY_LEN_MAX: usize = 512;

/// How many commands were answered.
#[derive(Default)]
pub(super) struct Answered {
    pub(super) commands: usize,
    /// How many of them were queued. They count as answered when they run.
    pub(super) queued: usize,
    pub(super) then: NextAction,
}

/// What the connection does after that.
#[derive(Default)]
pub(super) enum NextAction {
    /// Answers the next command.
    #[default]
    Continue,
    /// The next command may wait for a lease: send the replies, then call [`wait_for_lease`].
    Wait,
    /// The last command was `EXEC`: answer these commands.
    Execute(Box<Transaction>),
}

/// Answers the commands from an index on, until the client quits, a command may wait for a lease,
/// or `unread_max` bytes of replies are pending.
pub(super) async fn answer(
    (commands, from): (Commands<'_>, usize),
    unread_max: usize,
    session: &mut Session,
    replies: &mut Replies,
    service: &Service,
) -> Answered {
    let engine = &*service.engine;
    if session.transaction.is_some() {
        let context = Context { now: engine.now(), session, replies, service };
        return transaction::queue((commands, from), unread_max, context);
    }
    let (len, mut commands) =
        (commands.len(), (from..commands.len()).filter_map(|index| commands.get(index)));
    // A client that is not authenticated learns nothing about rules.
    let authenticated = session.authenticated;
    let mut step = |command| match Step::find(command) {
        Step::Other(spec, command) if authenticated => Step::call(spec, command, engine, &mut session.cache),
        step => step,
    };
    // Most batches are a single command, which needs no allocation.
    let (lone, batch): ([Step<'_>; 1], Vec<Step<'_>>);
    let steps: &[Step<'_>] = match commands.next() {
        None => &[],
        Some(command) if from + 1 == len => {
            lone = [step(command)];
            &lone
        }
        Some(command) => {
            batch = std::iter::once(command).chain(commands).map(step).collect();
            &batch
        }
    };
    for call in steps.iter().filter_map(Step::as_call) {
        call.touch();
    }
    let now = engine.now();
    let mut rest = steps;
    let mut then = NextAction::Continue;
    while let [step, others @ ..] = rest {
        if step.waits(session) {
            then = NextAction::Wait;
            break;
        }
        if step.as_call().is_some() && session.authenticated {
            let most = (unread_max.saturating_sub(replies.bytes().len()) / CHECK_REPLY_LEN_MAX).max(1);
            let mut decided = rest.iter();
            decide(rest.iter().map_while(Step::as_call).take(most), now, |answer| {
                if let Some(step) = decided.next() {
                    step.reply(answer, replies, service);
                }
            })
            .await;
            rest = decided.as_slice();
        } else {
            step.answer(Context { now, session, replies, service }).await;
            rest = others;
        }
        // AUTH, RESET and MULTI change how the remaining commands are looked up.
        let is_stale = session.authenticated != authenticated || session.transaction.is_some();
        if session.leaving || is_stale || replies.bytes().len() >= unread_max {
            break;
        }
    }
    session.cache.flush();
    Answered { commands: steps.len() - rest.len(), queued: 0, then }
}

/// Answers a command that may wait for a lease. If the future is dropped, the call leaves the
/// queue.
pub(super) async fn wait_for_lease(
    command: Command<'_>,
    session: &mut Session,
    replies: &mut Replies,
    service: &Service,
) {
    let context = Context { now: service.engine.now(), session, replies, service };
    if let Err(rejection) = leases::acquire(command, context, Wait::InQueue).await {
        reject(&rejection, replies, service);
    }
}

/// Answers such a command without waiting: the server is stopping, or the command was queued.
pub(super) async fn answer_without_waiting(
    command: Command<'_>,
    session: &mut Session,
    replies: &mut Replies,
    service: &Service,
) {
    let context = Context { now: service.engine.now(), session, replies, service };
    Step::find(command).answer(context).await;
}

impl<'a> Step<'a> {
    /// Looks a command up.
    fn find(command: Command<'a>) -> Step<'a> {
        find(command).map_or_else(Step::Rejected, |spec| Step::Other(spec, command))
    }

    /// Makes the call of a check. Other commands stay as they are.
    fn call(
        spec: &'static CommandSpec,
        command: Command<'a>,
        engine: &Engine,
        cache: &mut RuleCache,
    ) -> Step<'a> {
        let call = match spec.id {
            CommandId::Check => limits::check(command, engine, cache).map(Step::Check),
            CommandId::Throttle => limits::throttle(command, engine, cache).map(Step::Throttle),
            _ => Ok(Step::Other(spec, command)),
        };
        call.unwrap_or_else(Step::Rejected)
    }

    /// Returns `true` if the command may wait for a lease. A client that is not authenticated never
    /// waits: it is rejected at once.
    fn waits(&self, session: &Session) -> bool {
        let Step::Other(CommandSpec { id: CommandId::Acquire, .. }, command) = self else { return false };
        session.authenticated && leases::waits(*command)
    }

    /// The call, if it is a check.
    #[inline]
    fn as_call(&self) -> Option<&RuleCall<'a>> {
        match self {
            Step::Check(call) | Step::Throttle(call) => Some(call),
            Step::Other(..) | Step::Rejected(_) => None,
        }
    }

    /// Replies to a command other than a check, or to any command of a client that is not
    /// authenticated.
    async fn answer(&self, context: Context<'_>) {
        let Context { now, session, replies, service } = context;
        let answered = match self {
            Step::Other(spec, command) if session.authenticated || spec.is_open() => {
                other(spec.id, *command, Context { now, session, replies, service }).await
            }
            Step::Rejected(rejection) if session.authenticated => return reject(rejection, replies, service),
            _ => Err(Rejection::no_auth()),
        };
        if let Err(rejection) = answered {
            reject(&rejection, replies, service);
        }
    }

    /// Replies to a check.
    fn reply(&self, decided: Result<Decided<'_>, RequestError>, replies: &mut Replies, service: &Service) {
        match decided {
            Ok(decided) if matches!(self, Step::Throttle(_)) => limits::throttled(&decided, replies),
            Ok(decided) => limits::decision(&decided, DECISION, replies),
            Err(error) => reject(&error.into(), replies, service),
        }
    }
}

/// Looks a command up, and checks its number of arguments.
fn find(command: Command<'_>) -> Result<&'static CommandSpec, Rejection> {
    let name = command.get(0).unwrap_or_default();
    match commands::find(name) {
        None if name.eq_ignore_ascii_case(b"WATCH") => Err(Rejection::line(
            "ERR WATCH is not supported: keys are not watched; RL.CHECKALL charges several keys all or nothing",
        )),
        None => Err(Rejection::error(format_args!(
            "unknown command '{}'; COMMAND LIST lists all commands",
            Shown(name)
        ))),
        Some(spec) if command.len() < spec.least || command.len() > spec.most => {
            Err(if spec.id == CommandId::Exec {
                Rejection::exec_arity()
            } else {
                Rejection::arity(spec.name)
            })
        }
        Some(spec) => Ok(spec),
    }
}

fn reject(rejection: &Rejection, replies: &mut Replies, service: &Service) {
    service.metrics.client_errors(Protocol::Resp, 1);
    replies.error(rejection.text());
}

/// Answers a command other than a check. A reply is written only once nothing can fail any more.
async fn other(id: CommandId, command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    match id {
        // An authenticated client's check is a call, and is not answered here.
        CommandId::Check | CommandId::Throttle => return Err(Rejection::no_auth()),
        CommandId::Peek => limits::peek(command, context).await?,
        CommandId::CheckAll => limits::check_all(command, context).await?,
        CommandId::Take => limits::take(command, context).await?,
        CommandId::Reserve => reservations::reserve(command, context).await?,
        CommandId::ReserveAll => reservations::reserve_all(command, context).await?,
        CommandId::Cancel => reservations::cancel(command, context).await?,
        CommandId::Settle => reservations::settle(command, context).await?,
        CommandId::Extend => reservations::extend(command, context).await?,
        CommandId::Refund => limits::refund(command, context).await?,
        CommandId::Reset => limits::reset(command, context).await?,
        CommandId::Next => limits::next(command, context).await?,
        CommandId::Usage => limits::usage(command, context).await?,
        CommandId::Acquire => leases::acquire(command, context, Wait::Never).await?,
        CommandId::Renew => leases::renew(command, context).await?,
        CommandId::Release => leases::release(command, context).await?,
        CommandId::Rules => limits::rules(context),
        CommandId::Ping => handshake::ping(command, context.replies),
        CommandId::Echo => context.replies.bulk(command.get(1).unwrap_or_default()),
        CommandId::Hello => handshake::hello(command, context)?,
        CommandId::Auth => handshake::auth(command, context)?,
        CommandId::Select => handshake::select(command, context.replies)?,
        CommandId::Multi => transaction::multi(context),
        // In a transaction they are not answered here.
        CommandId::Exec => return Err(Rejection::line("ERR EXEC without MULTI")),
        CommandId::Discard => return Err(Rejection::line("ERR DISCARD without MULTI")),
        CommandId::Quit => handshake::quit(context),
        CommandId::ResetConnection => handshake::reset(context),
        CommandId::Client => client::client(command, context.session, context.replies)?,
        CommandId::Command => introspection::command(command, context.replies)?,
        CommandId::Info => introspection::info(command, context.replies, context.service),
        CommandId::Config => introspection::config(command, context.replies, context.service)?,
    }
    Ok(())
}
