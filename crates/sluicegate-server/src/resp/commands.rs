//! The table of commands: what they are called, how many arguments they take, and what they are for.
//!
//! It is looked up for each command, it is what `COMMAND` tells, and a test compares `docs/protocol.md` with it.

/// Which command it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Throttle,
    Check,
    Peek,
    CheckAll,
    Take,
    Reserve,
    Cancel,
    Settle,
    Refund,
    Reset,
    Next,
    Acquire,
    Renew,
    Release,
    Rules,
    Ping,
    Echo,
    Hello,
    Auth,
    Select,
    Client,
    Command,
    Info,
    Config,
    Quit,
    ResetConnection,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) verb: Verb,
    /// The name in capitals; clients may write it as they like.
    pub(super) name: &'static str,
    /// The fewest and the most arguments, the name included.
    pub(super) least: usize,
    pub(super) most: usize,
    /// Where keys stand: the first, the last (-1: the last argument) and the step between them; zeros if there are none.
    pub(super) keys: [i8; 3],
    /// How it is written.
    pub(super) usage: &'static str,
    /// What it does.
    pub(super) summary: &'static str,
}

/// Any number of arguments, as far as the bounds on clients go.
const ANY: usize = usize::MAX;
const NO_KEYS: [i8; 3] = [0; 3];
/// `RL.CHECK rule key ...`
const KEY_AFTER_RULE: [i8; 3] = [2, 2, 1];

const fn spec(
    verb: Verb,
    name: &'static str,
    (least, most): (usize, usize),
    keys: [i8; 3],
    usage: &'static str,
    summary: &'static str,
) -> Spec {
    Spec { verb, name, least, most, keys, usage, summary }
}

