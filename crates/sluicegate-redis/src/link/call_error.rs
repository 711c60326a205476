//! Why a script call has no answer, as shown by the server's reply or by its absence.

use super::connection::server_message;
use redis::{ServerErrorKind, Value};
use sluicegate::backend::StoreFailure;
use std::time::Duration;

/// Why a script call has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CallError {
    /// The call was not sent.
    Unavailable(String),
    /// No reply arrived in time. The script may have run.
    TimedOut,
    /// The connection broke before the reply arrived. The script may have run.
    Disconnected(String),
    /// The script ran, but its reply is invalid.
    BadReply(String),
    /// The server does not have the script. Nothing ran.
    NoScript(String),
    /// Another cluster node owns the hash slot. Nothing ran.
    Moved(String),
    /// The hash slot is migrating, and the key is on the other node. Nothing ran.
    Ask(String),
    /// The call's keys are migrating between nodes. Nothing ran.
    TryAgain(String),
    /// The cluster is down. Nothing ran.
    ClusterDown(String),
    /// The server is a replica now. Nothing ran.
    ReadOnly(String),
    /// The server is loading its data, running a long script, or a replica without its master.
    /// Nothing ran.
    NotReady(String),
    /// The server rejected the call. Nothing ran.
    Rejected(String),
}

impl CallError {
    /// Returns the script's answer, or why the reply is not one.
    pub(crate) fn read(reply: Value) -> Result<Value, CallError> {
        let Value::ServerError(error) = &reply else {
            // Our scripts never return an error inside an answer.
            return reply
                .extract_error()
                .map_err(|error| CallError::BadReply(format!("the reply contains an error: {error}.")));
        };
        let message = server_message(error);
        Err(match error.kind() {
            Some(ServerErrorKind::NoScript) => CallError::NoScript(message),
            Some(ServerErrorKind::Moved) => CallError::Moved(message),
            Some(ServerErrorKind::Ask) => CallError::Ask(message),
            Some(ServerErrorKind::TryAgain) => CallError::TryAgain(message),
            Some(ServerErrorKind::ClusterDown) => CallError::ClusterDown(message),
            Some(ServerErrorKind::ReadOnly) => CallError::ReadOnly(message),
            Some(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown) => CallError::NotReady(message),
            _ if error.code() == "BUSY" => CallError::NotReady(message),
            _ => CallError::Rejected(message),
        })
    }

    /// Returns `true` if there was no reply at all.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, CallError::TimedOut | CallError::Disconnected(_))
    }

    /// Returns the failure that the caller sees once the call is not retried. `deadline` is how
    /// long it had.
    pub(crate) fn into_failure(self, deadline: Duration) -> StoreFailure {
        match self {
            CallError::Unavailable(why) => StoreFailure::Unavailable(why),
            CallError::TimedOut => StoreFailure::TimedOut { deadline },
            CallError::Disconnected(why) => StoreFailure::Disconnected(why),
            CallError::BadReply(why) => StoreFailure::BadReply(why),
            CallError::NoScript(message)
            | CallError::Moved(message)
            | CallError::Ask(message)
            | CallError::TryAgain(message)
            | CallError::ClusterDown(message)
            | CallError::ReadOnly(message)
            | CallError::NotReady(message)
            | CallError::Rejected(message) => StoreFailure::Rejected(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CallError;
    use redis::{Value, parse_redis_value};
    use sluicegate::backend::StoreFailure;
    use std::time::Duration;

    fn read(bytes: &str) -> Result<Value, CallError> {
        CallError::read(parse_redis_value(bytes.as_bytes()).unwrap())
    }

    #[test]
    fn an_error_is_never_an_answer() {
        let failure = |bytes: &str| read(bytes).unwrap_err().into_failure(Duration::ZERO);
        let rejected = failure("-OOM command not allowed\r\n");
        assert_eq!(rejected, StoreFailure::Rejected("OOM command not allowed".to_owned()));
        let nested = failure("*2\r\n:1\r\n*1\r\n-ERR no\r\n");
        assert!(matches!(nested, StoreFailure::BadReply(_)) && nested.may_have_charged(), "{nested:?}");
        assert_eq!(read("*1\r\n:1\r\n"), Ok(Value::Array(vec![Value::Int(1)])));
    }

    #[test]
    fn errors_that_prove_that_nothing_ran_are_distinguished() {
        for (bytes, wanted) in [
            ("-NOSCRIPT x\r\n", CallError::NoScript("NOSCRIPT x".to_owned())),
            ("-MOVED 1 h:2\r\n", CallError::Moved("MOVED 1 h:2".to_owned())),
            ("-ASK 1 h:2\r\n", CallError::Ask("ASK 1 h:2".to_owned())),
            ("-TRYAGAIN x\r\n", CallError::TryAgain("TRYAGAIN x".to_owned())),
            ("-CLUSTERDOWN x\r\n", CallError::ClusterDown("CLUSTERDOWN x".to_owned())),
            ("-READONLY x\r\n", CallError::ReadOnly("READONLY x".to_owned())),
            ("-LOADING x\r\n", CallError::NotReady("LOADING x".to_owned())),
            ("-MASTERDOWN x\r\n", CallError::NotReady("MASTERDOWN x".to_owned())),
            ("-BUSY x\r\n", CallError::NotReady("BUSY x".to_owned())),
            ("-NOPERM x\r\n", CallError::Rejected("NOPERM x".to_owned())),
            ("-CROSSSLOT x\r\n", CallError::Rejected("CROSSSLOT x".to_owned())),
            ("-NOAUTH x\r\n", CallError::Rejected("NOAUTH x".to_owned())),
        ] {
            assert_eq!(read(bytes), Err(wanted));
        }
    }
}
