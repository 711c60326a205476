//! Keys: who or what is limited, as a fingerprint of 112 bits.
//!
//! A key is written as a sequence of parts, each preceded by its kind and length, so that two
//! identities never become one key: `("ab", "c")` is not `("a", "bc")`, and `7` is not `"7"`. Only
//! the fingerprint is kept, so a key of any length takes the same memory.
//!
//! A fingerprint can stand for the key: two of n keys share one with a chance of about n² / 2^113
//! (below 1 in 10^19 for ten million keys). The hash is seeded per limiter with randomness of the
//! operating system, so that collisions cannot be constructed.

mod bytes;

#[doc(hidden)]
pub use bytes::raw;

use foldhash::SharedSeed;
use foldhash::{fast, quality};
use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Whatever can be limited: text, bytes, whole numbers, IP addresses, and tuples of them.
///
/// ```
/// # use sluicegate::Limiter;
/// # use std::net::IpAddr;
/// # let limiter = Limiter::new("sliding-log 5/60s")?;
/// # let ip: IpAddr = "203.0.113.9".parse().unwrap();
/// limiter.check("user:42");
/// limiter.check(42);
/// limiter.check(ip);
/// limiter.check(("user:42", "reply")); // a user and an action, without building a string
/// limiter.check(()); // one key for all
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// Text and its bytes are the same key. Numbers of the same value are the same key, whatever their
/// type. An IPv4 address and its form mapped into IPv6 (`::ffff:203.0.113.9`) are the same key.
/// Your own type becomes a key with `#[derive(Key)]` (feature `derive`), or with one line:
///
/// ```
/// use sluicegate::{Key, KeyWriter};
///
/// struct UserId(u64);
///
/// impl Key for UserId {
///     fn write(&self, to: &mut KeyWriter<'_>) {
///         ("user", self.0).write(to);
///     }
/// }
/// ```
pub trait Key {
    /// Writes the key's parts. Different keys must write different parts.
    fn write(&self, to: &mut KeyWriter<'_>);

    /// Returns the key as bytes, for a shared store. Text and bytes are returned unchanged, unless
    /// they begin with `~`. Any other key is a `~` followed by its parts, so that no two keys have
    /// the same bytes.
    ///
    /// ```
    /// use sluicegate::Key;
    ///
    /// assert_eq!(*"user:42".to_bytes(), *b"user:42");
    /// assert_eq!(*("user:42", 7).to_bytes(), *b"~t2;7:user:42n7;");
    /// ```
    fn to_bytes(&self) -> Cow<'_, [u8]> {
        Cow::Owned(bytes::of(&|to| self.write(to)))
    }
}

/// Receives the parts of a key. Each part is preceded by its kind and length, so that different
/// parts never write the same. (Instead of bytes shorter than 4 or longer than 32, their hash of
/// 128 bits is hashed.)
pub struct KeyWriter<'a> {
    /// Two hashes of the same parts, with different seeds: 64 bits would not identify a key. A
    /// table finds a key's shard and slot by bits of the first, so that one is mixed better.
    first: quality::FoldHasher<'a>,
    second: fast::FoldHasher<'a>,
    seeds: &'a Seeds,
    /// If set, receives the parts as bytes, and the hashers receive nothing. It is a field of its
    /// own, so that the compiler sees where it is `None` and keeps the hashers in registers.
    parts: Option<&'a mut bytes::Parts>,
}

impl fmt::Debug for KeyWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyWriter").finish_non_exhaustive()
    }
}

/// The kind of the next part, in the top byte of the word before it.
const BYTES: u64 = 1 << 56;
const NUMBER: u64 = 2 << 56;
const NEGATIVE: u64 = 3 << 56;
const ADDRESS: u64 = 4 << 56;
const TUPLE: u64 = 5 << 56;
/// Added to the kind of a number or an address that takes two words.
const WIDE: u64 = 1;

