//! A command that is not done: one line that says why. The connection goes on.

use crate::engine::Mistake;
use std::borrow::Cow;
use std::fmt;

/// An error as it is written to the client, its code first.
#[derive(Debug)]
pub(super) struct Refusal(Cow<'static, str>);

impl Refusal {
    /// The line, `ERR ...`.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// A mistake of the client.
    pub(super) fn error(why: fmt::Arguments<'_>) -> Refusal {
        Refusal(format!("ERR {why}").into())
    }

    /// A line that is always the same, with its code.
    pub(super) const fn line(text: &'static str) -> Refusal {
        Refusal(Cow::Borrowed(text))
    }

    /// Too few arguments or too many, in the words of Redis.
    pub(super) fn arity(name: &str) -> Refusal {
        Refusal::error(format_args!("wrong number of arguments for '{}' command", name.to_ascii_lowercase()))
    }

    /// The password has not been said.
    pub(super) const fn no_auth() -> Refusal {
        Refusal::line("NOAUTH Authentication required.")
    }

    /// The password is another one.
    pub(super) const fn wrong_pass() -> Refusal {
        Refusal::line("WRONGPASS invalid username-password pair or user is disabled.")
    }
}

impl From<Mistake> for Refusal {
    fn from(mistake: Mistake) -> Refusal {
        Refusal::error(format_args!("{mistake}"))
    }
}
