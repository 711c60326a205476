//! Why a command was not executed: one line. The connection stays open.

use crate::engine::RequestError;
use std::borrow::Cow;
use std::fmt;

/// An error reply, starting with its code.
#[derive(Debug)]
pub(super) struct Rejection(Cow<'static, str>);

impl Rejection {
    /// The whole line, such as `ERR ...`.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// An error with the code `ERR`.
    pub(super) fn error(why: fmt::Arguments<'_>) -> Rejection {
        Rejection(format!("ERR {why}").into())
    }

    /// A constant line, including its code.
    pub(super) const fn line(text: &'static str) -> Rejection {
        Rejection(Cow::Borrowed(text))
    }

    /// Redis's error for too few or too many arguments.
    pub(super) fn arity(name: &str) -> Rejection {
        Rejection::error(format_args!(
            "wrong number of arguments for '{}' command",
            name.to_ascii_lowercase()
        ))
    }

    /// Redis's error for `EXEC` with arguments, which ends the transaction.
    pub(super) const fn exec_arity() -> Rejection {
        Rejection::line(
            "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        )
    }

    /// Redis's error for a client that is not authenticated.
    pub(super) const fn no_auth() -> Rejection {
        Rejection::line("NOAUTH Authentication required.")
    }

    /// Redis's error for a wrong password.
    pub(super) const fn wrong_pass() -> Rejection {
        Rejection::line("WRONGPASS invalid username-password pair or user is disabled.")
    }
}

impl From<RequestError> for Rejection {
    fn from(error: RequestError) -> Rejection {
        Rejection::error(format_args!("{error}"))
    }
}