impl KeyWriter<'_> {
    /// Writes text or other bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        if let Some(parts) = &mut self.parts {
            return parts.bytes(bytes);
        }
        // Cannot touch the kind: no address space has 2^56 bytes.
        let length = BYTES | bytes.len() as u64;
        // As words, the last of which may overlap the one before; the length tells.
        match bytes.len() {
            4..8 => {
                let [first, last] = [0, bytes.len() - 4].map(|from| u64::from(half(bytes, from)));
                self.words(length, first << 32 | last);
            }
            8..=16 => {
                self.words(length, word(bytes, 0));
                self.words(word(bytes, bytes.len() - 8), 0);
            }
            17..=24 => {
                self.words(length, word(bytes, 0));
                self.words(word(bytes, 8), word(bytes, bytes.len() - 8));
            }
            25..=32 => {
                self.words(length, word(bytes, 0));
                self.words(word(bytes, 8), word(bytes, 16));
                self.words(word(bytes, bytes.len() - 8), 0);
            }
            _ => {
                let hashes = self.seeds.hash_apart(bytes);
                self.words(length, hashes[0]);
                self.words(hashes[1], 0);
            }
        }
    }

    /// Writes a whole number.
    #[inline]
    pub fn number(&mut self, number: u128) {
        self.wide(NUMBER, number);
    }

    /// Announces a tuple with this number of parts.
    #[inline]
    pub fn tuple(&mut self, parts: usize) {
        if let Some(written) = &mut self.parts {
            return written.tuple(parts);
        }
        // A second word, because a number may use every bit of the first.
        self.words(TUPLE, parts as u64);
    }

    #[inline]
    fn wide(&mut self, kind: u64, value: u128) {
        if let Some(parts) = &mut self.parts {
            return parts.wide(kind, value);
        }
        if let Ok(value) = u64::try_from(value) {
            self.words(kind, value);
        } else {
            let value = value.to_le_bytes();
            self.words(kind | WIDE, word(&value, 0));
            self.words(word(&value, 8), 0);
        }
    }

    /// Writes two words at once, which the hashers fold together, so that they need not buffer one.
    #[inline]
    fn words(&mut self, one: u64, other: u64) {
        let both = u128::from(one) | u128::from(other) << 64;
        self.first.write_u128(both);
        self.second.write_u128(both);
    }

    #[inline]
    fn fingerprint(mut self, key: &(impl Key + ?Sized)) -> Fingerprint {
        key.write(&mut self);
        Fingerprint::new(self.first.finish(), self.second.finish())
    }
}

/// The eight bytes from an index on.
#[inline]
fn word(bytes: &[u8], from: usize) -> u64 {
    bytes[from..].first_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// The four bytes from an index on.
#[inline]
fn half(bytes: &[u8], from: usize) -> u32 {
    bytes[from..].first_chunk().copied().map_or(0, u32::from_le_bytes)
}

/// The bits of a fingerprint that a table replaces with a tag, which names the limits that wrote
/// the key's state.
pub(crate) const TAG_BITS: u64 = 0xffff;

/// The name under which a store keeps a key. In a store that several limiters share, it includes
/// the tag of the key's limits; elsewhere the tag is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fingerprint {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Fingerprint {
    /// Creates a fingerprint from any 128 bits. It never equals the mark of a free slot.
    #[inline]
    pub(crate) const fn new(high: u64, low: u64) -> Fingerprint {
        Fingerprint { high: if high == 0 { 1 } else { high }, low: low & !TAG_BITS }
    }

    /// Returns the fingerprint of the same key under the limits of this tag.
    #[inline]
    pub(crate) fn with_tag(self, tag: u16) -> Fingerprint {
        Fingerprint { high: self.high, low: self.low & !TAG_BITS | u64::from(tag) }
    }

    #[inline]
    pub(crate) fn tag(self) -> u16 {
        tag_of(self.low)
    }

    /// Returns the index of the key's shard among `shards`. A map within the shard uses other bits.
    #[inline]
    pub fn shard(self, shards: usize) -> usize {
        usize::try_from(self.low >> 32).unwrap_or(0) % shards
    }

    /// Returns `true` if this is the same key, whichever limits apply to it.
    #[inline]
    pub(crate) fn is(self, other: Fingerprint) -> bool {
        self.high == other.high && self.low ^ other.low <= TAG_BITS
    }
}

