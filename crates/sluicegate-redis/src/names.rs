//! The names of keys in the store.
//!
//! ```text
//! sluice:1/r/api:0t|{user:42}     prefix, version, scope, the limit's index and kind, and the key
//! sluice:1/r/api:r|{user:42}      its open receipts
//! sluice:1/r/jobs:0c|{user:42}    a semaphore's leases; k: the costs; w: the queue; u: its expiry
//! ```
//!
//! The version is that of the stored formats, so that no later version misreads them.
//!
//! In a cluster the text in braces determines the hash slot, so that all state of one key is in one
//! slot and can be changed atomically. A key with a hash tag of its own keeps it
//! (`{acme}:user:42`), so that several keys can share a slot.
//!
//! No two combinations of scope, index and key have one name: a scope contains no `|`, and the
//! character after it tells how the key is written.

use crate::store::RedisStore;
use sluicegate::BuildError;

/// The names of a scope's keys.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The prefix, the version and the scope.
    prefix: String,
}

/// The version of the stored formats. A change of any format changes it.
const VERSION: &str = "1";

impl Names {
    /// Returns the names of a scope, or `None` if the scope contains a reserved character.
    pub(crate) fn new(key_prefix: &str, scope: &str) -> Option<Names> {
        let is_valid = !scope.contains(['|', '{', '}']);
        is_valid.then(|| Names { prefix: format!("{key_prefix}{VERSION}/{scope}:") })
    }

    /// Returns the store and the scope of a builder, and the names in it.
    pub(crate) fn resolve(
        store: Option<(RedisStore, String)>,
    ) -> Result<(RedisStore, String, Names), BuildError> {
        let (store, scope) = store.ok_or(BuildError::NoStore)?;
        match Names::new(&store.inner.settings.key_prefix, &scope) {
            Some(names) => Ok((store, scope, names)),
            None => Err(BuildError::BadScope(scope)),
        }
    }

    /// The state under the limit at an index.
    pub(crate) fn state(&self, index: usize, letter: char, key: &[u8]) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.prefix.len() + key.len() + 8);
        name.extend_from_slice(self.prefix.as_bytes());
        name.extend_from_slice(index.to_string().as_bytes());
        name.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        add_key(&mut name, key);
        name
    }

    /// A semaphore's leases of a key, their costs, the queue, and when its entries expire.
    pub(crate) fn of_semaphore(&self, key: &[u8]) -> [Vec<u8>; 4] {
        ['c', 'k', 'w', 'u'].map(|letter| self.state(0, letter, key))
    }

    /// The receipts of a key.
    pub(crate) fn receipts(&self, key: &[u8]) -> Vec<u8> {
        let mut name = self.prefix.clone().into_bytes();
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
        // In braces this would be an empty tag, which is ignored: the names would be in different
        // slots.
        name.extend_from_slice(b"|-{-}");
        name.extend_from_slice(key);
    } else {
        name.extend_from_slice(b"|{");
        name.extend_from_slice(key);
        name.push(b'}');
    }
}

/// Returns `true` if the key has a hash tag: a nonempty text between the first `{` and the next
/// `}`.
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
        assert_eq!(name("user:42"), "sluice:1/rule/api:0t|{user:42}");
        assert_eq!(name("{acme}:user:42"), "sluice:1/rule/api:0t|={acme}:user:42");
        assert_eq!(name("a{b"), "sluice:1/rule/api:0t|{a{b}");
        assert_eq!(name(""), "sluice:1/rule/api:0t|-{-}");
        assert_eq!(name("}x"), "sluice:1/rule/api:0t|-{-}}x");
        assert_eq!(name("{}x"), "sluice:1/rule/api:0t|{{}x}");
    }

    #[test]
    fn keys_that_resemble_names_do_not_collide() {
        let keys =
            ["user:42", "{user:42}", "={user:42}", "{-}user:42", "-{-}user:42", "", "}", "{}", "{", "{{}}"];
        let names: std::collections::HashSet<String> = keys.iter().map(|key| name(key)).collect();
        assert_eq!(names.len(), keys.len());
    }

    #[test]
    fn a_scope_must_not_contain_reserved_characters() {
        assert!(Names::new("", "a|b").is_none() && Names::new("", "{a}").is_none());
    }
}
