//! Addresses as keys. All notations of an address are one key: an IPv4 address mapped into IPv6 is
//! the IPv4 address, and of an IPv6 address only the network counts, since a client with one
//! address of a /64 usually has all 2^64 of them.

use super::{KeyExtractor, MissingKey, RequestKey};
use crate::RequestHead;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The network that a provider assigns to a customer at least.
const PREFIX_DEFAULT: u8 = 64;

pub(super) const NO_PEER: &str = "the peer's address is not known here; serve axum with \
    into_make_service_with_connect_info::<SocketAddr>() and turn on the feature axum of sluicegate-tower, or insert a \
    SocketAddr into the request's extensions, or say with key::ip_from where the address is";

/// The significant prefix of IPv6 addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    prefix: u8,
}

impl Network {
    pub(super) const DEFAULT: Network = Network { prefix: PREFIX_DEFAULT };

    pub(super) fn new(prefix: u8) -> Network {
        Network { prefix: prefix.min(128) }
    }

    #[inline]
    pub(super) fn key<'a>(self, address: IpAddr) -> RequestKey<'a> {
        RequestKey::address(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => self.of(address).into(),
        })
    }

    #[inline]
    fn of(self, address: Ipv6Addr) -> Ipv6Addr {
        // A shift by all 128 bits, for a prefix of 0, leaves nothing.
        let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
        Ipv6Addr::from_bits(address.to_bits() & mask)
    }
}

/// Returns the peer's address if the server provides it.
#[inline]
pub(super) fn peer(head: &RequestHead<'_>) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
        if let Some(ConnectInfo(peer)) = head.extensions.get::<ConnectInfo<SocketAddr>>() {
            return Some(peer.ip());
        }
        if let Some(MockConnectInfo(peer)) = head.extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(peer.ip());
        }
    }
    head.extensions.get::<SocketAddr>().map(SocketAddr::ip)
}

/// The peer's address; created by [`peer_ip`].
#[derive(Clone, Copy, Debug)]
pub struct PeerIp(Network);

/// The peer's address. Behind a proxy that is the proxy's: see [`super::forwarded_ip`].
///
/// It is read from axum's `ConnectInfo<SocketAddr>` (feature `axum`) or from a `SocketAddr` in the
/// request's extensions. If there is neither, the request gets a 500 that says what to do. tonic
/// puts it elsewhere: see [`ip_from`].
pub fn peer_ip() -> PeerIp {
    PeerIp(Network::DEFAULT)
}

impl PeerIp {
    /// Sets how many bits of an IPv6 address count: 64 by default, 56 or 48 if providers assign
    /// larger networks, 128 for the whole address.
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> PeerIp {
        PeerIp(Network::new(bits))
    }
}

impl KeyExtractor for PeerIp {
    #[inline]
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        peer(head).map(|address| self.0.key(address)).ok_or(MissingKey::NotProvided(NO_PEER))
    }
}

/// An address that a closure finds; created by [`ip_from`].
#[derive(Clone, Copy, Debug)]
pub struct IpFrom<F> {
    find: F,
    network: Network,
}

/// An address that a closure finds, such as the one in a CDN's own header, or that of your own
/// connection type:
///
/// ```
/// use sluicegate_tower::key;
///
/// key::ip_from(|head| {
///     // Only if the service can be reached through the CDN alone.
///     let text = head.headers.get("cf-connecting-ip")?.to_str().ok()?;
///     text.parse().ok()
/// });
/// ```
///
/// With tonic: `key::ip_from(|head|
/// Some(head.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()))`.
pub fn ip_from<F>(find: F) -> IpFrom<F>
where
    F: Fn(&RequestHead<'_>) -> Option<IpAddr> + Send + Sync,
{
    IpFrom { find, network: Network::DEFAULT }
}

impl<F> IpFrom<F> {
    /// Sets how many bits of an IPv6 address count; see [`PeerIp::ipv6_prefix`].
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> IpFrom<F> {
        IpFrom { network: Network::new(bits), ..self }
    }
}

impl<F> KeyExtractor for IpFrom<F>
where
    F: Fn(&RequestHead<'_>) -> Option<IpAddr> + Send + Sync,
{
    fn extract<'a>(&'a self, head: &RequestHead<'a>) -> Result<RequestKey<'a>, MissingKey> {
        (self.find)(head).map(|address| self.network.key(address)).ok_or(MissingKey::Absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_length_works() {
        let address: Ipv6Addr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        let of = |prefix| Network::new(prefix).of(address).to_string();
        assert_eq!(of(0), "::");
        assert_eq!(of(48), "2001:db8:1::");
        assert_eq!(of(64), "2001:db8:1:2::");
        assert_eq!(of(128), address.to_string());
        assert_eq!(of(255), address.to_string());
    }
}