/// Fingerprints are random bits already, so a map needs no hash of its own.
pub type ByFingerprint = BuildHasherDefault<FirstWord>;

/// Takes the first word of a fingerprint as it is.
#[derive(Default)]
pub struct FirstWord(Option<u64>);

impl Hasher for FirstWord {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a fingerprint is two words");
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0.get_or_insert(word);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0.unwrap_or_default()
    }
}

/// The tag in a word.
#[inline]
pub(crate) fn tag_of(word: u64) -> u16 {
    let [low, high, ..] = word.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// What a limiter hashes its keys with. Every limiter, or store that limiters share, has its own.
pub struct Seeds {
    first: (u64, SharedSeed),
    second: (u64, SharedSeed),
}

impl Seeds {
    /// Seeds that cannot be predicted.
    pub fn random() -> Seeds {
        // The keys of a `RandomState` come from the operating system, and each one's differ. (The
        // model checker has to see the same each time.)
        let random = || if cfg!(loom) { 7 } else { RandomState::new().build_hasher().finish() };
        let seed = || (random(), SharedSeed::from_u64(random()));
        Seeds { first: seed(), second: seed() }
    }

    /// The name of a key.
    #[inline]
    pub fn fingerprint(&self, key: &(impl Key + ?Sized)) -> Fingerprint {
        self.writer(None).fingerprint(key)
    }

    /// Returns the fingerprint of a key in a scope. Equal keys of two scopes have different ones.
    #[inline]
    pub(crate) fn fingerprint_in(&self, scope: Fingerprint, key: &(impl Key + ?Sized)) -> Fingerprint {
        let mut writer = self.writer(None);
        writer.words(scope.high, scope.low);
        writer.fingerprint(key)
    }

    #[inline]
    fn writer<'a>(&'a self, parts: Option<&'a mut bytes::Parts>) -> KeyWriter<'a> {
        let Seeds { first, second } = self;
        KeyWriter {
            first: quality::FoldHasher::with_seed(first.0, &first.1),
            second: fast::FoldHasher::with_seed(second.0, &second.1),
            seeds: self,
            parts,
        }
    }

    /// Hashes bytes of any length by themselves.
    #[cold]
    fn hash_apart(&self, bytes: &[u8]) -> [u64; 2] {
        let KeyWriter { mut first, mut second, .. } = self.writer(None);
        first.write(bytes);
        second.write(bytes);
        [first.finish(), second.finish()]
    }
}

impl Key for str {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        to.bytes(self.as_bytes());
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        bytes::of_bytes(self.as_bytes())
    }
}

impl Key for String {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        to.bytes(self.as_bytes());
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        bytes::of_bytes(self.as_bytes())
    }
}

impl Key for [u8] {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        to.bytes(self);
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        bytes::of_bytes(self)
    }
}

impl<const N: usize> Key for [u8; N] {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        to.bytes(self);
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        bytes::of_bytes(self)
    }
}

impl Key for Vec<u8> {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        to.bytes(self);
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        bytes::of_bytes(self)
    }
}

impl<K: Key + ?Sized> Key for &K {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        (**self).write(to);
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        (**self).to_bytes()
    }
}

impl<K: Key + ?Sized> Key for Box<K> {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        (**self).write(to);
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        (**self).to_bytes()
    }
}

impl<K: Key + ?Sized> Key for Arc<K> {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        (**self).write(to);
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        (**self).to_bytes()
    }
}

impl<K: Key + ToOwned + ?Sized> Key for Cow<'_, K> {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        (**self).write(to);
    }

    fn to_bytes(&self) -> Cow<'_, [u8]> {
        (**self).to_bytes()
    }
}

impl Key for Ipv4Addr {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        to.wide(ADDRESS, self.to_ipv6_mapped().to_bits());
    }
}

impl Key for Ipv6Addr {
    /// The whole address. One client often holds a whole /64: to limit that, use `("net",
    /// address.to_bits() >> 64)`.
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        to.wide(ADDRESS, self.to_bits());
    }
}

