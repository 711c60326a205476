//! What a server's reply means for a call.

use super::line::words;
use crate::failure::StoreFailure;
use redis::{ServerErrorKind, Value};

/// A reply, understood.
#[derive(PartialEq, Debug)]
pub(crate) enum Reply {
    /// The script ran.
    Answer(Value),
    /// The server does not know the script. Nothing ran.
    NoScript(String),
    /// Another node of the cluster has this slot. Nothing ran.
    Moved(String),
    /// Another node of the cluster has this key, or would if there were one. Nothing ran.
    Ask(String),
    /// Not now: keys are on their way between nodes. Nothing ran.
    TryAgain(String),
    /// Not now: the cluster serves nobody. Nothing ran.
    ClusterDown(String),
    /// The server became a replica. Nothing ran.
    ReadOnly(String),
    /// It is starting, or busy with something else, or without its master. Nothing ran.
    NotReady(String),
    /// It said no.
    Refused(String),
    /// The script ran, and answered something that is none of its answers.
    Strange(String),
}

impl Reply {
    pub(crate) fn read(value: Value) -> Reply {
        let Value::ServerError(error) = &value else {
            // Errors inside of an answer never come from our scripts; if they do, they are no answer.
            return match value.extract_error() {
                Ok(value) => Reply::Answer(value),
                Err(error) => Reply::Strange(format!("there is an error inside of the answer: {error}")),
            };
        };
        let said = words(error);
        match error.kind() {
            Some(ServerErrorKind::NoScript) => Reply::NoScript(said),
            Some(ServerErrorKind::Moved) => Reply::Moved(said),
            Some(ServerErrorKind::Ask) => Reply::Ask(said),
            Some(ServerErrorKind::TryAgain) => Reply::TryAgain(said),
            Some(ServerErrorKind::ClusterDown) => Reply::ClusterDown(said),
            Some(ServerErrorKind::ReadOnly) => Reply::ReadOnly(said),
            Some(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown) => Reply::NotReady(said),
            _ if error.code() == "BUSY" => Reply::NotReady(said),
            _ => Reply::Refused(said),
        }
    }

    /// The answer, or what its absence is for a caller who will not ask again.
    pub(crate) fn finish(self) -> Result<Value, StoreFailure> {
        match self {
            Reply::Answer(value) => Ok(value),
            Reply::Strange(why) => Err(StoreFailure::Lost(why)),
            Reply::NoScript(said)
            | Reply::Moved(said)
            | Reply::Ask(said)
            | Reply::TryAgain(said)
            | Reply::ClusterDown(said)
            | Reply::ReadOnly(said)
            | Reply::NotReady(said)
            | Reply::Refused(said) => Err(StoreFailure::Refused(said)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reply;
    use crate::failure::StoreFailure;
    use redis::{Value, parse_redis_value};

    fn read(bytes: &str) -> Reply {
        Reply::read(parse_redis_value(bytes.as_bytes()).unwrap())
    }

    #[test]
    fn an_error_is_never_an_answer() {
        let refused = read("-OOM command not allowed\r\n").finish();
        assert_eq!(refused, Err(StoreFailure::Refused("OOM command not allowed".to_owned())));
        let inside = read("*2\r\n:1\r\n*1\r\n-ERR no\r\n").finish();
        assert!(matches!(&inside, Err(failure) if failure.may_have_charged()), "{inside:?}");
        assert_eq!(read("*1\r\n:1\r\n").finish(), Ok(Value::Array(vec![Value::Int(1)])));
    }

    #[test]
    fn errors_that_prove_that_nothing_ran_are_told_apart() {
        for (bytes, wanted) in [
            ("-NOSCRIPT x\r\n", Reply::NoScript("NOSCRIPT x".to_owned())),
            ("-MOVED 1 h:2\r\n", Reply::Moved("MOVED 1 h:2".to_owned())),
            ("-ASK 1 h:2\r\n", Reply::Ask("ASK 1 h:2".to_owned())),
            ("-TRYAGAIN x\r\n", Reply::TryAgain("TRYAGAIN x".to_owned())),
            ("-CLUSTERDOWN x\r\n", Reply::ClusterDown("CLUSTERDOWN x".to_owned())),
            ("-READONLY x\r\n", Reply::ReadOnly("READONLY x".to_owned())),
            ("-LOADING x\r\n", Reply::NotReady("LOADING x".to_owned())),
            ("-MASTERDOWN x\r\n", Reply::NotReady("MASTERDOWN x".to_owned())),
            ("-BUSY x\r\n", Reply::NotReady("BUSY x".to_owned())),
            ("-NOPERM x\r\n", Reply::Refused("NOPERM x".to_owned())),
            ("-CROSSSLOT x\r\n", Reply::Refused("CROSSSLOT x".to_owned())),
            ("-NOAUTH x\r\n", Reply::Refused("NOAUTH x".to_owned())),
        ] {
            assert_eq!(read(bytes), wanted);
        }
    }
}
