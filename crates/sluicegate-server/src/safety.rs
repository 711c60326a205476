//! Who may be reached: an address that others can connect to needs a password and TLS, unless the operator insists.

use crate::protocol::Protocol;
use std::net::SocketAddr;

/// What protects the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection {
    /// Whether clients have to say a password.
    pub password: bool,
    /// Whether bytes are encrypted.
    pub tls: bool,
    /// Whether the operator has said that neither is needed.
    pub insecure: bool,
}

/// Whether a server may listen here.
///
/// # Errors
/// When others could reach it and something is missing, with what to do.
pub fn may_listen(protocol: Protocol, address: SocketAddr, protection: Protection) -> Result<(), String> {
    let Protection { password, tls, insecure } = protection;
    // `::ffff:127.0.0.1` is loopback too.
    if address.ip().to_canonical().is_loopback() || insecure {
        return Ok(());
    }
    let (missing, set) = match (password, tls) {
        (true, true) => return Ok(()),
        (false, false) => ("password and no TLS", "password_file, tls_cert and tls_key"),
        (false, true) => ("password", "password_file"),
        (true, false) => ("TLS", "tls_cert and tls_key"),
    };
    let port = address.port();
    Err(format!(
        "{protocol} on {address} could be reached by others, and there is no {missing}: set {set} in [server], \
         or listen on 127.0.0.1:{port}, or say --insecure if a network of your own protects it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_can_reach_needs_protection() {
        for (address, password, tls, insecure, missing) in [
            ("127.0.0.1:6380", false, false, false, None),
            ("127.8.9.1:6380", false, false, false, None),
            ("[::1]:6380", false, false, false, None),
            ("[::ffff:127.0.0.1]:6380", false, false, false, None),
            (
                "0.0.0.0:6380",
                false,
                false,
                false,
                Some("no password and no TLS: set password_file, tls_cert and tls_key"),
            ),
            ("[::]:6380", false, false, false, Some("no password and no TLS")),
            ("192.0.2.7:6380", true, false, false, Some("no TLS: set tls_cert and tls_key in")),
            ("[::ffff:192.0.2.7]:6380", false, true, false, Some("no password: set password_file in")),
            ("10.0.0.1:6380", true, true, false, None),
            ("0.0.0.0:6380", false, false, true, None),
        ] {
            let said =
                may_listen(Protocol::Resp, address.parse().unwrap(), Protection { password, tls, insecure });
            match missing {
                None => assert_eq!(said, Ok(()), "{address}"),
                Some(missing) => {
                    let said = said.unwrap_err();
                    assert!(said.contains(missing) && said.contains(address), "{address}: {said}");
                    assert!(said.contains("or listen on 127.0.0.1:6380, or say --insecure"), "{said}");
                }
            }
        }
    }
}
