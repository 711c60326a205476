//! Arguments to values.

use super::super::codec::{Command, Shown};
use super::rejection::Rejection;
use crate::engine::Target;

/// An argument as text.
pub(super) fn text<'a>(argument: &'a [u8], what: &str) -> Result<&'a str, Rejection> {
    str::from_utf8(argument).map_err(|_| {
        Rejection::error(format_args!("the {what} is not UTF-8: \"{}\"; write it in UTF-8", Shown(argument)))
    })
}

/// `rule key`, the arguments after the name.
pub(super) fn target(command: Command<'_>) -> Result<Target<'_>, Rejection> {
    let rule = text(command.get(1).unwrap_or_default(), "rule")?;
    Ok(Target { rule, key: command.get(2).unwrap_or_default() })
}

/// A whole number that is not negative.
pub(super) fn whole(argument: &[u8], what: &str) -> Result<u64, Rejection> {
    digits(argument).ok_or_else(|| {
        let is_large = !argument.is_empty() && argument.iter().all(u8::is_ascii_digit);
        let problem = if is_large {
            "is too large; write less"
        } else {
            "is not a whole number from 0 on; write digits alone"
        };
        Rejection::error(format_args!("the {what} \"{}\" {problem}", Shown(argument)))
    })
}

/// A whole number.
pub(super) fn integer(argument: &[u8], what: &str) -> Result<i64, Rejection> {
    let number = match argument {
        [b'-', magnitude @ ..] => {
            digits(magnitude).and_then(|magnitude| 0_i64.checked_sub_unsigned(magnitude))
        }
        _ => digits(argument).and_then(|number| i64::try_from(number).ok()),
    };
    number.ok_or_else(|| {
        Rejection::error(format_args!(
            "the {what} \"{}\" is not a whole number of 64 bits; write digits, such as 15 or -1",
            Shown(argument)
        ))
    })
}

/// A number of digits alone: by hand, as every command has some.
fn digits(argument: &[u8]) -> Option<u64> {
    let add = |number: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    };
    if argument.is_empty() { None } else { argument.iter().try_fold(0, add) }
}

/// The values of options that come as pairs, `COST n MAXWAIT ms`, in the order of `names`.
pub(super) fn options<'a, const N: usize>(
    command: Command<'a>,
    from: usize,
    names: [&str; N],
) -> Result<[Option<&'a [u8]>; N], Rejection> {
    let mut values = [None; N];
    let mut arguments = command.from(from);
    while let Some(name) = arguments.next() {
        let place = names.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name));
        let Some((place, slot)) = place.and_then(|place| Some((place, values.get_mut(place)?))) else {
            return Err(Rejection::error(format_args!(
                "unknown option \"{}\"; use {}",
                Shown(name),
                names.join(" or ")
            )));
        };
        let value = arguments.next();
        if value.is_none() || slot.is_some() {
            let name = names.get(place).unwrap_or(&"");
            return Err(if value.is_none() {
                Rejection::error(format_args!("{name} needs a number after it, as in {name} 1"))
            } else {
                Rejection::error(format_args!("{name} is there twice; write it once"))
            });
        }
        *slot = value;
    }
    Ok(values)
}
