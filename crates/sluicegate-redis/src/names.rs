//! What the keys of the store are called.
//!
//! ```text
//! sluice:1/r/api:0t|{Harry}       the prefix, the version, the scope, the limit's index and kind, and the key
//! sluice:1/r/api:r|{Harry}        its open receipts
//! sluice:1/r/jobs:0c|{Harry}      the leases of a semaphore; with k their costs, w the queue, u when its tickets expire
//! ```
//!
//! The version is that of what is stored under the names, so that no later version reads what it does not know.
//!
//! In a cluster the text in braces decides where a key is, so all that is known of one caller is in one place and can be decided
//! on as one. A caller's key that has a hash tag of its own keeps it (`{acme}:Harry`), so that several callers can be in one
//! place too.
//!
//! No two of (scope, place, key) have one name: the scope has no `|`, and the sign after it tells how the key is written.

use crate::failure::RedisBuildError;
use crate::store::RedisStore;

/// What the keys of a scope begin with.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The prefix and the scope.
    beginning: String,
}

/// The version of what is stored. A change of any format changes it.
const VERSION: &str = "1";

/// Why a scope cannot be part of a name.
pub(crate) const SCOPE_RULE: &str = "use any text without | { and }";

impl Names {
    /// Names in a scope; `None` if it has a sign that it must not have.
    pub(crate) fn new(prefix: &str, scope: &str) -> Option<Names> {
        let is_fit = !scope.contains(['|', '{', '}']);
        is_fit.then(|| Names { beginning: format!("{prefix}{VERSION}/{scope}:") })
    }

    /// The store and the scope that a builder was told, and the names there.
    pub(crate) fn placed(
        place: Option<(RedisStore, String)>,
    ) -> Result<(RedisStore, String, Names), RedisBuildError> {
        let (store, scope) = place.ok_or(RedisBuildError::NoStore)?;
        match Names::new(&store.inner.settings.key_prefix, &scope) {
            Some(names) => Ok((store, scope, names)),
            None => Err(RedisBuildError::BadScope(scope)),
        }
    }

    /// The state under the limit at a place.
    pub(crate) fn state(&self, place: usize, letter: char, key: &[u8]) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.beginning.len() + key.len() + 8);
        name.extend_from_slice(self.beginning.as_bytes());
        name.extend_from_slice(place.to_string().as_bytes());
        name.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        add_key(&mut name, key);
        name
    }

    /// What a semaphore knows of a key: its leases, their costs, the line, and until when the tickets in it are good.
    pub(crate) fn of_semaphore(&self, key: &[u8]) -> [Vec<u8>; 4] {
        ['c', 'k', 'w', 'u'].map(|letter| self.state(0, letter, key))
    }

    /// The receipts of a key.
    pub(crate) fn receipts(&self, key: &[u8]) -> Vec<u8> {
        let mut name = self.beginning.clone().into_bytes();
        name.push(b'r');
        add_key(&mut name, key);
        name
    }
}

fn add_key(name: &mut Vec<u8>, key: &[u8]) {
    if has_tag(key) {
        name.extend_from_slice(b"|=");
        name.extend_from_slice(key);
    } else if key.is_empty() || key.starts_with(b"}") {
        // In braces it would be an empty tag, which is none: its names would be in different places.
        name.extend_from_slice(b"|-{-}");
        name.extend_from_slice(key);
    } else {
        name.extend_from_slice(b"|{");
        name.extend_from_slice(key);
        name.push(b'}');
    }
}

/// Whether a cluster would take a part of the key as its tag: what is between the first `{` and the next `}`, if anything.
fn has_tag(key: &[u8]) -> bool {
    let open = key.iter().position(|byte| *byte == b'{');
    let inside = open.and_then(|open| key.get(open + 1..)).unwrap_or_default();
    inside.iter().position(|byte| *byte == b'}').is_some_and(|length| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> String {
        let names = Names::new("sluice:", "rule/api").unwrap();
        String::from_utf8(names.state(0, 't', key.as_bytes())).unwrap()
    }

    #[test]
    fn a_key_is_a_hash_tag_unless_it_has_one() {
        assert_eq!(name("Harry"), "sluice:1/rule/api:0t|{Harry}");
        assert_eq!(name("{acme}:Harry"), "sluice:1/rule/api:0t|={acme}:Harry");
        assert_eq!(name("a{b"), "sluice:1/rule/api:0t|{a{b}");
        assert_eq!(name(""), "sluice:1/rule/api:0t|-{-}");
        assert_eq!(name("}x"), "sluice:1/rule/api:0t|-{-}}x");
        assert_eq!(name("{}x"), "sluice:1/rule/api:0t|{{}x}");
    }

    #[test]
    fn keys_that_look_like_names_of_others_are_not_them() {
        let keys = ["Harry", "{Harry}", "={Harry}", "{-}Harry", "-{-}Harry", "", "}", "{}", "{", "{{}}"];
        let names: std::collections::HashSet<String> = keys.iter().map(|key| name(key)).collect();
        assert_eq!(names.len(), keys.len());
    }

    #[test]
    fn a_scope_must_not_end_early() {
        assert!(Names::new("", "a|b").is_none() && Names::new("", "{a}").is_none());
    }
}
