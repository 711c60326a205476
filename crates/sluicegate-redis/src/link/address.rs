//! Addresses of stores, as they are written.
//!
//! One server     `redis://[user][:password@]host[:port][/db]`, with TLS `rediss://`
//! Unix socket    `redis+unix:///path[?db=1&user=u&pass=p]`, or `unix:`
//! Sentinel       `redis+sentinel://[user:password@]host[:port],host[:port]/master[/db]`, with TLS `rediss+sentinel:`
//! Cluster        `redis+cluster://[user:password@]host[:port],host[:port]`, with TLS `rediss+cluster:`
//!
//! `valkey` may stand for `redis` everywhere. What is special in a user or a password is percent-encoded.
//! An error shows the address without its password, and quotes no part of it, since a password that is
//! written wrongly may have ended up in any of them.

use percent_encoding::percent_decode_str;
use redis::RedisConnectionInfo;
use std::fmt;
use std::path::PathBuf;

const PORT_DEFAULT: u16 = 6379;
const SENTINEL_PORT_DEFAULT: u16 = 26_379;
/// Hosts in one address. A client needs one that answers; more than this is a mistake.
const HOSTS_MAX: usize = 100;

/// An address that was understood.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) shape: Shape,
    /// User, password and database. Its `Debug` leaves the password out.
    pub(crate) login: RedisConnectionInfo,
    pub(crate) tls: bool,
}

/// What is at an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// A server, or a node of a cluster: it says which itself.
    One(Place),
    /// Those who know which server is the master at the moment.
    Sentinel { sentinels: Vec<Place>, master: String },
    /// Some of a cluster's nodes.
    Cluster(Vec<Place>),
}

/// Where one server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    /// Reads an address. The error is a sentence with the address, less its password.
    pub(crate) fn parse(url: &str) -> Result<Address, String> {
        let wrong = |why: &str| {
            let shown = without_password(url);
            format!("{shown}: {why}; write redis://user:password@host:port/db, or see the manual for others")
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let scheme = scheme.to_ascii_lowercase().replace("valkey", "redis");
        if scheme == "unix" || scheme == "redis+unix" {
            return unix(rest).map_err(wrong);
        }
        let tls = scheme.starts_with("rediss");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains(['?', '#']) {
            return Err(wrong(
                "it has a `?` or a `#`, which mean nothing here (in a password they are %3F and %23)",
            ));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (read_login(login).map_err(wrong)?, hosts),
            None => (RedisConnectionInfo::default().set_skip_set_lib_name(), authority),
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        let (shape, db) = match scheme.as_str() {
            "redis" | "rediss" => match places(hosts, PORT_DEFAULT).map_err(wrong)?.as_slice() {
                [place] => (Shape::One(place.clone()), path),
                _ => return Err(wrong("several hosts are a redis+cluster:// or a redis+sentinel://")),
            },
            "redis+sentinel" | "rediss+sentinel" => {
                let (master, db) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(wrong("the name of the master is missing: redis+sentinel://host:26379/name"));
                }
                let master = decoded(master).map_err(wrong)?;
                let sentinels = places(hosts, SENTINEL_PORT_DEFAULT).map_err(wrong)?;
                (Shape::Sentinel { sentinels, master }, db)
            }
            "redis+cluster" | "rediss+cluster" => {
                (Shape::Cluster(places(hosts, PORT_DEFAULT).map_err(wrong)?), path)
            }
            _ => return Err(wrong("its scheme is not known")),
        };
        let db = read_db(db).map_err(wrong)?;
        if db != 0 && matches!(shape, Shape::Cluster(_)) {
            return Err(wrong("a cluster has no databases but 0"));
        }
        Ok(Address { shape, login: login.set_db(db), tls })
    }
}

/// A store's address for messages and logs: without user, password and query.
///
/// It hides too much rather than too little, as the address may be written wrongly.
///
/// ```
/// assert_eq!(sluicegate_redis::without_password("redis://app:secret@10.0.0.7:6379/2"), "redis://***@10.0.0.7:6379/2");
/// ```
#[must_use]
pub fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_unix = scheme.to_ascii_lowercase().ends_with("unix");
    let shown = match before_query.rsplit_once('@') {
        // The last `@` of all: a password with a `/` that should have been encoded is still one.
        _ if !is_unix && query.contains('@') => "***".to_owned(),
        Some((_, place)) => format!("***@{place}"),
        None => before_query.to_owned(),
    };
    if scheme.is_empty() { shown } else { format!("{scheme}://{shown}") }
}

fn read_login(text: &str) -> Result<RedisConnectionInfo, &'static str> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    if !user.is_empty() {
        login = login.set_username(decoded(user)?);
    }
    // A user without a password logs in with an empty one. To leave the login out would quietly
    // make it somebody else, with other rights.
    Ok(login.set_password(decoded(password)?))
}

fn places(hosts: &str, port_default: u16) -> Result<Vec<Place>, &'static str> {
    let places: Vec<Place> =
        hosts.split(',').map(|host| place(host, port_default)).collect::<Result<_, _>>()?;
    if places.len() > HOSTS_MAX { Err("it has more than 100 hosts") } else { Ok(places) }
}

fn place(text: &str, port_default: u16) -> Result<Place, &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("a `[` without a `]`")?;
        (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("")))
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        (host, Some(port))
    };
    if host.is_empty() {
        return Err("a host is missing");
    }
    let port = match port.ok_or("something stands between a `]` and its port")? {
        "" => port_default,
        port => match port.parse() {
            Ok(0) | Err(_) => return Err("a port is not a number from 1 to 65535"),
            Ok(port) => port,
        },
    };
    Ok(Place::Tcp { host: host.to_owned(), port })
}