impl Key for IpAddr {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        match self {
            IpAddr::V4(address) => address.write(to),
            IpAddr::V6(address) => address.write(to),
        }
    }
}

macro_rules! numbers {
    (unsigned: $($unsigned:ty)*; signed: $($signed:ty)*) => {
        $(impl Key for $unsigned {
            #[inline]
            #[allow(clippy::cast_lossless, reason = "there is no `From<usize>`; no number is wider than this")]
            fn write(&self, to: &mut KeyWriter<'_>) {
                to.number(*self as u128);
            }
        })*
        $(impl Key for $signed {
            #[inline]
            #[allow(clippy::cast_lossless, reason = "there is no `From<usize>`; no number is wider than this")]
            fn write(&self, to: &mut KeyWriter<'_>) {
                let size = self.unsigned_abs() as u128;
                to.wide(if *self < 0 { NEGATIVE } else { NUMBER }, size);
            }
        })*
    };
}

numbers!(unsigned: u8 u16 u32 u64 u128 usize; signed: i8 i16 i32 i64 i128 isize);

macro_rules! tuples {
    ($($parts:literal ($($name:ident)*);)*) => {
        $(impl<$($name: Key),*> Key for ($($name,)*) {
            #[inline]
            #[allow(non_snake_case, reason = "a part is named like its type")]
            fn write(&self, to: &mut KeyWriter<'_>) {
                let ($($name,)*) = self;
                to.tuple($parts);
                $($name.write(to);)*
            }
        })*
    };
}

