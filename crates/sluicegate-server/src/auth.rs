//! Passwords, compared in constant time, and the limit on guessing them.

use crate::net::Peer;
use sluicegate::{BuildError, Limiter, RetryAfter, Span, Time};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// The longest password, in bytes. Every protocol can carry it, whatever its other limits are set
/// to.
pub const PASSWORD_LEN_MAX: usize = 512;

/// The shortest password, in bytes, on an address that other machines can reach.
pub const REACHABLE_PASSWORD_LEN_MIN: usize = 16;

/// How many wrong passwords one peer may send. Never a limit for all peers together: one of them
/// could lock all others out.
pub const WRONG_PASSWORDS_PER_MINUTE: u64 = 10;
/// How many of them at once.
pub const WRONG_PASSWORDS_BURST: u64 = 20;
/// The most peers whose wrong passwords are remembered.
const PEERS_MAX: usize = 10_000;

/// The password that clients must send.
#[derive(Clone)]
pub struct Password(Box<[u8]>);

/// Why a text cannot be a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnfitPassword {
    /// It is empty.
    Empty,
    /// It is longer than [`PASSWORD_LEN_MAX`]; holds its length in bytes.
    TooLong(usize),
    /// It holds a control character, which an HTTP header cannot carry.
    Control(u8),
    /// It starts or ends with a space, which HTTP strips from a header.
    OuterSpace,
}

impl fmt::Display for UnfitPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnfitPassword::Empty => f.write_str("the password is empty; set one"),
            UnfitPassword::TooLong(len) => {
                write!(f, "the password has {len} bytes; use at most {PASSWORD_LEN_MAX}")
            }
            UnfitPassword::Control(byte) => write!(
                f,
                "the password holds the control character {}, which HTTP cannot send; use one line of printable characters",
                byte.escape_ascii()
            ),
            UnfitPassword::OuterSpace => {
                f.write_str("the password starts or ends with a space, which HTTP does not send; remove it")
            }
        }
    }
}

impl std::error::Error for UnfitPassword {}

impl Password {
    /// Accepts a password that clients of every protocol can send.
    ///
    /// # Errors
    /// If some could not.
    pub fn new(password: &[u8]) -> Result<Password, UnfitPassword> {
        if password.len() > PASSWORD_LEN_MAX {
            return Err(UnfitPassword::TooLong(password.len()));
        }
        if let Some(byte) = password.iter().find(|byte| byte.is_ascii_control()) {
            return Err(UnfitPassword::Control(*byte));
        }
        match password {
            [] => Err(UnfitPassword::Empty),
            [b' ', ..] | [.., b' '] => Err(UnfitPassword::OuterSpace),
            fit => Ok(Password(fit.into())),
        }
    }

    /// Returns `true` if this is the password. The comparison takes constant time for a given
    /// length; it may reveal the length.
    pub fn is(&self, candidate: &[u8]) -> bool {
        self.0.ct_eq(candidate).into()
    }

    /// Returns `true` if it is long enough for an address that other machines can reach.
    pub fn is_long(&self) -> bool {
        self.0.len() >= REACHABLE_PASSWORD_LEN_MIN
    }
}

/// Why a client is not authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuthError {
    /// The password is wrong.
    Wrong,
    /// Its peer has sent too many wrong ones, and this one was not compared; holds how long that
    /// lasts.
    TooMany(Span),
}

/// The wrong passwords of each peer, in bounded memory.
#[derive(Debug)]
pub(crate) struct AuthFailures(Limiter);

impl AuthFailures {
    pub(crate) fn new() -> Result<AuthFailures, BuildError> {
        let limit = format!("token-bucket {WRONG_PASSWORDS_PER_MINUTE}/min burst={WRONG_PASSWORDS_BURST}");
        Limiter::builder(limit.as_str()).max_keys(PEERS_MAX).build().map(AuthFailures)
    }

    /// Compares a password, unless its peer has sent too many wrong ones.
    pub(crate) fn check(
        &self,
        password: &Password,
        candidate: &[u8],
        peer: Peer,
        now: Time,
    ) -> Result<(), AuthError> {
        if let Some(wait) = self.0.peek_at(peer.ip(), 1, now).retry_after() {
            return Err(AuthError::TooMany(match wait {
                RetryAfter::After(wait) => wait,
                RetryAfter::Never => Span::MAX,
            }));
        }
        if password.is(candidate) {
            return Ok(());
        }
        // Several threads may find the last one free; that is a few guesses more.
        let _ = self.0.check_at(peer.ip(), 1, now);
        Err(AuthError::Wrong)
    }
}

impl fmt::Debug for Password {
    /// Never shows the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_password_is_accepted() {
        let password = Password::new(b"correct horse").unwrap();
        assert!(password.is(b"correct horse"));
        for candidate in [&b"correct hors"[..], b"correct horse ", b"Correct horse", b""] {
            assert!(!password.is(candidate), "{candidate:?}");
        }
        assert_eq!(format!("{password:?}"), "Password(..)");
    }

    #[test]
    fn guesses_are_limited_per_peer() {
        let failures = AuthFailures::new().unwrap();
        let password = Password::new(b"correct horse").unwrap();
        let peer = |ip: &str| Peer::of(std::net::SocketAddr::new(ip.parse().unwrap(), 1));
        let at = |s: u64| Time::from_micros(s * 1_000_000).unwrap();
        let check = |ip, candidate: &[u8], now| failures.check(&password, candidate, peer(ip), now);
        for _ in 0..WRONG_PASSWORDS_BURST {
            // The right one costs nothing.
            assert_eq!(check("2001:db8::1", b"correct horse", at(0)), Ok(()));
            assert_eq!(check("2001:db8::1", b"guess", at(0)), Err(AuthError::Wrong));
        }
        // From now on it does not learn whether it is right, from any address of its network, ...
        let too_many = Err(AuthError::TooMany(Span::from_micros(6_000_000)));
        assert_eq!(check("2001:db8::2", b"guess", at(0)), too_many);
        assert_eq!(check("2001:db8::2", b"correct horse", at(0)), too_many);
        // ... and others are not affected.
        assert_eq!(check("2001:db8:0:1::1", b"correct horse", at(0)), Ok(()));
        assert_eq!(check("2001:db8::1", b"guess", at(6)), Err(AuthError::Wrong));
        assert_eq!(check("2001:db8::1", b"correct horse", at(12)), Ok(()));
    }

    #[test]
    fn a_password_that_http_cannot_send_is_rejected() {
        let longest = [b'x'; PASSWORD_LEN_MAX];
        assert!(Password::new(&longest).is_ok());
        assert!(Password::new("contraseña größer".as_bytes()).is_ok());
        for (password, unfit) in [
            (&b""[..], UnfitPassword::Empty),
            (&[b'x'; PASSWORD_LEN_MAX + 1], UnfitPassword::TooLong(PASSWORD_LEN_MAX + 1)),
            (b"correct\nhorse", UnfitPassword::Control(b'\n')),
            (b"correct\thorse", UnfitPassword::Control(b'\t')),
            (b"\x7f", UnfitPassword::Control(0x7f)),
            (b" horse", UnfitPassword::OuterSpace),
            (b"horse ", UnfitPassword::OuterSpace),
        ] {
            assert_eq!(Password::new(password).unwrap_err(), unfit, "{}", password.escape_ascii());
        }
    }
}
