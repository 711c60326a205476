//! Parses the URL of a store.
//!
//! ```text
//! single server   redis://[user][:password@]host[:port][/db]
//! Unix socket     redis+unix:///path[?db=1&user=u&pass=p], or unix:
//! Sentinel        redis+sentinel://[user:password@]host[:port],host[:port]/master[/db]
//! cluster         redis+cluster://[user:password@]host[:port],host[:port]
//! with TLS        rediss: for redis:, also in rediss+sentinel: and rediss+cluster:
//! ```
//!
//! `valkey` may stand for `redis` everywhere. Special characters in a user or a password are
//! percent-encoded. An error shows the URL without its password and quotes no part of it, because a
//! misspelled URL may have its password in any part.

use percent_encoding::percent_decode_str;
use redis::RedisConnectionInfo;
use std::fmt;
use std::path::PathBuf;

const PORT_DEFAULT: u16 = 6379;
const SENTINEL_PORT_DEFAULT: u16 = 26_379;
/// The most hosts in one URL. One that answers is enough; more than this is a mistake.
const HOSTS_MAX: usize = 100;

/// A parsed URL.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) target: StoreAddress,
    /// User, password and database. Its `Debug` omits the password.
    pub(crate) login: RedisConnectionInfo,
    pub(crate) tls: bool,
}

/// What the URL names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StoreAddress {
    /// A single server, or a cluster node: the server says which.
    Server(Endpoint),
    /// The sentinels, and the name of the master that they watch.
    Sentinel { sentinels: Vec<Endpoint>, master: String },
    /// Some nodes of a cluster.
    Cluster(Vec<Endpoint>),
}

/// Where one server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    /// Parses a URL. The error contains the URL without its password.
    pub(crate) fn parse(url: &str) -> Result<Address, String> {
        let wrong = |why: &str| {
            let shown = without_password(url);
            format!(
                "{shown}: {why}; write redis://user:password@host:port/db, or one of the other forms in the manual"
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("the scheme is missing"))?;
        let scheme = scheme.to_ascii_lowercase().replace("valkey", "redis");
        if scheme == "unix" || scheme == "redis+unix" {
            return unix(rest).map_err(wrong);
        }
        let tls = scheme.starts_with("rediss");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if rest.contains(['?', '#']) {
            return Err(wrong("`?` and `#` are not allowed (in a password, write %3F and %23)"));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (read_login(login).map_err(wrong)?, hosts),
            None => (RedisConnectionInfo::default().set_skip_set_lib_name(), authority),
        };
        let path = path.strip_suffix('/').unwrap_or(path);
        let (target, db) = match scheme.as_str() {
            "redis" | "rediss" => match endpoints(hosts, PORT_DEFAULT).map_err(wrong)?.as_slice() {
                [endpoint] => (StoreAddress::Server(endpoint.clone()), path),
                _ => return Err(wrong("for several hosts use redis+cluster:// or redis+sentinel://")),
            },
            "redis+sentinel" | "rediss+sentinel" => {
                let (master, db) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(wrong(
                        "the name of the master is missing, as in redis+sentinel://host:26379/name",
                    ));
                }
                let master = decoded(master).map_err(wrong)?;
                let sentinels = endpoints(hosts, SENTINEL_PORT_DEFAULT).map_err(wrong)?;
                (StoreAddress::Sentinel { sentinels, master }, db)
            }
            "redis+cluster" | "rediss+cluster" => {
                (StoreAddress::Cluster(endpoints(hosts, PORT_DEFAULT).map_err(wrong)?), path)
            }
            _ => return Err(wrong("unknown scheme")),
        };
        let db = read_db(db).map_err(wrong)?;
        if db != 0 && matches!(target, StoreAddress::Cluster(_)) {
            return Err(wrong("a cluster has only database 0"));
        }
        Ok(Address { target, login: login.set_db(db), tls })
    }
}

/// Returns a store's URL without user, password and query, for messages and logs.
///
/// A misspelled URL may have its password anywhere, so this hides too much rather than too little.
///
/// ```
/// assert_eq!(sluicegate_redis::without_password("redis://app:secret@10.0.0.7:6379/2"),
/// "redis://***@10.0.0.7:6379/2");
/// ```
#[must_use]
pub fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_unix = scheme.to_ascii_lowercase().ends_with("unix");
    let shown = match before_query.rsplit_once('@') {
        // Split at the last `@`: a password may contain a `/` that should have been encoded.
        _ if !is_unix && query.contains('@') => "***".to_owned(),
        Some((_, endpoint)) => format!("***@{endpoint}"),
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
    // A user without a password logs in with an empty one. Skipping the login would silently
    // connect as the default user, with other permissions.
    Ok(login.set_password(decoded(password)?))
}

