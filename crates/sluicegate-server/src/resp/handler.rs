//! Commands to answers.
//!
//! Of the commands that have arrived together, those that check a limit are all prepared before the first is decided, so
//! that their waits for memory overlap. Then each is answered in its turn, at one time of the clock, and sees what those
//! before it have done. Where keys live in a shared store, checks that follow each other take one trip there together.

mod about;
mod arguments;
mod client;
mod greeting;
mod leasing;
mod limiting;
mod refusal;

use self::leasing::Patience;
use self::limiting::Turn;
use self::refusal::Refusal;
use super::codec::{Command, Parser, Replies, Shown};
use super::commands::{self, Spec, Verb};
use super::session::Session;
use crate::engine::{Engine, Mistake, Prepared, Recent, Verdict};
use crate::protocol::Protocol;
use crate::service::Service;
use sluicegate::Time;

/// A command that is next to be answered.
enum Step<'a> {
    /// A check that is prepared.
    Check(Prepared<'a>),
    Throttle(Prepared<'a>),
    /// What is looked up only when it is answered.
    Other(&'static Spec, Command<'a>),
    Refused(Refusal),
}

/// The most bytes that the reply to a check takes: an error. So many are asked of a shared store at once that their
/// replies do not cross the bound on replies.
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
    let commands = (from..parser.len()).filter_map(|place| parser.get(bytes, place));
    if from + 1 == parser.len() {
        // Alone, there is nothing to overlap with. So it is with whoever has not said the password: they are read one
        // command at a time, and nothing is looked up for them.
        if let Some(command) = parser.get(bytes, from) {
            let step = Step::find(command);
            if step.waits(session) {
                return Answered { commands: 0, next_waits: true };
            }
            step.answer(engine.now(), session, replies, service).await;
            session.recent.flush();
        }
        return Answered { commands: 1, next_waits: false };
    }
    let steps: Vec<Step<'_>> =
        commands.map(|command| Step::prepare(command, engine, &mut session.recent)).collect();
    for step in &steps {
        if let Step::Check(prepared) | Step::Throttle(prepared) = step {
            engine.touch(prepared);
        }
    }
    let now = engine.now();
    let mut rest = steps.as_slice();
    let mut next_waits = false;
    while let [step, others @ ..] = rest {
        if step.waits(session) {
            next_waits = true;
            break;
        }
        if engine.is_shared() && session.authenticated && step.prepared().is_some() {
            let most = (unread_max.saturating_sub(replies.bytes().len()) / CHECK_REPLY_LEN_MAX).max(1);
            let together: Vec<_> = rest.iter().map_while(Step::prepared).take(most).collect();
            let verdicts = engine.decide_each(&together, now).await;
            for (step, verdict) in rest.iter().zip(verdicts) {
                step.tell(verdict, replies, service);
            }
            rest = &rest[together.len()..];
        } else {
            step.answer(now, session, replies, service).await;
            rest = others;
        }
        if session.leaving || replies.bytes().len() >= unread_max {
            break;
        }
    }
    session.recent.flush();
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
    if let Err(refusal) = leasing::acquire(command, turn, Patience::InLine).await {
        refuse(&refusal, replies, service);
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
            None => Step::Refused(Refusal::error(format_args!(
                "unknown command '{}'; COMMAND LIST names those there are",
                Shown(name)
            ))),
            Some(spec) if command.len() < spec.least || command.len() > spec.most => {
                Step::Refused(Refusal::arity(spec.name))
            }
            Some(spec) => Step::Other(spec, command),
        }
    }

    /// The same, and looks up what a check is about.
    fn prepare(command: Command<'a>, engine: &Engine, recent: &mut Recent) -> Step<'a> {
        let prepared = match Step::find(command) {
            Step::Other(Spec { verb: Verb::Check, .. }, command) => {
                limiting::prepare_check(command, engine, recent).map(Step::Check)
            }
            Step::Other(Spec { verb: Verb::Throttle, .. }, command) => {
                limiting::prepare_throttle(command, engine, recent).map(Step::Throttle)
            }
            step => Ok(step),
        };
        prepared.unwrap_or_else(Step::Refused)
    }

    /// Whether it may wait in line for a lease. (Who has not said the password is told so at once.)
    fn waits(&self, session: &Session) -> bool {
        let Step::Other(Spec { verb: Verb::Acquire, .. }, command) = self else { return false };
        session.authenticated && leasing::waits(*command)
    }

    /// What is prepared to be decided.
    fn prepared(&self) -> Option<&Prepared<'a>> {
        match self {
            Step::Check(prepared) | Step::Throttle(prepared) => Some(prepared),
            Step::Other(..) | Step::Refused(_) => None,
        }
    }

    /// Writes one reply, whatever happens.
    async fn answer(&self, now: Time, session: &mut Session, replies: &mut Replies, service: &Service) {
        let is_open = matches!(self, Step::Other(spec, _) if spec.is_open());
        let answered = match self {
            _ if !session.authenticated && !is_open => Err(Refusal::no_auth()),
            Step::Check(prepared) | Step::Throttle(prepared) => {
                // In memory this never waits, and nothing is made that could.
                let verdict = match service.engine.decide_here(prepared, now) {
                    Some(verdict) => verdict,
                    None => service.engine.decide(prepared, now).await,
                };
                self.tell(verdict, replies, service);
                Ok(())
            }
            Step::Other(spec, command) => other(spec.verb, *command, now, session, replies, service).await,
            Step::Refused(refusal) => {
                refuse(refusal, replies, service);
                Ok(())
            }
        };
        if let Err(refusal) = answered {
            refuse(&refusal, replies, service);
        }
    }

    /// Writes the reply to what was prepared and is decided.
    fn tell(&self, verdict: Result<Verdict, Mistake>, replies: &mut Replies, service: &Service) {
        match verdict {
            Ok(verdict) if matches!(self, Step::Throttle(_)) => limiting::throttled(&verdict, replies),
            Ok(verdict) => limiting::checked(&verdict, replies),
            Err(mistake) => refuse(&mistake.into(), replies, service),
        }
    }
}

fn refuse(refusal: &Refusal, replies: &mut Replies, service: &Service) {
    service.metrics.mistaken(Protocol::Resp, 1);
    replies.error(refusal.text());
}

/// What was not prepared. It writes its reply only when nothing can go wrong any more.
async fn other(
    verb: Verb,
    command: Command<'_>,
    now: Time,
    session: &mut Session,
    replies: &mut Replies,
    service: &Service,
) -> Result<(), Refusal> {
    let engine = &*service.engine;
    match verb {
        // These two came alone: in a batch they are prepared.
        Verb::Check => {
            let prepared = limiting::prepare_check(command, engine, &mut session.recent)?;
            limiting::checked(&engine.decide(&prepared, now).await?, replies);
        }
        Verb::Throttle => {
            let prepared = limiting::prepare_throttle(command, engine, &mut session.recent)?;
            limiting::throttled(&engine.decide(&prepared, now).await?, replies);
        }
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