tuples! {
    0 ();
    1 (A);
    2 (A B);
    3 (A B C);
    4 (A B C D);
    5 (A B C D E);
    6 (A B C D E F);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn two_identities_never_fall_into_one_key() {
        let seeds = Seeds::random();
        let (v4, v6): (IpAddr, IpAddr) = ("1.2.3.4".parse().unwrap(), "::1.2.3.4".parse().unwrap());
        let different = [
            seeds.fingerprint("ab"),
            seeds.fingerprint(&("ab",)),
            seeds.fingerprint(&("a", "b")),
            seeds.fingerprint(&("", "ab")),
            seeds.fingerprint(&("ab", "")),
            seeds.fingerprint(&("a", "b", "")),
            seeds.fingerprint(&(("a", "b"), "")),
            seeds.fingerprint(&(("a",), "b")),
            seeds.fingerprint(&("b", "a")),
            seeds.fingerprint("a\0b"),
            seeds.fingerprint(""),
            seeds.fingerprint(&()),
            seeds.fingerprint(&((),)),
            seeds.fingerprint(&7_u32),
            seeds.fingerprint(&-7),
            seeds.fingerprint("7"),
            seeds.fingerprint(&[7_u8]),
            seeds.fingerprint(&[0, 0, 0, 7_u8]),
            seeds.fingerprint(&(1, 21)),
            seeds.fingerprint(&(12, 1)),
            seeds.fingerprint(&0x0102_0304_u32),
            seeds.fingerprint(&v4),
            seeds.fingerprint(&v6),
            seeds.fingerprint(&u128::MAX),
            seeds.fingerprint(&u64::MAX),
            seeds.fingerprint(&i128::MIN),
        ];
        assert_eq!(different.iter().collect::<HashSet<_>>().len(), different.len());
    }

    #[test]
    fn one_identity_is_one_key_however_it_is_written() {
        let seeds = Seeds::random();
        let harry = seeds.fingerprint("user:42");
        assert_eq!(seeds.fingerprint(&String::from("user:42")), harry);
        assert_eq!(seeds.fingerprint(b"user:42"), harry);
        assert_eq!(seeds.fingerprint(&b"user:42".to_vec()), harry);
        assert_eq!(seeds.fingerprint(&&&"user:42"), harry);
        assert_eq!(seeds.fingerprint(&Box::<str>::from("user:42")), harry);
        assert_eq!(seeds.fingerprint(&Arc::<str>::from("user:42")), harry);
        assert_eq!(seeds.fingerprint(&Cow::Borrowed("user:42")), harry);
        assert_eq!(seeds.fingerprint(&7_u8), seeds.fingerprint(&7_i128));
        let address = |text: &str| seeds.fingerprint(&text.parse::<IpAddr>().unwrap());
        assert_eq!(address("::ffff:203.0.113.9"), address("203.0.113.9"));
        assert_eq!(address("2001:db8::1"), address("2001:0DB8:0:0:0::0001"));
    }

    /// Bytes in several pieces, as a key of one's own may write them.
    #[test]
    fn pieces_are_not_one_piece() {
        struct Pieces<'a>(&'a [&'a str]);
        impl Key for Pieces<'_> {
            fn write(&self, to: &mut KeyWriter<'_>) {
                self.0.iter().for_each(|piece| to.bytes(piece.as_bytes()));
            }
        }
        let seeds = Seeds::random();
        let different =
            [Pieces(&["abcd"]), Pieces(&["ab", "cd"]), Pieces(&["a", "bcd"]), Pieces(&["", "abcd"])];
        let seen: HashSet<_> = different.iter().map(|key| seeds.fingerprint(key)).collect();
        assert_eq!(seen.len(), different.len());
    }

    /// Numbers in a row, alone and in tuples, and text: in the table they fill all buckets alike.
    #[test]
    fn keys_that_look_alike_are_spread_evenly() {
        const EACH: u32 = 1_000;
        for _ in 0..20 {
            let seeds = Seeds::random();
            let fingerprints: [&dyn Fn(u32) -> Fingerprint; 4] = [
                &|n| seeds.fingerprint(&n),
                &|n| seeds.fingerprint(&(7, n)),
                &|n| seeds.fingerprint(&(n, "reply")),
                &|n| seeds.fingerprint(&format!("user:{n:015}")),
            ];
            for fingerprint in fingerprints {
                // By the lowest byte, by the one above it, and by the highest.
                let mut counts = [[0_u32; 256]; 3];
                for n in 0..256 * EACH {
                    let bytes = fingerprint(n).high.to_le_bytes();
                    [bytes[0], bytes[1], bytes[7]].into_iter().zip(&mut counts).for_each(|(byte, counts)| {
                        counts[usize::from(byte)] += 1;
                    });
                }
                let all = || counts.iter().flatten().copied();
                // Six standard deviations.
                let (least, most) = (all().min().unwrap(), all().max().unwrap());
                assert!(least > EACH - 200 && most < EACH + 200, "{least} to {most} instead of {EACH}");
            }
        }
    }

    /// Around every length at which bytes are hashed in another way: one byte more, or one bit that
    /// differs, is another key.
    #[test]
    fn bytes_of_every_length_count_to_the_last_bit() {
        let seeds = Seeds::random();
        let (mut seen, mut written) = (HashSet::new(), 0);
        for length in 0..=70 {
            let mut bytes = vec![b'a'; length];
            seen.insert(seeds.fingerprint(&bytes));
            written += 1;
            for bit in 0..8 * length {
                bytes[bit / 8] ^= 1 << (bit % 8);
                seen.insert(seeds.fingerprint(&bytes));
                bytes[bit / 8] ^= 1 << (bit % 8);
                written += 1;
            }
        }
        assert_eq!(seen.len(), written);
    }

    #[test]
    fn no_two_limiters_hash_alike() {
        assert_ne!(Seeds::random().fingerprint("user:42"), Seeds::random().fingerprint("user:42"));
    }

    /// Numbers in a row, strings that differ in one bit, tuples that differ in where they are cut.
    #[test]
    fn a_million_keys_that_look_alike_have_a_million_fingerprints() {
        let seeds = Seeds::random();
        let mut seen = HashSet::new();
        for n in 0_u32..250_000 {
            seen.insert(seeds.fingerprint(&n));
            seen.insert(seeds.fingerprint(&n.to_be_bytes()));
            seen.insert(seeds.fingerprint(&(n >> 9, n & 0x1ff)));
            seen.insert(seeds.fingerprint(&format!("user:{n:020}")));
        }
        assert_eq!(seen.len(), 1_000_000);
    }
}
