//! The names of keys in the store.
//!
//! ```text
//! sluice:1/r/api:0t|{user:42}     prefix, version, scope, the limit's index and kind, and the key
//! sluice:1/r/api:r|{user:42}      its open receipts; d: when they end
//! sluice:1/r/jobs:0c|{user:42}    a semaphore's leases; k: the costs; w: the queue; u: its expiry;
//!                                 x: its costs
//! ```
//!
//! The version is that of the stored formats, so that no later version misreads them.
//!
//! In a cluster the text in braces determines the hash slot, so that all state of one key is in one
//! slot and can be changed atomically. A key with a hash tag of its own keeps it
//! (`{acme}:user:42`), so that several keys can share a slot.
//!
//! A long key is written as its SHA-256, so that a name has a bounded length, whatever callers
//! send. No caller can make two keys collide on purpose, and all processes agree on the names. Its
//! hash tag stays, or is hashed too if it is long itself:
//!
//! ```text
//! sluice:1/r/api:0t|#{HASH}       a long key
//! sluice:1/r/api:0t|#{acme}HASH   a long key with a hash tag
//! ```
//!
//! No two combinations of scope, index and key have one name: a scope contains no `|`, and the
//! character after it tells how the key is written.

use crate::store::RedisStore;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest::{SHA256, digest};
use sluicegate::BuildError;
use std::borrow::Cow;

/// The names of a scope's keys.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The prefix, the version and the scope.
    prefix: String,
}

/// The version of the stored formats. A change of any format changes it.
const VERSION: &str = "1";

/// Longer keys are hashed, and so are longer hash tags. In bytes.
const LENGTH_MAX: usize = 100;

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
        let mut name = Vec::with_capacity(self.prefix.len() + key.len().min(2 * LENGTH_MAX) + 8);
        name.extend_from_slice(self.prefix.as_bytes());
        name.extend_from_slice(index.to_string().as_bytes());
        name.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        add_key(&mut name, key);
        name
    }

    /// A semaphore's leases of a key, their costs, the queue, when its entries expire, and its
    /// costs above 1.
    pub(crate) fn of_semaphore(&self, key: &[u8]) -> [Vec<u8>; 5] {
        ['c', 'k', 'w', 'u', 'x'].map(|letter| self.state(0, letter, key))
    }

    /// The receipts of a key.
    pub(crate) fn receipts(&self, key: &[u8]) -> Vec<u8> {
        self.of_key('r', key)
    }

    /// When the receipts of a key end.
    pub(crate) fn deadlines(&self, key: &[u8]) -> Vec<u8> {
        self.of_key('d', key)
    }

    fn of_key(&self, letter: char, key: &[u8]) -> Vec<u8> {
        let mut name = self.prefix.clone().into_bytes();
        name.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        add_key(&mut name, key);
        name
    }
}

fn add_key(name: &mut Vec<u8>, key: &[u8]) {
    let tag = hash_tag(key);
    if key.len() > LENGTH_MAX {
        // Without a tag the key itself is the tag, as it is in a short name: `{KEY}...` has its
        // slot.
        name.extend_from_slice(b"|#{");
        name.extend_from_slice(&bounded(tag.unwrap_or(key)));
        name.push(b'}');
        if tag.is_some() {
            name.extend_from_slice(&bounded(key));
        }
    } else if tag.is_some() {
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

/// Returns the text, or its hash if it is long.
fn bounded(text: &[u8]) -> Cow<'_, [u8]> {
    if text.len() <= LENGTH_MAX {
        return Cow::Borrowed(text);
    }
    Cow::Owned(BASE64.encode(digest(&SHA256, text)).into_bytes())
}

/// Returns the key's hash tag: a nonempty text between the first `{` and the next `}`.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let inside = &key[open + 1..];
    let length = inside.iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &inside[..length])
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
    fn a_long_key_is_hashed_and_its_hash_tag_stays() {
        let long = "x".repeat(101);
        // printf 'x%.0s' $(seq 101) | openssl dgst -sha256 -binary | base64
        let hash = "xnWi5gSwzRIpwDbjzgyHQimAokXilbvGBaUHoimXUts";
        assert_eq!(name(&long), format!("sluice:1/rule/api:0t|#{{{hash}}}"));
        assert_eq!(name(&long[1..]), format!("sluice:1/rule/api:0t|{{{}}}", &long[1..]));
        let tagged = name(&format!("{{acme}}{long}"));
        assert!(tagged.starts_with("sluice:1/rule/api:0t|#{acme}") && tagged.len() == 28 + 43, "{tagged}");
        // Keys with one long tag share a slot, which is also that of the tag as a key.
        for key in [format!("{{{long}}}a"), format!("b{{{long}}}")] {
            assert!(name(&key).starts_with(&name(&long)), "{key}");
        }
    }

    #[test]
    fn long_keys_do_not_collide_with_others() {
        let long = "x".repeat(65_536);
        let mut keys = vec![long.clone(), format!("{long}y"), format!("{{{long}}}"), format!("{{{long}}}y")];
        keys.extend(["{acme}", "}", "{", "{}"].map(|start| format!("{start}{long}")));
        // Keys that resemble the names of other keys.
        let resembling = |key: &String| name(key).split_once('|').map(|(_, written)| written.to_owned());
        keys.extend(keys.clone().iter().filter_map(resembling));
        keys.extend(keys.clone().iter().map(|key| key.trim_start_matches('#').to_owned()));
        let keys: std::collections::HashSet<String> = keys.into_iter().collect();
        let names: std::collections::HashSet<String> = keys.iter().map(|key| name(key)).collect();
        assert_eq!(names.len(), keys.len());
        assert!(keys.len() > 16 && names.iter().all(|name| name.len() < 200));
    }

    #[test]
    fn a_scope_must_not_contain_reserved_characters() {
        assert!(Names::new("", "a|b").is_none() && Names::new("", "{a}").is_none());
    }
}