/// The most frequent ones first, as it is searched from the top.
#[rustfmt::skip]
pub(super) const COMMANDS: [Spec; 26] = [
    spec(Verb::Check, "RL.CHECK", (3, 7), KEY_AFTER_RULE, "RL.CHECK rule key [COST n] [MAXWAIT ms]", "May the key act now? If so it is charged. With MAXWAIT it may also act after its delay."),
    spec(Verb::Throttle, "CL.THROTTLE", (5, 6), [1, 1, 1], "CL.THROTTLE key max_burst count period_s [quantity]", "redis-cell's command and reply."),
    spec(Verb::Peek, "RL.PEEK", (3, 5), KEY_AFTER_RULE, "RL.PEEK rule key [COST n]", "Would the key be allowed? Nothing is charged."),
    spec(Verb::CheckAll, "RL.CHECKALL", (4, ANY), [2, -1, 3], "RL.CHECKALL rule key cost [rule key cost ...]", "May all of these happen now? All are charged, or none."),
    spec(Verb::Take, "RL.TAKE", (4, 4), KEY_AFTER_RULE, "RL.TAKE rule key n", "Takes as much as there is, up to n."),
    spec(Verb::Reserve, "RL.RESERVE", (3, 7), KEY_AFTER_RULE, "RL.RESERVE rule key [COST n] [MAXWAIT ms]", "Charges now, to act after the delay; gives a receipt."),
    spec(Verb::Cancel, "RL.CANCEL", (2, 2), NO_KEYS, "RL.CANCEL receipt", "Gives back what still counts of a reservation."),
    spec(Verb::Settle, "RL.SETTLE", (3, 3), NO_KEYS, "RL.SETTLE receipt n", "Says what a reservation has really used."),
    spec(Verb::Refund, "RL.REFUND", (3, 5), KEY_AFTER_RULE, "RL.REFUND rule key [COST n]", "Gives cost back."),
    spec(Verb::Reset, "RL.RESET", (3, 3), KEY_AFTER_RULE, "RL.RESET rule key", "Forgets the key."),
    spec(Verb::Next, "RL.NEXT", (3, 3), KEY_AFTER_RULE, "RL.NEXT rule key", "When the key's next window starts, or its next unit is there."),
    spec(Verb::Acquire, "RL.ACQUIRE", (3, 7), KEY_AFTER_RULE, "RL.ACQUIRE rule key [COST n] [MAXWAIT ms]", "Takes a lease if there is a place. With MAXWAIT it waits in line for one."),
    spec(Verb::Renew, "RL.RENEW", (4, 4), KEY_AFTER_RULE, "RL.RENEW rule key lease", "Gives a lease that has not lapsed a whole new ttl."),
    spec(Verb::Release, "RL.RELEASE", (4, 4), KEY_AFTER_RULE, "RL.RELEASE rule key lease", "Returns a lease."),
    spec(Verb::Rules, "RL.RULES", (1, 1), NO_KEYS, "RL.RULES", "The rules and their limits."),
    spec(Verb::Ping, "PING", (1, 2), NO_KEYS, "PING [message]", "Answers PONG, or the message."),
    spec(Verb::Echo, "ECHO", (2, 2), NO_KEYS, "ECHO message", "Answers the message."),
    spec(Verb::Hello, "HELLO", (1, ANY), NO_KEYS, "HELLO [2|3 [AUTH user password] [SETNAME name]]", "Chooses the protocol's version."),
    spec(Verb::Auth, "AUTH", (2, 3), NO_KEYS, "AUTH [user] password", "Says the password."),
    spec(Verb::Select, "SELECT", (2, 2), NO_KEYS, "SELECT 0", "There is one database, 0."),
    spec(Verb::Client, "CLIENT", (2, ANY), NO_KEYS, "CLIENT ID|INFO|LIST|GETNAME|SETNAME|SETINFO|REPLY|NO-EVICT|NO-TOUCH|TRACKING [...]", "Tells about this connection, or names it."),
    spec(Verb::Command, "COMMAND", (1, ANY), NO_KEYS, "COMMAND [COUNT|LIST|INFO|DOCS [name ...]]", "Tells about commands."),
    spec(Verb::Info, "INFO", (1, ANY), NO_KEYS, "INFO [section ...]", "Tells about the server."),
    spec(Verb::Config, "CONFIG", (2, ANY), NO_KEYS, "CONFIG GET pattern [pattern ...]", "Tells settings that clients ask for."),
    spec(Verb::Quit, "QUIT", (1, ANY), NO_KEYS, "QUIT", "Closes the connection."),
    spec(Verb::ResetConnection, "RESET", (1, 1), NO_KEYS, "RESET", "Makes the connection as good as new."),
];

impl Spec {
    /// Whether it may be said before the password.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.verb, Verb::Auth | Verb::Hello | Verb::Quit | Verb::ResetConnection)
    }

    /// The number of arguments as Redis tells it: negative for "at least".
    pub(super) fn arity(&self) -> i64 {
        let least = i64::try_from(self.least).unwrap_or(i64::MAX);
        if self.least == self.most { least } else { -least }
    }

    /// What kind of command it is, in the words of Redis.
    pub(super) fn flags(&self) -> &'static [&'static str] {
        match self.verb {
            Verb::Peek | Verb::Next | Verb::Rules => &["readonly", "fast"],
            Verb::Acquire => &["write", "denyoom", "blocking"],
            _ if self.name.contains('.') => &["write", "denyoom", "fast"],
            _ if self.is_open() => &["noscript", "loading", "stale", "fast", "no_auth"],
            _ => &["loading", "stale", "fast"],
        }
    }
}

/// The command of this name.
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    COMMANDS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

/// How each command is written, as the documentation has to have it.
pub fn usages() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|spec| spec.usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        for spec in COMMANDS {
            let lower = spec.name.to_ascii_lowercase();
            assert_eq!(find(lower.as_bytes()).unwrap().verb, spec.verb);
            assert!(spec.usage.starts_with(spec.name), "{}", spec.usage);
            assert!(spec.least <= spec.most);
        }
        assert!(find(b"").is_none() && find(b"RL.CHEC").is_none() && find(b"RL.CHECK\0").is_none());
    }
}
