//! The URL of a shared store. It may hold a password, and is shown without it.

use sluicegate::internal::grammar::{SyntaxError, quoted};
use sluicegate_redis::without_password;
use std::fmt;

/// The prefixes of schemes: `redis://`, `rediss://`, `redis+cluster://` and others. The store
/// checks the rest.
const SCHEME_PREFIXES: [&str; 3] = ["redis", "valkey", "unix"];

/// A URL such as `redis://user:password@host:6379/0`.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// Reads a URL; `None` for `memory`.
    pub(super) fn read(text: &str) -> Result<Option<StoreUrl>, SyntaxError> {
        if text == "memory" {
            return Ok(None);
        }
        let is_known = |scheme: &str| SCHEME_PREFIXES.iter().any(|prefix| scheme.starts_with(prefix));
        if text.split_once("://").is_some_and(|(scheme, rest)| is_known(scheme) && !rest.is_empty()) {
            return Ok(Some(StoreUrl(text.to_owned())));
        }
        // Even in an invalid URL, the part before an @ may be a password.
        let problem = match text.rsplit_once('@') {
            Some((_, after)) => format!("unknown store ...@{}", quoted(after)),
            None => format!("unknown store {}", quoted(text)),
        };
        Err(SyntaxError::new(problem, "use memory, or a URL such as redis://127.0.0.1:6379"))
    }

    /// The whole URL, including the password.
    pub fn with_password(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StoreUrl {
    /// Shows the URL without user, password and options.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("redis://10.0.0.1:6379/2", "redis://10.0.0.1:6379/2"),
            ("rediss://me:s3:cr@et@cache.example:6380", "rediss://***@cache.example:6380"),
            ("redis://:secret@[::1]:6379", "redis://***@[::1]:6379"),
            ("redis://u:secret#secret?secret/secret@h", "redis://***"),
            ("redis+cluster://u:secret@a:1,b:2", "redis+cluster://***@a:1,b:2"),
            ("unix:///run/redis.sock?db=1&pass=secret", "unix:///run/redis.sock"),
        ] {
            let url = StoreUrl::read(url).unwrap().unwrap();
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("secret"));
        }
    }

    #[test]
    fn an_invalid_url_is_reported_without_a_password() {
        assert_eq!(StoreUrl::read("memory").unwrap(), None);
        let wrong = |text| StoreUrl::read(text).unwrap_err().to_string();
        assert!(wrong("http://u:secret@host").starts_with("unknown store ...@\"host\"; use memory, or"));
        assert!(wrong("redis://").starts_with("unknown store \"redis://\""));
    }
}
