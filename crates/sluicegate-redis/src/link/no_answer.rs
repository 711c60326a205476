//! Why a script call has no answer, as a server's reply or its absence tells.

use super::connection::words;
use redis::{ServerErrorKind, Value};
use sluicegate::backend::StoreFailure;
use std::time::Duration;

/// Why a script call has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoAnswer {
    /// It was not sent.
    Away(String),
    /// No reply came in time. The script may have run.
    Late,
    /// The connection broke before the reply came. The script may have run.
    Lost(String),
    /// The script ran, and answered something that is none of its answers.
    Strange(String),
    /// The server does not know the script. Nothing ran.
    NoScript(String),
    /// Another node of the cluster has this hash slot. Nothing ran.
    Moved(String),
    /// Another node of the cluster has this key, or would have it. Nothing ran.
    Ask(String),
    /// Keys of the call are being moved between nodes. Nothing ran.
    TryAgain(String),
    /// The cluster serves no calls. Nothing ran.
    ClusterDown(String),
    /// The server became a replica. Nothing ran.
    ReadOnly(String),
    /// It is starting, or busy with something else, or without its master. Nothing ran.
    NotReady(String),
    /// It refused. Nothing ran.
    Refused(String),
}

impl NoAnswer {
    /// The answer in a server's reply.
    pub(crate) fn or_answer(reply: Value) -> Result<Value, NoAnswer> {
        let Value::ServerError(error) = &reply else {
            // Our scripts never answer with an error inside; if there is one, it is no answer.
            return reply.extract_error().map_err(|error| {
                NoAnswer::Strange(format!("there is an error inside of the answer: {error}"))
            });
        };
        let said = words(error);
        Err(match error.kind() {
            Some(ServerErrorKind::NoScript) => NoAnswer::NoScript(said),
            Some(ServerErrorKind::Moved) => NoAnswer::Moved(said),
            Some(ServerErrorKind::Ask) => NoAnswer::Ask(said),
            Some(ServerErrorKind::TryAgain) => NoAnswer::TryAgain(said),
            Some(ServerErrorKind::ClusterDown) => NoAnswer::ClusterDown(said),
            Some(ServerErrorKind::ReadOnly) => NoAnswer::ReadOnly(said),
            Some(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown) => NoAnswer::NotReady(said),
            _ if error.code() == "BUSY" => NoAnswer::NotReady(said),
            _ => NoAnswer::Refused(said),
        })
    }

    /// Whether there was no reply at all.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, NoAnswer::Late | NoAnswer::Lost(_))
    }

    /// What it is for a caller whose call is not sent again. `deadline` is how long it had.
    pub(crate) fn failure(self, deadline: Duration) -> StoreFailure {
        match self {
            NoAnswer::Away(why) => StoreFailure::Unavailable(why),
            NoAnswer::Late => StoreFailure::TimedOut { deadline },
            NoAnswer::Lost(why) | NoAnswer::Strange(why) => StoreFailure::Disconnected(why),
            NoAnswer::NoScript(said)
            | NoAnswer::Moved(said)
            | NoAnswer::Ask(said)
            | NoAnswer::TryAgain(said)
            | NoAnswer::ClusterDown(said)
            | NoAnswer::ReadOnly(said)
            | NoAnswer::NotReady(said)
            | NoAnswer::Refused(said) => StoreFailure::Rejected(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NoAnswer;
    use redis::{Value, parse_redis_value};
    use sluicegate::backend::StoreFailure;
    use std::time::Duration;

    fn read(bytes: &str) -> Result<Value, NoAnswer> {
        NoAnswer::or_answer(parse_redis_value(bytes.as_bytes()).unwrap())
    }

    #[test]
    fn an_error_is_never_an_answer() {
        let failure = |bytes: &str| read(bytes).unwrap_err().failure(Duration::ZERO);
        let refused = failure("-OOM command not allowed\r\n");
        assert_eq!(refused, StoreFailure::Rejected("OOM command not allowed".to_owned()));
        let inside = failure("*2\r\n:1\r\n*1\r\n-ERR no\r\n");
        assert!(inside.may_have_charged(), "{inside:?}");
        assert_eq!(read("*1\r\n:1\r\n"), Ok(Value::Array(vec![Value::Int(1)])));
    }

    #[test]
    fn errors_that_prove_that_nothing_ran_are_told_apart() {
        for (bytes, wanted) in [
            ("-NOSCRIPT x\r\n", NoAnswer::NoScript("NOSCRIPT x".to_owned())),
            ("-MOVED 1 h:2\r\n", NoAnswer::Moved("MOVED 1 h:2".to_owned())),
            ("-ASK 1 h:2\r\n", NoAnswer::Ask("ASK 1 h:2".to_owned())),
            ("-TRYAGAIN x\r\n", NoAnswer::TryAgain("TRYAGAIN x".to_owned())),
            ("-CLUSTERDOWN x\r\n", NoAnswer::ClusterDown("CLUSTERDOWN x".to_owned())),
            ("-READONLY x\r\n", NoAnswer::ReadOnly("READONLY x".to_owned())),
            ("-LOADING x\r\n", NoAnswer::NotReady("LOADING x".to_owned())),
            ("-MASTERDOWN x\r\n", NoAnswer::NotReady("MASTERDOWN x".to_owned())),
            ("-BUSY x\r\n", NoAnswer::NotReady("BUSY x".to_owned())),
            ("-NOPERM x\r\n", NoAnswer::Refused("NOPERM x".to_owned())),
            ("-CROSSSLOT x\r\n", NoAnswer::Refused("CROSSSLOT x".to_owned())),
            ("-NOAUTH x\r\n", NoAnswer::Refused("NOAUTH x".to_owned())),
        ] {
            assert_eq!(read(bytes), Err(wanted));
        }
    }
}
