//! Parses `CLUSTER SLOTS` and redirections.

use super::address::Endpoint;
use super::slot::SLOTS;
use redis::Value;

/// A range of slots, both ends included, and its nodes: the master first, then the replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) endpoints: Vec<Endpoint>,
}

/// Parses a `CLUSTER SLOTS` reply of the node at `replied_by`.
pub(crate) fn read(reply: &Value, replied_by: &Endpoint) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(|range| read_range(range, replied_by)).collect()
}

fn read_range(range: &Value, replied_by: &Endpoint) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), nodes @ ..] = parts.as_slice() else { return None };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let endpoints: Vec<Endpoint> = nodes.iter().filter_map(|node| read_node(node, replied_by)).collect();
    (first <= last && last < SLOTS && !endpoints.is_empty()).then_some(Range { first, last, endpoints })
}

fn read_node(node: &Value, replied_by: &Endpoint) -> Option<Endpoint> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = super::connection::text(host).unwrap_or_default();
    endpoint(&host, u16::try_from(*port).ok()?, replied_by)
}

/// Returns the endpoint that a redirection of the node at `by` names: `MOVED 3999 127.0.0.1:6381`,
/// or `ASK`.
pub(crate) fn redirected(message: &str, by: &Endpoint) -> Option<Endpoint> {
    let (host, port) = message.split(' ').nth(2)?.rsplit_once(':')?;
    endpoint(host, port.parse().ok()?, by)
}

/// An empty host or `?` is the host of the node that replied.
fn endpoint(host: &str, port: u16, replied_by: &Endpoint) -> Option<Endpoint> {
    let host = match (host, replied_by) {
        ("" | "?", Endpoint::Tcp { host, .. }) => host.clone(),
        ("" | "?", Endpoint::Unix(_)) => return None,
        (host, _) => host.trim_matches(['[', ']']).to_owned(),
    };
    (port != 0).then_some(Endpoint::Tcp { host, port })
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, Range, read, redirected};
    use redis::Value;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.to_owned(), port }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec()), Value::Array(vec![])])
    }

    #[test]
    fn a_redirection_names_an_endpoint() {
        let by = tcp("me", 1);
        assert_eq!(redirected("MOVED 3999 127.0.0.1:6381", &by), Some(tcp("127.0.0.1", 6381)));
        assert_eq!(redirected("ASK 3999 ::1:6381", &by), Some(tcp("::1", 6381)));
        assert_eq!(redirected("MOVED 3999 :6381", &by), Some(tcp("me", 6381)));
        assert_eq!(redirected("MOVED 3999 ?:6381", &by), Some(tcp("me", 6381)));
        for message in ["MOVED", "MOVED 1", "MOVED 1 h", "MOVED 1 h:x", "MOVED 1 h:0", "MOVED 1 h:70000"] {
            assert_eq!(redirected(message, &by), None, "{message}");
        }
    }

    #[test]
    fn a_slot_table_is_parsed_and_nonsense_is_rejected() {
        let host = Value::BulkString(b"h".to_vec());
        let range =
            |first, last, host| Value::Array(vec![Value::Int(first), Value::Int(last), node(host, 7)]);
        let replied_by = tcp("me", 1);
        let good = Value::Array(vec![range(0, 5, host.clone()), range(6, 16_383, Value::Nil)]);
        let wanted = vec![
            Range { first: 0, last: 5, endpoints: vec![tcp("h", 7)] },
            Range { first: 6, last: 16_383, endpoints: vec![tcp("me", 7)] },
        ];
        assert_eq!(read(&good, &replied_by), Some(wanted));
        for (first, last) in [(5, 4), (0, 16_384), (-1, 3), (0, 70_000)] {
            assert_eq!(read(&Value::Array(vec![range(first, last, host.clone())]), &replied_by), None);
        }
        assert_eq!(read(&Value::Nil, &replied_by), None);
        assert_eq!(
            read(&Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(1)])]), &replied_by),
            None
        );
    }
}
