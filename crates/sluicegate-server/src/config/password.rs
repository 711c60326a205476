//! The password file.

use crate::auth::{PASSWORD_LEN_MAX, Password, UnfitPassword};
use std::io::Read as _;
use std::path::Path;

/// Reads the password in a file, without the line end. Also returns a warning if every user can
/// read the file.
///
/// # Errors
/// If the file is unreadable, or clients could not send the password.
pub fn read(path: &Path) -> Result<(Vec<u8>, Option<String>), String> {
    let name = path.display();
    let cannot = |error: std::io::Error| format!("{name}: cannot read the password: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let warning = is_world_readable(&file)
        .then(|| format!("{name}: every user of this machine can read the password; run chmod 600 {name}"));
    let mut bytes = Vec::new();
    // If this is the wrong file, it may be long.
    file.take(PASSWORD_LEN_MAX as u64 + 3).read_to_end(&mut bytes).map_err(cannot)?;
    let password = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let password = password.strip_suffix(b"\r").unwrap_or(password);
    match Password::new(password) {
        Ok(_) => Ok((password.to_vec(), warning)),
        Err(UnfitPassword::Empty) => {
            Err(format!("{name}: the password is empty; write one, or remove password_file"))
        }
        Err(UnfitPassword::TooLong(_)) => Err(format!(
            "{name}: the password is longer than {PASSWORD_LEN_MAX} bytes; the file must hold nothing else"
        )),
        Err(unfit) => Err(format!("{name}: {unfit}")),
    }
}

#[cfg(unix)]
fn is_world_readable(file: &std::fs::File) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

#[cfg(not(unix))]
fn is_world_readable(_file: &std::fs::File) -> bool {
    false
}
