//! Keys: the client or resource that a request is charged to.
//!
//! ```
//! # use sluicegate::Limiter;
//! # use sluicegate_tower::{RateLimitLayer, key};
//! # let layer = || RateLimitLayer::new(Limiter::new("sliding-log 5/60s").unwrap());
//! layer().key(key::peer_ip()); //                                   the peer
//! layer().key(key::forwarded_ip(1)); //                             the client of the one proxy in front
//! layer().key(key::header("x-api-key")); //                         a header field
//! layer().key(key::path()); //                                      the path
//! layer().key((key::peer_ip(), key::path())); //                    both
//! layer().key(key::from_fn(|head| Some(head.uri.host()?.into()))); // anything else
//! ```
//!
//! Keys are not verified: a client can invent a new API key per request, and so be a new client
//! each time. Put such a layer behind the one that authenticates, or limit by address too.

mod address;
mod forwarded;

pub use address::{IpFrom, PeerIp, ip_from, peer_ip};
pub use forwarded::{ForwardedIp, forwarded_ip};

use crate::RequestHead;
use http::HeaderName;
use sluicegate::{Key, KeyWriter};
use std::borrow::Cow;
use std::net::IpAddr;

/// Extracts the key of a request. This module has the usual ones; [`from_fn`] uses a closure.
pub trait KeyExtractor: Send + Sync {
    /// Returns the key, or why there is none.
    ///
    /// # Errors
    /// If the request has no key.
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey>;
}

/// Why a request has no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MissingKey {
    /// The client did not send it, or sent nothing readable. [`crate::OnMissingKey`] says what
    /// happens then.
    Absent,
    /// The server did not provide it: a misconfiguration, described by this text. The request gets
    /// a 500, since one limit shared by all clients would look fine until there are many of them.
    NotProvided(&'static str),
}

/// The key of a request: an address, text, a number, or a pair of these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestKey<'a> {
    first: Part<'a>,
    second: Option<Part<'a>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part<'a> {
    Shared,
    Address(IpAddr),
    Bytes(Cow<'a, [u8]>),
    Number(u64),
    Pair(Box<(Part<'a>, Part<'a>)>),
}

impl<'a> RequestKey<'a> {
    /// The key shared by all requests without one.
    pub const SHARED: RequestKey<'static> = RequestKey { first: Part::Shared, second: None };

    /// An address as it is. [`peer_ip`] and its variants use the network of an IPv6 address.
    #[inline]
    pub fn address(address: IpAddr) -> RequestKey<'a> {
        Part::Address(address.to_canonical()).into()
    }

    /// Text or other bytes. Empty ones are [`RequestKey::SHARED`].
    pub fn bytes(bytes: impl Into<Cow<'a, [u8]>>) -> RequestKey<'a> {
        let bytes = bytes.into();
        if bytes.is_empty() { RequestKey::SHARED } else { Part::Bytes(bytes).into() }
    }

    /// A number, such as a user id.
    pub fn number(number: u64) -> RequestKey<'a> {
        Part::Number(number).into()
    }

    fn with(self, other: RequestKey<'a>) -> RequestKey<'a> {
        RequestKey { first: self.into_part(), second: Some(other.into_part()) }
    }

    /// A pair within a pair is the only key that allocates.
    fn into_part(self) -> Part<'a> {
        match self.second {
            None => self.first,
            Some(second) => Part::Pair(Box::new((self.first, second))),
        }
    }
}

impl<'a> From<Part<'a>> for RequestKey<'a> {
    #[inline]
    fn from(first: Part<'a>) -> RequestKey<'a> {
        RequestKey { first, second: None }
    }
}

impl<'a> From<&'a str> for RequestKey<'a> {
    fn from(text: &'a str) -> RequestKey<'a> {
        RequestKey::bytes(text.as_bytes())
    }
}

impl From<String> for RequestKey<'_> {
    fn from(text: String) -> Self {
        RequestKey::bytes(text.into_bytes())
    }
}

impl<'a> From<&'a [u8]> for RequestKey<'a> {
    fn from(bytes: &'a [u8]) -> RequestKey<'a> {
        RequestKey::bytes(bytes)
    }
}

impl From<u64> for RequestKey<'_> {
    fn from(number: u64) -> Self {
        RequestKey::number(number)
    }
}

impl From<IpAddr> for RequestKey<'_> {
    fn from(address: IpAddr) -> Self {
        RequestKey::address(address)
    }
}

