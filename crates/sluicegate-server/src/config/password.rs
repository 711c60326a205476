//! The password's file.

use crate::auth::{PASSWORD_LEN_MAX, Password, UnfitPassword};
use std::io::Read as _;
use std::path::Path;

/// The password in a file, without the line's end; and a warning, if others can read the file.
///
/// # Errors
/// When it cannot be read, or clients could not say it.
pub fn read(path: &Path) -> Result<(Vec<u8>, Option<String>), String> {
    let name = path.display();
    let cannot = |error: std::io::Error| format!("{name}: the password cannot be read: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let warning = others_can_read(&file)
        .then(|| format!("{name}: everybody on this machine can read the password; run chmod 600 {name}"));
    let mut bytes = Vec::new();
    // A wrong file is not read to its end.
    file.take(PASSWORD_LEN_MAX as u64 + 3).read_to_end(&mut bytes).map_err(cannot)?;
    let said = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let said = said.strip_suffix(b"\r").unwrap_or(said);
    match Password::new(said) {
        Ok(_) => Ok((said.to_vec(), warning)),
        Err(UnfitPassword::Empty) => {
            Err(format!("{name}: the password is empty; write one, or leave password_file out"))
        }
        Err(UnfitPassword::TooLong(_)) => Err(format!(
            "{name}: the password is longer than {PASSWORD_LEN_MAX} bytes; write it alone into the file"
        )),
        Err(unfit) => Err(format!("{name}: {unfit}")),
    }
}

#[cfg(unix)]
fn others_can_read(file: &std::fs::File) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|about| about.permissions().mode() & 0o004 != 0)
}

#[cfg(not(unix))]
fn others_can_read(_file: &std::fs::File) -> bool {
    false
}