fn endpoints(hosts: &str, port_default: u16) -> Result<Vec<Endpoint>, &'static str> {
    let endpoints: Vec<Endpoint> =
        hosts.split(',').map(|host| endpoint(host, port_default)).collect::<Result<_, _>>()?;
    if endpoints.len() > HOSTS_MAX { Err("more than 100 hosts") } else { Ok(endpoints) }
}

fn endpoint(text: &str, port_default: u16) -> Result<Endpoint, &'static str> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("`[` without a matching `]`")?;
        (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("")))
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        (host, Some(port))
    };
    if host.is_empty() {
        return Err("a host is missing");
    }
    let port = match port.ok_or("only a port may follow a `]`")? {
        "" => port_default,
        port => match port.parse() {
            Ok(0) | Err(_) => return Err("the port is not a number from 1 to 65535"),
            Ok(port) => port,
        },
    };
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

fn unix(rest: &str) -> Result<Address, &'static str> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        return Err("the path of a socket must begin with `/`, as in redis+unix:///run/redis.sock");
    }
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        login = match name {
            "db" => login.set_db(read_db(value)?),
            "user" => login.set_username(decoded(value)?),
            "pass" => login.set_password(decoded(value)?),
            _ => return Err("unknown query parameter; use db=, user= or pass="),
        };
    }
    if login.username().is_some() && login.password().is_none() {
        login = login.set_password("");
    }
    Ok(Address { target: StoreAddress::Server(Endpoint::Unix(decoded(path)?.into())), login, tls: false })
}

fn read_db(text: &str) -> Result<i64, &'static str> {
    match text {
        "" => Ok(0),
        text => {
            text.parse::<u16>().map(i64::from).map_err(|_| "the database is not a number from 0 to 65535")
        }
    }
}

fn decoded(text: &str) -> Result<String, &'static str> {
    let decoded =
        percent_decode_str(text).decode_utf8().map_err(|_| "the percent-encoded text is not UTF-8")?;
    Ok(decoded.into_owned())
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Endpoint, StoreAddress, without_password};

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn the_url_of_a_single_server_is_parsed() {
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
            assert_eq!(address.target, StoreAddress::Server(tcp(host, port)), "{url}");
            assert_eq!(address.login.username(), user, "{url}");
            assert_eq!(address.login.password(), password, "{url}");
            assert_eq!(address.login.db(), db, "{url}");
            assert_eq!(address.tls, tls, "{url}");
        }
    }

    #[test]
    fn several_hosts_are_sentinels_or_cluster_nodes() {
        let address = Address::parse("redis+sentinel://u:p@a:1,b/mymaster/4").unwrap();
        let sentinels = vec![tcp("a", 1), tcp("b", 26_379)];
        assert_eq!(address.target, StoreAddress::Sentinel { sentinels, master: "mymaster".to_owned() });
        assert_eq!((address.login.db(), address.login.username()), (4, Some("u")));
        let address = Address::parse("rediss+cluster://a:1,[::1]:2,c").unwrap();
        assert_eq!(address.target, StoreAddress::Cluster(vec![tcp("a", 1), tcp("::1", 2), tcp("c", 6379)]));
        assert!(address.tls);
    }

    #[test]
    fn a_unix_socket_has_its_login_in_the_query() {
        let address = Address::parse("redis+unix:///run/r.sock?db=2&user=u&pass=p%26").unwrap();
        assert_eq!(address.target, StoreAddress::Server(Endpoint::Unix("/run/r.sock".into())));
        assert_eq!((address.login.db(), address.login.password()), (2, Some("p&")));
    }

    #[test]
    fn an_invalid_url_is_rejected_without_its_password() {
        for (url, reason) in [
            ("localhost:6379", "scheme is missing"),
            ("http://u:secret@h", "unknown scheme"),
            ("redis://u:secret@", "host is missing"),
            ("redis://u:secret@h:port", "port is not a number"),
            ("redis://u:secret@h:0", "port is not a number"),
            ("redis://u:secret@h/x", "database is not a number"),
            ("redis://u:sec/ret@h", "port is not a number"),
            ("redis://u:secret@[::1", "without a matching `]`"),
            ("redis://u:secret@h#fragment", "not allowed"),
            ("redis://u:secret@a,b", "several hosts"),
            ("redis+sentinel://u:secret@a", "name of the master"),
            ("redis+cluster://u:secret@a/1", "only database 0"),
            ("redis+unix://run?pass=secret", "begin with `/`"),
            ("redis://u:%ff@h", "not UTF-8"),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(error.contains(reason), "{url} gives: {error}");
            assert!(!error.contains("sec") && !error.contains("ret@"), "the password is in: {error}");
        }
    }

    #[test]
    fn messages_show_a_url_without_its_password() {
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
            // A password with a `?`, or a query with an `@`: which one is unclear.
            ("redis://u:pa?ss@h", "redis://***"),
            ("redis://h?pass=a@secret", "redis://***"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
