//! A command that is not done: one line that says why. The connection goes on.

use crate::engine::RequestError;
use std::borrow::Cow;
use std::fmt;

/// An error as it is written to the client, its code first.
#[derive(Debug)]
pub(super) struct Rejection(Cow<'static, str>);

impl Rejection {
    /// The line, `ERR ...`.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// A mistake of the client.
    pub(super) fn error(why: fmt::Arguments<'_>) -> Rejection {
        Rejection(format!("ERR {why}").into())
    }

    /// A line that is always the same, with its code.
    pub(super) const fn line(text: &'static str) -> Rejection {
        Rejection(Cow::Borrowed(text))
    }

    /// Too few arguments or too many, in the words of Redis.
    pub(super) fn arity(name: &str) -> Rejection {
        Rejection::error(format_args!(
            "wrong number of arguments for '{}' command",
            name.to_ascii_lowercase()
        ))
    }

    /// The password has not been said.
    pub(super) const fn no_auth() -> Rejection {
        Rejection::line("NOAUTH Authentication required.")
    }

    /// The password is another one.
    pub(super) const fn wrong_pass() -> Rejection {
        Rejection::line("WRONGPASS invalid username-password pair or user is disabled.")
    }
}

impl From<RequestError> for Rejection {
    fn from(mistake: RequestError) -> Rejection {
        Rejection::error(format_args!("{mistake}"))
    }
}
