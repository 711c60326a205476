//! The password, and how it is compared.

use std::fmt;
use subtle::ConstantTimeEq as _;

/// The longest password in bytes. Every protocol can carry it, whatever its other bounds are set to.
pub const PASSWORD_LEN_MAX: usize = 512;

/// A password that clients have to say.
#[derive(Clone)]
pub struct Password(Box<[u8]>);

/// Why something cannot be a password.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnfitPassword {
    /// Nobody means that.
    Empty,
    /// It has so many bytes.
    TooLong(usize),
    /// HTTP cannot send this byte in a header.
    Control(u8),
    /// HTTP does not count blanks around a header's value.
    BlankAtEnd,
}

impl fmt::Display for UnfitPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnfitPassword::Empty => f.write_str("the password is empty; write one"),
            UnfitPassword::TooLong(len) => {
                write!(f, "the password has {len} bytes; use at most {PASSWORD_LEN_MAX}")
            }
            UnfitPassword::Control(byte) => write!(
                f,
                "the password has the control character {}, which HTTP cannot send; write one line of visible characters",
                byte.escape_ascii()
            ),
            UnfitPassword::BlankAtEnd => f.write_str(
                "the password begins or ends with a blank, which HTTP does not send; leave it out",
            ),
        }
    }
}

impl std::error::Error for UnfitPassword {}

impl Password {
    /// The password, if clients of every protocol can say it.
    ///
    /// # Errors
    /// When some could not.
    pub fn new(password: &[u8]) -> Result<Password, UnfitPassword> {
        if password.len() > PASSWORD_LEN_MAX {
            return Err(UnfitPassword::TooLong(password.len()));
        }
        if let Some(byte) = password.iter().find(|byte| byte.is_ascii_control()) {
            return Err(UnfitPassword::Control(*byte));
        }
        match password {
            [] => Err(UnfitPassword::Empty),
            [b' ', ..] | [.., b' '] => Err(UnfitPassword::BlankAtEnd),
            fit => Ok(Password(fit.into())),
        }
    }

    /// Whether this is it. How long that takes does not tell where the two differ (it may tell the password's length).
    pub fn is(&self, said: &[u8]) -> bool {
        self.0.ct_eq(said).into()
    }
}

impl fmt::Debug for Password {
    /// Never in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_password_is_it() {
        let password = Password::new(b"open sesame").unwrap();
        assert!(password.is(b"open sesame"));
        for said in [&b"open sesam"[..], b"open sesame ", b"Open sesame", b""] {
            assert!(!password.is(said), "{said:?}");
        }
        assert_eq!(format!("{password:?}"), "Password(..)");
    }

    #[test]
    fn what_a_client_could_not_say_is_no_password() {
        let longest = [b'x'; PASSWORD_LEN_MAX];
        assert!(Password::new(&longest).is_ok());
        assert!(Password::new("Sésam, öffne dich".as_bytes()).is_ok());
        for (password, unfit) in [
            (&b""[..], UnfitPassword::Empty),
            (&[b'x'; PASSWORD_LEN_MAX + 1], UnfitPassword::TooLong(PASSWORD_LEN_MAX + 1)),
            (b"open\nsesame", UnfitPassword::Control(b'\n')),
            (b"open\tsesame", UnfitPassword::Control(b'\t')),
            (b"\x7f", UnfitPassword::Control(0x7f)),
            (b" sesame", UnfitPassword::BlankAtEnd),
            (b"sesame ", UnfitPassword::BlankAtEnd),
        ] {
            assert_eq!(Password::new(password).unwrap_err(), unfit, "{}", password.escape_ascii());
        }
    }
}
