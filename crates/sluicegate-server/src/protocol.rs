//! The protocols that clients speak.
//!
//! A protocol is a folder such as `resp/` or `http/` that exports one type implementing
//! `ConnectionHandler`, and a line in the table at the end of this file. Listeners, configuration,
//! flags, metrics and the log get what they need from [`Protocol`], and name no protocol
//! themselves.

use crate::net::{Client, Listener, Stream};
use crate::service::Service;
use std::fmt;
use std::ops::{Index, IndexMut};
use tokio::task::{AbortHandle, JoinSet};

/// Describes a protocol.
pub struct Description {
    /// Its name in messages.
    pub name: &'static str,
    /// Its name in metrics, and its setting in `[server]`: the address to listen on.
    pub id: &'static str,
    /// The variable that overrides the setting.
    pub variable: &'static str,
    /// The flag that overrides both.
    pub flag: &'static str,
    /// Where to listen by default. `None`: nowhere.
    pub default_address: Option<&'static str>,
    /// Its ALPN names in a TLS handshake. Empty: ALPN is not negotiated, and every client is
    /// accepted.
    pub alpn: &'static [&'static [u8]],
    /// The bytes sent to a client that is rejected because of `connections_max`. Not sent over TLS,
    /// where a handshake would occupy a connection.
    pub too_many_clients: &'static [u8],
    /// `true` if it serves health probes, which get through when `connections_max` is reached.
    pub has_probes: bool,
}

/// The server's side of a protocol.
pub(crate) trait ConnectionHandler: 'static {
    const DESCRIPTION: Description;

    /// Serves one client until it leaves, breaks the protocol, or the server stops.
    fn serve(stream: impl Stream, client: Client, service: Service) -> impl Future<Output = ()> + Send;
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description().name)
    }
}

/// A value for each protocol.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ByProtocol<T>([T; Protocol::ALL.len()]);

impl<T> ByProtocol<T> {
    /// Makes the value of each protocol.
    pub fn new(value: impl FnMut(Protocol) -> T) -> ByProtocol<T> {
        ByProtocol(Protocol::ALL.map(value))
    }

    /// Each protocol with its value, in the order of [`Protocol::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Protocol, &T)> {
        Protocol::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<Protocol> for ByProtocol<T> {
    type Output = T;

    fn index(&self, protocol: Protocol) -> &T {
        &self.0[protocol as usize]
    }
}

impl<T> IndexMut<Protocol> for ByProtocol<T> {
    fn index_mut(&mut self, protocol: Protocol) -> &mut T {
        &mut self.0[protocol as usize]
    }
}

macro_rules! protocols {
    ($($(#[$doc:meta])* $protocol:ident => $handler:ty,)*) => {
        /// A protocol that clients speak.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Protocol {
            $($(#[$doc])* $protocol,)*
        }

        impl Protocol {
            /// All protocols, in the order in which they are listed everywhere.
            pub const ALL: [Protocol; [$(stringify!($protocol)),*].len()] = [$(Protocol::$protocol),*];

            /// The description of the protocol.
            pub const fn description(self) -> &'static Description {
                match self {
                    $(Protocol::$protocol => &<$handler as ConnectionHandler>::DESCRIPTION,)*
                }
            }

            /// Accepts clients in a task, which ends when the server has stopped and all clients
            /// are gone.
            pub(crate) fn accept(
                self,
                listener: Listener,
                service: Service,
                tasks: &mut JoinSet<()>,
            ) -> AbortHandle {
                match self {
                    $(Protocol::$protocol => tasks.spawn(listener.run::<$handler>(service)),)*
                }
            }
        }
    };
}

protocols! {
    /// The Redis protocol.
    Resp => crate::resp::Resp,
    /// HTTP with JSON.
    Http => crate::http::Http,
}