/// Equals the library's key of the same value: the address of a request is the key of
/// `limiter.check(address)`.
impl Key for RequestKey<'_> {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        if self.second.is_some() {
            to.tuple(2);
        }
        self.first.write(to);
        if let Some(second) = &self.second {
            second.write(to);
        }
    }
}

impl Key for Part<'_> {
    #[inline]
    fn write(&self, to: &mut KeyWriter<'_>) {
        match self {
            Part::Shared => ().write(to),
            Part::Address(address) => address.write(to),
            Part::Bytes(bytes) => to.bytes(bytes),
            Part::Number(number) => number.write(to),
            Part::Pair(pair) => pair.write(to),
        }
    }
}

/// One key for all requests: a limit on the service as a whole.
pub fn everyone() -> impl KeyExtractor {
    Everyone
}

struct Everyone;

impl KeyExtractor for Everyone {
    fn extract<'a>(&'a self, _: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        Ok(RequestKey::SHARED)
    }
}

/// The value of a header field. A request in which it is missing, empty or repeated has no key.
///
/// # Panics
/// If the name is not a valid header field name in lower case.
pub fn header(name: &'static str) -> impl KeyExtractor {
    ByHeader(HeaderName::from_static(name))
}

struct ByHeader(HeaderName);

impl KeyExtractor for ByHeader {
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        head.single_header(&self.0).map(RequestKey::bytes).ok_or(MissingKey::Absent)
    }
}

/// The path as the client wrote it and as this layer sees it: `/a` and `/%61` are different. The
/// query is not part of it.
pub fn path() -> impl KeyExtractor {
    ByPath
}

struct ByPath;

impl KeyExtractor for ByPath {
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        Ok(head.uri.path().into())
    }
}

/// The matched route, such as `/users/{id}`: one key for all users, where [`path`] has one per
/// user. Available only to layers added with `route_layer`, or to a handler.
#[cfg(feature = "axum")]
pub fn route() -> impl KeyExtractor {
    ByRoute
}

#[cfg(feature = "axum")]
struct ByRoute;

#[cfg(feature = "axum")]
impl KeyExtractor for ByRoute {
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        let route = head.extensions.get::<axum::extract::MatchedPath>();
        route.map(|route| route.as_str().into()).ok_or(MissingKey::NotProvided(
            "the matched route is not known here; add this layer with route_layer, or to the handler itself",
        ))
    }
}

/// The key that a closure returns; `None` if there is none.
pub fn from_fn<F>(find: F) -> impl KeyExtractor
where
    F: for<'a> Fn(&RequestHead<'a>) -> Option<RequestKey<'a>> + Send + Sync,
{
    FromFn(find)
}

struct FromFn<F>(F);

impl<F> KeyExtractor for FromFn<F>
where
    F: for<'a> Fn(&RequestHead<'a>) -> Option<RequestKey<'a>> + Send + Sync,
{
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        (self.0)(head).ok_or(MissingKey::Absent)
    }
}

/// A pair of keys, such as each address on each path. A request that lacks either has none.
impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for (A, B) {
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        Ok(self.0.extract(head)?.with(self.1.extract(head)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn pairs_of_keys_never_collide() {
        let pair = |one: &'static str, other: &'static str| RequestKey::from(one).with(other.into());
        let keys = [
            pair("ab", "c"),
            pair("a", "bc"),
            pair("", "abc"),
            pair("abc", ""),
            pair("a", "b").with("c".into()),
            RequestKey::from("a").with(pair("b", "c")),
            pair("a", "~t2;1:b1:c"),
        ];
        let bytes: HashSet<_> = keys.iter().map(Key::to_bytes).collect();
        assert_eq!(bytes.len(), keys.len());
        let limiter = sluicegate::Limiter::new("sliding-log 1/h").unwrap();
        assert!(keys.iter().all(|key| limiter.check(key).allowed()), "each is new");
        assert!(keys.iter().all(|key| !limiter.check(key).allowed()), "and then each is known");
    }

    #[test]
    fn an_address_is_the_same_key_as_in_the_library() {
        let limiter = sluicegate::Limiter::new("sliding-log 1/h").unwrap();
        let address: IpAddr = "203.0.113.9".parse().unwrap();
        assert!(limiter.check(address).allowed());
        assert!(!limiter.check(RequestKey::address("::ffff:203.0.113.9".parse().unwrap())).allowed());
        let nested = RequestKey::address(address).with(RequestKey::from("/login").with(7.into()));
        assert_eq!(nested.to_bytes(), (address, ("/login", 7)).to_bytes());
    }
}