fn unix(rest: &str) -> Result<Address, &'static str> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        return Err("the path of a socket begins with a `/`: redis+unix:///run/redis.sock");
    }
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        login = match name {
            "db" => login.set_db(read_db(value)?),
            "user" => login.set_username(decoded(value)?),
            "pass" => login.set_password(decoded(value)?),
            _ => return Err("behind the path of a socket come db=, user= or pass="),
        };
    }
    if login.username().is_some() && login.password().is_none() {
        login = login.set_password("");
    }
    Ok(Address { shape: Shape::One(Place::Unix(decoded(path)?.into())), login, tls: false })
}

fn read_db(text: &str) -> Result<i64, &'static str> {
    match text {
        "" => Ok(0),
        text => text.parse::<u16>().map(i64::from).map_err(|_| "the database is not a number up to 65535"),
    }
}

fn decoded(text: &str) -> Result<String, &'static str> {
    let decoded =
        percent_decode_str(text).decode_utf8().map_err(|_| "what is percent-encoded is not UTF-8")?;
    Ok(decoded.into_owned())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Place, Shape, without_password};

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn the_address_of_one_server_is_read() {
        for (url, host, port, user, password, db, tls) in [
            ("redis://h", "h", 6379, None, None, 0, false),
            ("redis://h/", "h", 6379, None, None, 0, false),
            ("valkey://h:1/3", "h", 1, None, None, 3, false),
            ("rediss://:p@h:1", "h", 1, None, Some("p"), 0, true),
            ("redis://u:p%40%2F%3a@h:1/2", "h", 1, Some("u"), Some("p@/:"), 2, false),
            ("redis://u:p@ss@h", "h", 6379, Some("u"), Some("p@ss"), 0, false),
            ("redis://u@h", "h", 6379, Some("u"), Some(""), 0, false),
            ("redis://[::1]:7", "::1", 7, None, None, 0, false),
            ("redis://[::1]", "::1", 6379, None, None, 0, false),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.shape, Shape::One(tcp(host, port)), "{url}");
            assert_eq!(address.login.username(), user, "{url}");
            assert_eq!(address.login.password(), password, "{url}");
            assert_eq!(address.login.db(), db, "{url}");
            assert_eq!(address.tls, tls, "{url}");
        }
    }

    #[test]
    fn several_hosts_are_sentinels_or_nodes_of_a_cluster() {
        let address = Address::parse("redis+sentinel://u:p@a:1,b/mymaster/4").unwrap();
        let sentinels = vec![tcp("a", 1), tcp("b", 26_379)];
        assert_eq!(address.shape, Shape::Sentinel { sentinels, master: "mymaster".to_owned() });
        assert_eq!((address.login.db(), address.login.username()), (4, Some("u")));
        let address = Address::parse("rediss+cluster://a:1,[::1]:2,c").unwrap();
        assert_eq!(address.shape, Shape::Cluster(vec![tcp("a", 1), tcp("::1", 2), tcp("c", 6379)]));
        assert!(address.tls);
    }

    #[test]
    fn a_unix_socket_has_its_login_behind_the_path() {
        let address = Address::parse("redis+unix:///run/r.sock?db=2&user=u&pass=p%26").unwrap();
        assert_eq!(address.shape, Shape::One(Place::Unix("/run/r.sock".into())));
        assert_eq!((address.login.db(), address.login.password()), (2, Some("p&")));
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason_and_without_the_password() {
        for (url, reason) in [
            ("localhost:6379", "no scheme"),
            ("http://u:geheim@h", "scheme is not known"),
            ("redis://u:geheim@", "host is missing"),
            ("redis://u:geheim@h:port", "port is not a number"),
            ("redis://u:geheim@h:0", "port is not a number"),
            ("redis://u:geheim@h/x", "database is not a number"),
            ("redis://u:geh/eim@h", "port is not a number"),
            ("redis://u:geheim@[::1", "without a `]`"),
            ("redis://u:geheim@h#insecure", "mean nothing"),
            ("redis://u:geheim@a,b", "several hosts"),
            ("redis+sentinel://u:geheim@a", "name of the master"),
            ("redis+cluster://u:geheim@a/1", "no databases"),
            ("redis+unix://run?pass=geheim", "begins with a `/`"),
            ("redis://u:%ff@h", "not UTF-8"),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(error.contains(reason), "{url} gives: {error}");
            assert!(!error.contains("geh") && !error.contains("eim"), "the password is in: {error}");
        }
    }

    #[test]
    fn messages_show_an_address_without_its_password() {
        for (url, shown) in [
            ("redis://h:1/2", "redis://h:1/2"),
            ("redis://:p@h:1/2", "redis://***@h:1/2"),
            ("redis://u:p/q@r@h", "redis://***@h"),
            ("redis://u:pa#ss@h", "redis://***@h"),
            ("u:p@h:1", "***@h:1"),
            ("unix:///s?pass=p", "unix:///s"),
            ("redis+unix:///s?pass=a@secret", "redis+unix:///s"),
            ("Valkey+Unix:///s?pass=a@secret", "Valkey+Unix:///s"),
            ("unix://u:p@/s", "unix://***@/s"),
            // A password with a `?`, or a query with an `@`: nobody knows.
            ("redis://u:pa?ss@h", "redis://***"),
            ("redis://h?pass=a@secret", "redis://***"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
