//! Passwords, compared in constant time.

use std::fmt;
use subtle::ConstantTimeEq as _;

/// The longest password, in bytes. Every protocol can carry it, whatever its other limits are set
/// to.
pub const PASSWORD_LEN_MAX: usize = 512;

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
