//! Refuses to expose an unprotected server: any address but loopback needs a password and TLS, or
//! `--insecure`.

use crate::auth::{Password, REACHABLE_PASSWORD_LEN_MIN};
use crate::protocol::Protocol;
use std::net::SocketAddr;

/// How the server is protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Protection {
    /// `true` if clients must authenticate.
    pub(crate) password: bool,
    /// `true` if connections are encrypted.
    pub(crate) tls: bool,
    /// `true` if the operator passed `--insecure`.
    pub(crate) insecure: bool,
}

/// Checks whether a server with this protection may listen on an address.
///
/// # Errors
/// If other machines could reach it and a protection is missing. The message says what to do.
pub(crate) fn check(protocol: Protocol, address: SocketAddr, protection: Protection) -> Result<(), String> {
    let Protection { password, tls, insecure } = protection;
    // Canonical, as `::ffff:127.0.0.1` is loopback too.
    if address.ip().to_canonical().is_loopback() || insecure {
        return Ok(());
    }
    let (missing, set) = match (password, tls) {
        (true, true) => return Ok(()),
        (false, false) => ("password and TLS", "password_file, tls_cert and tls_key"),
        (false, true) => ("password", "password_file"),
        (true, false) => ("TLS", "tls_cert and tls_key"),
    };
    let port = address.port();
    Err(format!(
        "{protocol} on {address} would be reachable from other machines without {missing}: set {set} in [server], \
         listen on 127.0.0.1:{port}, or pass --insecure if a private network protects it"
    ))
}

/// Checks whether a password is long enough for an address.
///
/// # Errors
/// If other machines could guess it. The message says how long it must be, and nothing of it.
pub(crate) fn check_password(
    protocol: Protocol,
    address: SocketAddr,
    password: &Password,
    insecure: bool,
) -> Result<(), String> {
    if address.ip().to_canonical().is_loopback() || insecure || password.is_long() {
        return Ok(());
    }
    Err(format!(
        "{protocol} on {address} would be reachable from other machines with a password of fewer than \
         {REACHABLE_PASSWORD_LEN_MIN} bytes: use a longer one, such as the output of `openssl rand -hex 16`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reachable_address_needs_a_long_password() {
        let (short, long) = (Password::new(&[b'x'; 15]).unwrap(), Password::new(&[b'x'; 16]).unwrap());
        let check = |address: &str, password, insecure| {
            check_password(Protocol::Http, address.parse().unwrap(), password, insecure)
        };
        assert_eq!(
            check("10.0.0.1:8380", &short, false).unwrap_err(),
            "HTTP on 10.0.0.1:8380 would be reachable from other machines with a password of fewer than 16 bytes: use a \
             longer one, such as the output of `openssl rand -hex 16`"
        );
        assert_eq!(check("10.0.0.1:8380", &long, false), Ok(()));
        assert_eq!(check("10.0.0.1:8380", &short, true), Ok(()));
        assert_eq!(check("[::1]:8380", &short, false), Ok(()));
    }

    #[test]
    fn only_a_reachable_address_needs_protection() {
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
                Some("without password and TLS: set password_file, tls_cert and tls_key"),
            ),
            ("[::]:6380", false, false, false, Some("without password and TLS")),
            ("192.0.2.7:6380", true, false, false, Some("without TLS: set tls_cert and tls_key in")),
            ("[::ffff:192.0.2.7]:6380", false, true, false, Some("without password: set password_file in")),
            ("10.0.0.1:6380", true, true, false, None),
            ("0.0.0.0:6380", false, false, true, None),
        ] {
            let checked =
                check(Protocol::Resp, address.parse().unwrap(), Protection { password, tls, insecure });
            match missing {
                None => assert_eq!(checked, Ok(()), "{address}"),
                Some(missing) => {
                    let error = checked.unwrap_err();
                    assert!(error.contains(missing) && error.contains(address), "{address}: {error}");
                    assert!(error.contains("listen on 127.0.0.1:6380, or pass --insecure"), "{error}");
                }
            }
        }
    }
}
