//! The table of commands: name, number of arguments, usage and summary.
//!
//! Every command is looked up here, `COMMAND` returns it, and a test compares `docs/protocol.md`
//! with it.

/// Identifies a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommandId {
    Throttle,
    Check,
    Peek,
    CheckAll,
    Take,
    Reserve,
    ReserveAll,
    Cancel,
    Settle,
    Extend,
    Refund,
    Reset,
    Next,
    Usage,
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
    Multi,
    Exec,
    Discard,
    Quit,
    ResetConnection,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandSpec {
    pub(super) id: CommandId,
    /// The name in upper case; clients may use any case.
    pub(super) name: &'static str,
    /// The fewest and the most arguments, including the name.
    pub(super) least: usize,
    pub(super) most: usize,
    /// The positions of keys: first, last (-1: the last argument) and step; zeros if there are
    /// none.
    pub(super) keys: [i8; 3],
    /// The syntax.
    pub(super) usage: &'static str,
    /// One sentence on what it does.
    pub(super) summary: &'static str,
}

/// Any number of arguments, up to `arguments_max`.
const ANY: usize = usize::MAX;
const NO_KEYS: [i8; 3] = [0; 3];
/// `RL.CHECK rule key ...`
const KEY_AFTER_RULE: [i8; 3] = [2, 2, 1];

const fn spec(
    id: CommandId,
    name: &'static str,
    (least, most): (usize, usize),
    keys: [i8; 3],
    usage: &'static str,
    summary: &'static str,
) -> CommandSpec {
    CommandSpec { id, name, least, most, keys, usage, summary }
}

