//! Commands to answers.
//!
//! Of the commands that have arrived together, the calls of all checks are made before the first is decided, so that their
//! waits for memory overlap. Then commands are answered in order, at one time of the clock; each sees what those before it
//! have done. Checks that follow each other are decided together: in a shared store they share a round trip. A command that
//! arrives alone is a batch of one.

mod about;
mod arguments;
mod client;
mod greeting;
mod leasing;
mod limiting;
mod rejection;

use self::leasing::Patience;
use self::limiting::{DECISION, Turn};
use self::rejection::Rejection;
use super::codec::{Command, Parser, Replies, Shown};
use super::commands::{self, Spec, Verb};
use super::session::Session;
use crate::engine::{Call, Decided, Engine, RequestError, RuleCache, decide};
use crate::protocol::Protocol;
use crate::service::Service;
use sluicegate::Time;

/// A command that is next to be answered.
enum Step<'a> {
    /// A check whose rule has been found.
    Check(Call<'a>),
    Throttle(Call<'a>),
    /// What is looked up only when it is answered.
    Other(&'static Spec, Command<'a>),
    Refused(Rejection),
}

/// The most bytes that the reply to a check takes: an error. As many checks are decided together as have room for their
/// replies.
const CHECK_REPLY_LEN_MAX: usize = 512;

/// How far the commands of a client are answered.
pub(super) struct Answered {
    pub(super) commands: usize,
    /// The next one may wait in line for a lease. It is for [`wait_in_line`], when the client has the replies to those before.
    pub(super) next_waits: bool,
}

/// Answers the commands from a place on, until the client leaves, one may wait in line, or as many bytes of replies wait as may.
pub(super) async fn answer(
    (parser, bytes, from): (&Parser, &[u8], usize),
    unread_max: usize,
    session: &mut Session,
    replies: &mut Replies,
    service: &Service,
) -> Answered {
    let engine = &*service.engine;
    let mut commands = (from..parser.len()).filter_map(|place| parser.get(bytes, place));
    // Before the password nothing is looked up.
    let authenticated = session.authenticated;
    let mut step = |command| match Step::find(command) {
        Step::Other(spec, command) if authenticated => Step::call(spec, command, engine, &mut session.cache),
        step => step,
    };
    // Most batches are one command, which needs no vector.
    let (lone, batch): ([Step<'_>; 1], Vec<Step<'_>>);
    let steps: &[Step<'_>] = match commands.next() {
        None => &[],
        Some(command) if from + 1 == parser.len() => {
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
    let mut next_waits = false;
    while let [step, others @ ..] = rest {
        if step.waits(session) {
            next_waits = true;
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
            step.answer(now, session, replies, service).await;
            rest = others;
        }
        // After AUTH or RESET what is left is prepared again.
        let is_other = session.authenticated != authenticated;
        if session.leaving || is_other || replies.bytes().len() >= unread_max {
            break;
        }
    }
    session.cache.flush();
    Answered { commands: steps.len() - rest.len(), next_waits }
}

/// Answers a command that may wait in line for a lease. Dropped while it waits, it leaves the line and nothing behind.
pub(super) async fn wait_in_line(
    command: Command<'_>,
    session: &mut Session,
    replies: &mut Replies,
    service: &Service,
) {
    let turn = leasing::Turn { now: service.engine.now(), session, replies, service };
    if let Err(rejection) = leasing::acquire(command, turn, Patience::InLine).await {
        refuse(&rejection, replies, service);
    }
}

/// Answers the same command without waiting: the server stops.
pub(super) async fn answer_without_waiting(
    command: Command<'_>,
    session: &mut Session,
    replies: &mut Replies,
    service: &Service,
) {
    Step::find(command).answer(service.engine.now(), session, replies, service).await;
}

impl<'a> Step<'a> {
    /// Finds what a command is, and whether it has as many arguments as it needs.
    fn find(command: Command<'a>) -> Step<'a> {
        let name = command.get(0).unwrap_or_default();
        match commands::find(name) {
            None => Step::Refused(Rejection::error(format_args!(
                "unknown command '{}'; COMMAND LIST names those there are",
                Shown(name)
            ))),
            Some(spec) if command.len() < spec.least || command.len() > spec.most => {
                Step::Refused(Rejection::arity(spec.name))
            }
            Some(spec) => Step::Other(spec, command),
        }
    }

    /// The call of a check, or the command itself.
    fn call(spec: &'static Spec, command: Command<'a>, engine: &Engine, cache: &mut RuleCache) -> Step<'a> {
        let call = match spec.verb {
            Verb::Check => limiting::check(command, engine, cache).map(Step::Check),
            Verb::Throttle => limiting::throttle(command, engine, cache).map(Step::Throttle),
            _ => Ok(Step::Other(spec, command)),
        };
        call.unwrap_or_else(Step::Refused)
    }

    /// Whether it may wait in line for a lease. (Who has not said the password is told so at once.)
    fn waits(&self, session: &Session) -> bool {
        let Step::Other(Spec { verb: Verb::Acquire, .. }, command) = self else { return false };
        session.authenticated && leasing::waits(*command)
    }

    /// The call, if it is a check.
    #[inline]
    fn as_call(&self) -> Option<&Call<'a>> {
        match self {
            Step::Check(call) | Step::Throttle(call) => Some(call),
            Step::Other(..) | Step::Refused(_) => None,
        }
    }

    /// Writes one reply to a command that is no check, or comes before the password.
    async fn answer(&self, now: Time, session: &mut Session, replies: &mut Replies, service: &Service) {
        let answered = match self {
            Step::Other(spec, command) if session.authenticated || spec.is_open() => {
                other(spec.verb, *command, now, session, replies, service).await
            }
            Step::Refused(rejection) if session.authenticated => return refuse(rejection, replies, service),
            _ => Err(Rejection::no_auth()),
        };
        if let Err(rejection) = answered {
            refuse(&rejection, replies, service);
        }
    }

    /// Writes the reply to a check.
    fn reply(&self, decided: Result<Decided<'_>, RequestError>, replies: &mut Replies, service: &Service) {
        match decided {
            Ok(decided) if matches!(self, Step::Throttle(_)) => limiting::throttled(&decided, replies),
            Ok(decided) => limiting::decision(&decided, DECISION, replies),
            Err(mistake) => refuse(&mistake.into(), replies, service),
        }
    }
}

fn refuse(rejection: &Rejection, replies: &mut Replies, service: &Service) {
    service.metrics.mistaken(Protocol::Resp, 1);
    replies.error(rejection.text());
}

/// What was not prepared. It writes its reply only when nothing can go wrong any more.
async fn other(
    verb: Verb,
    command: Command<'_>,
    now: Time,
    session: &mut Session,
    replies: &mut Replies,
    service: &Service,
) -> Result<(), Rejection> {
    let engine = &*service.engine;
    match verb {
        // After the password a check is a call, and does not come here.
        Verb::Check | Verb::Throttle => return Err(Rejection::no_auth()),
        Verb::Peek => limiting::peek(command, Turn { now, engine, replies }).await?,
        Verb::CheckAll => limiting::check_all(command, Turn { now, engine, replies }).await?,
        Verb::Take => limiting::take(command, Turn { now, engine, replies }).await?,
        Verb::Reserve => limiting::reserve(command, Turn { now, engine, replies }).await?,
        Verb::Cancel => limiting::cancel(command, Turn { now, engine, replies }).await?,
        Verb::Settle => limiting::settle(command, Turn { now, engine, replies }).await?,
        Verb::Refund => limiting::refund(command, Turn { now, engine, replies }).await?,
        Verb::Reset => limiting::reset(command, engine, replies).await?,
        Verb::Next => limiting::next(command, Turn { now, engine, replies }).await?,
        Verb::Acquire => {
            let turn = leasing::Turn { now, session, replies, service };
            leasing::acquire(command, turn, Patience::None).await?;
        }
        Verb::Renew => leasing::renew(command, Turn { now, engine, replies }).await?,
        Verb::Release => leasing::release(command, Turn { now, engine, replies }).await?,
        Verb::Rules => limiting::rules(engine, replies),
        Verb::Ping => greeting::ping(command, replies),
        Verb::Echo => replies.bulk(command.get(1).unwrap_or_default()),
        Verb::Hello => greeting::hello(command, session, replies, service)?,
        Verb::Auth => greeting::auth(command, session, replies, service)?,
        Verb::Select => greeting::select(command, replies)?,
        Verb::Quit => greeting::quit(session, replies),
        Verb::ResetConnection => greeting::reset(session, replies, service),
        Verb::Client => client::client(command, session, replies)?,
        Verb::Command => about::command(command, replies)?,
        Verb::Info => about::info(command, replies, service),
        Verb::Config => about::config(command, replies, service)?,
    }
    Ok(())
}
