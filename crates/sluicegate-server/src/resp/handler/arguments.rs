//! Reads the arguments of commands.

use super::super::codec::{Command, Shown};
use super::rejection::Rejection;
use crate::engine::Target;

/// Reads text.
pub(super) fn text<'a>(argument: &'a [u8], what: &str) -> Result<&'a str, Rejection> {
    str::from_utf8(argument).map_err(|_| {
        Rejection::error(format_args!("{what} \"{}\" is not UTF-8; encode it in UTF-8", Shown(argument)))
    })
}

/// Reads `rule key`, the arguments after the command's name.
pub(super) fn target(command: Command<'_>) -> Result<Target<'_>, Rejection> {
    let rule = text(command.get(1).unwrap_or_default(), "rule")?;
    Ok(Target { rule, key: command.get(2).unwrap_or_default() })
}

/// Reads a whole number of at least 0.
pub(super) fn whole(argument: &[u8], what: &str) -> Result<u64, Rejection> {
    digits(argument).ok_or_else(|| {
        let is_large = !argument.is_empty() && argument.iter().all(u8::is_ascii_digit);
        let problem = if is_large {
            "is too large; use a smaller number"
        } else {
            "is not a whole number; use digits only"
        };
        Rejection::error(format_args!("{what} \"{}\" {problem}", Shown(argument)))
    })
}

/// Reads a whole number, which may be negative.
pub(super) fn integer(argument: &[u8], what: &str) -> Result<i64, Rejection> {
    let number = match argument {
        [b'-', magnitude @ ..] => {
            digits(magnitude).and_then(|magnitude| 0_i64.checked_sub_unsigned(magnitude))
        }
        _ => digits(argument).and_then(|number| i64::try_from(number).ok()),
    };
    number.ok_or_else(|| {
        Rejection::error(format_args!(
            "{what} \"{}\" is not a 64-bit whole number; use digits, such as 15 or -1",
            Shown(argument)
        ))
    })
}

/// Parses digits. By hand, as this is on the path of every command.
fn digits(argument: &[u8]) -> Option<u64> {
    let add = |number: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    };
    if argument.is_empty() { None } else { argument.iter().try_fold(0, add) }
}

/// Reads options of the form `COST n MAXWAIT ms`. Returns the values in the order of `names`.
pub(super) fn options<'a, const N: usize>(
    command: Command<'a>,
    from: usize,
    names: [&str; N],
) -> Result<[Option<&'a [u8]>; N], Rejection> {
    let mut values = [None; N];
    let mut arguments = command.from(from);
    while let Some(name) = arguments.next() {
        let index = names.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name));
        let Some((index, slot)) = index.and_then(|index| Some((index, values.get_mut(index)?))) else {
            return Err(Rejection::error(format_args!(
                "unknown option \"{}\"; use {}",
                Shown(name),
                names.join(" or ")
            )));
        };
        let value = arguments.next();
        if value.is_none() || slot.is_some() {
            let name = names.get(index).unwrap_or(&"");
            return Err(if value.is_none() {
                Rejection::error(format_args!("{name} has no value; write it as in {name} 1"))
            } else {
                Rejection::error(format_args!("{name} is given twice; keep one of them"))
            });
        }
        *slot = value;
    }
    Ok(values)
}