/// All commands, the most frequent ones first: the search is linear.
#[rustfmt::skip]
pub(super) const COMMANDS: [CommandSpec; 32] = [
    spec(CommandId::Check, "RL.CHECK", (3, 7), KEY_AFTER_RULE, "RL.CHECK rule key [COST n] [MAXWAIT ms]", "Decides a call and charges it if allowed. With MAXWAIT, also allows it after a delay of at most that long."),
    spec(CommandId::Throttle, "CL.THROTTLE", (5, 6), [1, 1, 1], "CL.THROTTLE key max_burst count period_s [quantity]", "Compatible with redis-cell: decides a call under a token bucket given by its arguments."),
    spec(CommandId::Peek, "RL.PEEK", (3, 5), KEY_AFTER_RULE, "RL.PEEK rule key [COST n]", "Decides a call without charging it."),
    spec(CommandId::CheckAll, "RL.CHECKALL", (4, ANY), [2, -1, 3], "RL.CHECKALL rule key cost [rule key cost ...]", "Decides several calls and charges all of them or none."),
    spec(CommandId::Take, "RL.TAKE", (4, 4), KEY_AFTER_RULE, "RL.TAKE rule key n", "Charges what remains, up to n."),
    spec(CommandId::Reserve, "RL.RESERVE", (3, 13), KEY_AFTER_RULE, "RL.RESERVE rule key [COST n] [ATLEAST m] [MAXWAIT ms] [TTL ms [THEN keep|cancel]]", "Charges a call now, to act after its delay, and returns a receipt. With ATLEAST, accepts less than the cost."),
    spec(CommandId::ReserveAll, "RL.RESERVEALL", (4, ANY), [2, -1, 3], "RL.RESERVEALL rule key cost [rule key cost ...] [MAXWAIT ms] [TTL ms [THEN keep|cancel]]", "Charges several calls now, all of them or none, and returns one receipt."),
    spec(CommandId::Cancel, "RL.CANCEL", (2, 2), NO_KEYS, "RL.CANCEL receipt", "Returns the part of a reservation that still counts."),
    spec(CommandId::Settle, "RL.SETTLE", (3, ANY), NO_KEYS, "RL.SETTLE receipt n [n ...]", "Reports the cost that a reservation actually used."),
    spec(CommandId::Extend, "RL.EXTEND", (3, ANY), NO_KEYS, "RL.EXTEND receipt n [n ...] [TTL ms]", "Charges more to a reservation, and restarts its time to live."),
    spec(CommandId::Refund, "RL.REFUND", (3, 5), KEY_AFTER_RULE, "RL.REFUND rule key [COST n]", "Returns cost to a key."),
    spec(CommandId::Reset, "RL.RESET", (3, 3), KEY_AFTER_RULE, "RL.RESET rule key", "Deletes the state of a key."),
    spec(CommandId::Next, "RL.NEXT", (3, 3), KEY_AFTER_RULE, "RL.NEXT rule key", "Returns when a key's next window starts, or its next unit is available."),
    spec(CommandId::Usage, "RL.USAGE", (3, 3), KEY_AFTER_RULE, "RL.USAGE rule key", "Returns what a key has used under each limit of a rule."),
    spec(CommandId::Acquire, "RL.ACQUIRE", (3, 7), KEY_AFTER_RULE, "RL.ACQUIRE rule key [COST n] [MAXWAIT ms]", "Acquires a lease of a concurrency limit. With MAXWAIT, waits in a queue for it."),
    spec(CommandId::Renew, "RL.RENEW", (4, 4), KEY_AFTER_RULE, "RL.RENEW rule key lease", "Extends a live lease by a full TTL."),
    spec(CommandId::Release, "RL.RELEASE", (4, 4), KEY_AFTER_RULE, "RL.RELEASE rule key lease", "Releases a lease."),
    spec(CommandId::Rules, "RL.RULES", (1, 1), NO_KEYS, "RL.RULES", "Lists the rules and their limits."),
    spec(CommandId::Ping, "PING", (1, 2), NO_KEYS, "PING [message]", "Returns PONG, or the message."),
    spec(CommandId::Echo, "ECHO", (2, 2), NO_KEYS, "ECHO message", "Returns the message."),
    spec(CommandId::Hello, "HELLO", (1, ANY), NO_KEYS, "HELLO [2|3 [AUTH user password] [SETNAME name]]", "Selects the protocol version."),
    spec(CommandId::Auth, "AUTH", (2, 3), NO_KEYS, "AUTH [user] password", "Authenticates the connection."),
    spec(CommandId::Select, "SELECT", (2, 2), NO_KEYS, "SELECT 0", "Selects database 0, the only one."),
    spec(CommandId::Client, "CLIENT", (2, ANY), NO_KEYS, "CLIENT ID|INFO|LIST|GETNAME|SETNAME|SETINFO|REPLY|NO-EVICT|NO-TOUCH|TRACKING [...]", "Describes this connection, or names it."),
    spec(CommandId::Command, "COMMAND", (1, ANY), NO_KEYS, "COMMAND [COUNT|LIST|INFO|DOCS [name ...]]", "Describes commands."),
    spec(CommandId::Info, "INFO", (1, ANY), NO_KEYS, "INFO [section ...]", "Describes the server."),
    spec(CommandId::Config, "CONFIG", (2, ANY), NO_KEYS, "CONFIG GET pattern [pattern ...]", "Returns settings that clients ask for."),
    spec(CommandId::Multi, "MULTI", (1, 1), NO_KEYS, "MULTI", "Queues the commands that follow until EXEC."),
    spec(CommandId::Exec, "EXEC", (1, 1), NO_KEYS, "EXEC", "Runs the queued commands in order."),
    spec(CommandId::Discard, "DISCARD", (1, 1), NO_KEYS, "DISCARD", "Drops the queued commands."),
    spec(CommandId::Quit, "QUIT", (1, ANY), NO_KEYS, "QUIT", "Closes the connection."),
    spec(CommandId::ResetConnection, "RESET", (1, 1), NO_KEYS, "RESET", "Resets the connection to its initial state."),
];

impl CommandSpec {
    /// Returns `true` if the command is allowed before authentication.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.id, CommandId::Auth | CommandId::Hello | CommandId::Quit | CommandId::ResetConnection)
    }

    /// The number of arguments as Redis reports it: negative for "at least".
    pub(super) fn arity(&self) -> i64 {
        let least = i64::try_from(self.least).unwrap_or(i64::MAX);
        if self.least == self.most { least } else { -least }
    }

    /// The command's flags, as Redis names them.
    pub(super) fn flags(&self) -> &'static [&'static str] {
        match self.id {
            CommandId::Peek | CommandId::Next | CommandId::Usage | CommandId::Rules => &["readonly", "fast"],
            CommandId::Acquire => &["write", "denyoom", "blocking"],
            _ if self.name.contains('.') => &["write", "denyoom", "fast"],
            _ if self.is_open() => &["noscript", "loading", "stale", "fast", "no_auth"],
            _ => &["loading", "stale", "fast"],
        }
    }
}

/// Finds the command of this name.
pub(super) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The syntax of each command. The documentation must contain all of them.
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
            assert_eq!(find(lower.as_bytes()).unwrap().id, spec.id);
            assert!(spec.usage.starts_with(spec.name), "{}", spec.usage);
            assert!(spec.least <= spec.most);
        }
        assert!(find(b"").is_none() && find(b"RL.CHEC").is_none() && find(b"RL.CHECK\0").is_none());
    }
}
