//! Commands that open, authenticate, reset and close a connection.

use super::super::codec::{Command, Replies, Shown, Version};
use super::super::session::Session;
use super::Context;
use super::arguments::integer;
use super::client;
use super::rejection::Rejection;
use crate::auth::AuthError;
use crate::protocol::Protocol;
use crate::service::Service;

pub(super) fn ping(command: Command<'_>, replies: &mut Replies) {
    match command.get(1) {
        None => replies.simple("PONG"),
        Some(message) => replies.bulk(message),
    }
}

/// `HELLO [2|3 [AUTH user password] [SETNAME name]]`: takes effect as a whole or not at all.
pub(super) fn hello(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { session, replies, service, .. } = context;
    let version = match command.get(1).map(|version| integer(version, "version")) {
        None => replies.version,
        Some(Ok(2)) => Version::Resp2,
        Some(Ok(3)) => Version::Resp3,
        Some(Ok(_)) => return Err(Rejection::line("NOPROTO unsupported protocol version; use 2 or 3")),
        Some(Err(_)) => {
            return Err(Rejection::line("ERR Protocol version is not an integer or out of range"));
        }
    };
    let (mut authenticated, mut name) = (session.authenticated, None);
    let mut options = command.from(2);
    while let Some(option) = options.next() {
        let syntax = || Rejection::error(format_args!("Syntax error in HELLO option '{}'", Shown(option)));
        if option.eq_ignore_ascii_case(b"AUTH") {
            let (user, password) = options.next().zip(options.next()).ok_or_else(syntax)?;
            check_password(user, password, session, service)?;
            authenticated = true;
        } else if option.eq_ignore_ascii_case(b"SETNAME") {
            name = Some(client::valid_name(options.next().ok_or_else(syntax)?)?);
        } else {
            return Err(syntax());
        }
    }
    if !authenticated {
        return Err(Rejection::line(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    session.authenticated = authenticated;
    if let Some(name) = name {
        session.name = name;
    }
    replies.version = version;
    replies.map(7);
    for (field, value) in [("server", "sluicegate"), ("version", env!("CARGO_PKG_VERSION"))] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"proto");
    replies.integer(version.number());
    replies.bulk(b"id");
    replies.integer(session.id);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"modules");
    replies.array(0);
    Ok(())
}

/// `AUTH password`, `AUTH default password`.
pub(super) fn auth(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { session, replies, service, .. } = context;
    let (user, password) = match (command.get(1), command.get(2)) {
        (Some(user), Some(password)) => (user, password),
        (Some(_), None) if service.password.is_none() => {
            return Err(Rejection::line(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        (password, _) => (DEFAULT_USER, password.unwrap_or_default()),
    };
    check_password(user, password, session, service)?;
    session.authenticated = true;
    replies.simple("OK");
    Ok(())
}

pub(super) fn select(command: Command<'_>, replies: &mut Replies) -> Result<(), Rejection> {
    match integer(command.get(1).unwrap_or_default(), "database") {
        Ok(0) => {
            replies.simple("OK");
            Ok(())
        }
        Ok(_) => Err(Rejection::line("ERR DB index is out of range; the only database is 0")),
        Err(_) => Err(Rejection::line("ERR value is not an integer or out of range")),
    }
}

pub(super) fn quit(Context { session, replies, .. }: Context<'_>) {
    session.leaving = true;
    replies.simple("OK");
}

/// Puts the connection into its initial state: RESP2, no names, not authenticated. It keeps its id
/// and its count of wrong passwords.
pub(super) fn reset(context: Context<'_>) {
    let Context { session, replies, service, .. } = context;
    for name in [&mut session.name, &mut session.library_name, &mut session.library_version] {
        *name = Box::default();
    }
    session.authenticated = service.password.is_none();
    replies.version = Version::Resp2;
    replies.simple("RESET");
}

/// The only user.
const DEFAULT_USER: &[u8] = b"default";

/// Checks the user and the password, and counts wrong ones. Without a configured password any is
/// accepted, as in Redis. A client whose address has sent too many wrong ones is disconnected.
fn check_password(
    user: &[u8],
    password: &[u8],
    session: &mut Session,
    service: &Service,
) -> Result<(), Rejection> {
    let checked = if user == DEFAULT_USER {
        service.authenticate(Protocol::Resp, session.peer, password)
    } else {
        Err(AuthError::Wrong)
    };
    match checked {
        Ok(()) => {
            session.wrong_passwords = 0;
            Ok(())
        }
        Err(AuthError::Wrong) => {
            if !session.authenticated {
                session.wrong_passwords = session.wrong_passwords.saturating_add(1);
            }
            Err(Rejection::wrong_pass())
        }
        Err(AuthError::TooMany(wait)) => {
            session.leaving = true;
            Err(Rejection::error(format_args!(
                "too many wrong passwords from this address; retry in {} ms with the right one",
                wait.as_millis_up()
            )))
        }
    }
}
