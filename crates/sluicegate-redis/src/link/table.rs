//! Which node of a cluster has which slots, as `CLUSTER SLOTS` tells it.

use super::address::Place;
use super::slot::SLOTS;
use redis::Value;

/// The slots from one to another, both included, and who has them: the master first, then its replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) places: Vec<Place>,
}

/// Reads a reply to `CLUSTER SLOTS` of the node at a place.
pub(crate) fn read(reply: &Value, asked: &Place) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    ranges.iter().map(|range| read_range(range, asked)).collect()
}

fn read_range(range: &Value, asked: &Place) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), nodes @ ..] = parts.as_slice() else { return None };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let places: Vec<Place> = nodes.iter().filter_map(|node| read_node(node, asked)).collect();
    (first <= last && last < SLOTS && !places.is_empty()).then_some(Range { first, last, places })
}

fn read_node(node: &Value, asked: &Place) -> Option<Place> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = super::connection::text(host).unwrap_or_default();
    place(&host, u16::try_from(*port).ok()?, asked)
}

/// Where a redirection leads: `MOVED 3999 127.0.0.1:6381`, or `ASK`, said by the node at a place.
pub(crate) fn redirected(said: &str, by: &Place) -> Option<Place> {
    let (host, port) = said.split(' ').nth(2)?.rsplit_once(':')?;
    place(host, port.parse().ok()?, by)
}

/// A node that does not know its own name says nothing or `?`: it is where the one who says so is.
fn place(host: &str, port: u16, told_by: &Place) -> Option<Place> {
    let host = match (host, told_by) {
        ("" | "?", Place::Tcp { host, .. }) => host.clone(),
        ("" | "?", Place::Unix(_)) => return None,
        (host, _) => host.trim_matches(['[', ']']).to_owned(),
    };
    (port != 0).then_some(Place::Tcp { host, port })
}

#[cfg(test)]
mod tests {
    use super::{Place, Range, read, redirected};
    use redis::Value;

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp { host: host.to_owned(), port }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec()), Value::Array(vec![])])
    }

    #[test]
    fn a_redirection_leads_to_a_place() {
        let by = tcp("me", 1);
        assert_eq!(redirected("MOVED 3999 127.0.0.1:6381", &by), Some(tcp("127.0.0.1", 6381)));
        assert_eq!(redirected("ASK 3999 ::1:6381", &by), Some(tcp("::1", 6381)));
        assert_eq!(redirected("MOVED 3999 :6381", &by), Some(tcp("me", 6381)));
        assert_eq!(redirected("MOVED 3999 ?:6381", &by), Some(tcp("me", 6381)));
        for said in ["MOVED", "MOVED 1", "MOVED 1 h", "MOVED 1 h:x", "MOVED 1 h:0", "MOVED 1 h:70000"] {
            assert_eq!(redirected(said, &by), None, "{said}");
        }
    }

    #[test]
    fn a_table_is_read_and_nonsense_is_not() {
        let host = Value::BulkString(b"h".to_vec());
        let range =
            |first, last, host| Value::Array(vec![Value::Int(first), Value::Int(last), node(host, 7)]);
        let asked = tcp("me", 1);
        let good = Value::Array(vec![range(0, 5, host.clone()), range(6, 16_383, Value::Nil)]);
        let wanted = vec![
            Range { first: 0, last: 5, places: vec![tcp("h", 7)] },
            Range { first: 6, last: 16_383, places: vec![tcp("me", 7)] },
        ];
        assert_eq!(read(&good, &asked), Some(wanted));
        for (first, last) in [(5, 4), (0, 16_384), (-1, 3), (0, 70_000)] {
            assert_eq!(read(&Value::Array(vec![range(first, last, host.clone())]), &asked), None);
        }
        assert_eq!(read(&Value::Nil, &asked), None);
        assert_eq!(read(&Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(1)])]), &asked), None);
    }
}
