//! `CLIENT`: describes and names a connection.

use super::super::codec::{Command, Replies, Shown};
use super::super::session::Session;
use super::rejection::Rejection;

/// The longest name of a client or its library. It is kept as long as the connection.
const NAME_LEN_MAX: usize = 128;

pub(super) fn client(
    command: Command<'_>,
    session: &mut Session,
    replies: &mut Replies,
) -> Result<(), Rejection> {
    let about = command.get(1).unwrap_or_default().to_ascii_uppercase();
    match (about.as_slice(), command.get(2), command.get(3), command.len()) {
        (b"ID", _, _, 2) => replies.integer(session.id),
        // A client sees no connection but its own.
        (b"INFO", _, _, 2) | (b"LIST", ..) => replies.bulk(line(session, replies).as_bytes()),
        (b"GETNAME", _, _, 2) if session.name.is_empty() => replies.nil(),
        (b"GETNAME", _, _, 2) => replies.bulk(session.name.as_bytes()),
        (b"SETNAME", Some(name), _, 3) => {
            session.name = valid_name(name)?;
            replies.simple("OK");
        }
        (b"SETINFO", Some(field), Some(value), 4) => {
            set_info(field, value, session)?;
            replies.simple("OK");
        }
        (switch @ (b"REPLY" | b"NO-EVICT" | b"NO-TOUCH" | b"TRACKING"), Some(to), ..) => {
            if !makes_no_difference(switch, to) {
                let (switch, to) = (Shown(switch), Shown(to));
                return Err(Rejection::error(format_args!("CLIENT {switch} {to} is not supported")));
            }
            replies.simple("OK");
        }
        (known, ..) if SUBCOMMANDS.iter().any(|name| name.as_bytes() == known) => {
            return Err(Rejection::arity(&format!("client|{}", Shown(known))));
        }
        (unknown, ..) => {
            return Err(Rejection::error(format_args!(
                "unknown subcommand '{}' of CLIENT; use one of {}",
                Shown(unknown),
                SUBCOMMANDS.join(" ")
            )));
        }
    }
    Ok(())
}

const SUBCOMMANDS: [&str; 10] =
    ["ID", "INFO", "LIST", "GETNAME", "SETNAME", "SETINFO", "REPLY", "NO-EVICT", "NO-TOUCH", "TRACKING"];

/// Returns `true` if a switch already has the wanted value, or has no effect here.
fn makes_no_difference(switch: &[u8], to: &[u8]) -> bool {
    let (on, off) = (to.eq_ignore_ascii_case(b"ON"), to.eq_ignore_ascii_case(b"OFF"));
    match switch {
        b"REPLY" => on,
        b"TRACKING" => off,
        _ => on || off,
    }
}

/// Reads a name without spaces and control characters, as `CLIENT LIST` separates fields by spaces.
pub(super) fn valid_name(name: &[u8]) -> Result<Box<str>, Rejection> {
    let text = str::from_utf8(name).ok().filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()));
    let text = text.filter(|name| name.len() <= NAME_LEN_MAX);
    text.map(Box::from).ok_or_else(|| {
        Rejection::error(format_args!(
            "Client names cannot contain spaces, newlines or special characters: \"{}\" ({} bytes); \
             use at most {NAME_LEN_MAX} visible ASCII characters",
            Shown(name),
            name.len()
        ))
    })
}

fn set_info(field: &[u8], value: &[u8], session: &mut Session) -> Result<(), Rejection> {
    let target = if field.eq_ignore_ascii_case(b"LIB-NAME") {
        &mut session.library_name
    } else if field.eq_ignore_ascii_case(b"LIB-VER") {
        &mut session.library_version
    } else {
        return Err(Rejection::error(format_args!(
            "Unrecognized option '{}'; use LIB-NAME or LIB-VER",
            Shown(field)
        )));
    };
    *target = valid_name(value)?;
    Ok(())
}

/// The connection's line, in Redis's format.
fn line(session: &Session, replies: &Replies) -> String {
    let Session { id, name, library_name, library_version, .. } = session;
    let version = replies.version.number();
    format!(
        "id={id} name={name} db=0 user=default resp={version} lib-name={library_name} lib-ver={library_version}\n"
    )
}
