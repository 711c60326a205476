//! A temporary folder, removed on drop.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed is enough: the number only has to be unique.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("redis-testkit-{}-{number}", std::process::id());
        let path = place().join(name);
        // An earlier process with the same id may have left one behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path)
            .unwrap_or_else(|error| panic!("cannot create the folder {}: {error}", path.display()));
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text)
            .unwrap_or_else(|error| panic!("cannot write the file {}: {error}", path.display()));
        path
    }
}

/// In memory, where the system offers that. A server waits for the disk when it saves its data or
/// its cluster state, which on a busy machine can take longer than a test may.
fn place() -> PathBuf {
    let in_memory = Path::new("/dev/shm");
    if in_memory.is_dir() { in_memory.to_path_buf() } else { std::env::temp_dir() }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
