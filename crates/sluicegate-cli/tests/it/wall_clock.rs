//! A wall clock that a test can set, for one server and without touching the machine's.
#![cfg(target_os = "linux")]

use crate::serving::Folder;
use std::process::Command;

/// Stands in front of the C library, and adds the seconds in the file `SHIFT` to UTC.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, id, at);
    if (failed || id != CLOCK_REALTIME) return failed;
    char text[32] = {0};
    int file = open(getenv("SHIFT"), O_RDONLY);
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0) at->tv_sec += atoll(text);
        close(file);
    }
    return 0;
}
"#;

/// How far a server's wall clock is from the machine's.
pub(crate) struct WallClock {
    folder: Folder,
    shim: String,
    shift: String,
}

impl WallClock {
    /// Creates a clock that is ahead by some seconds. Returns `None` without a C compiler.
    pub(crate) fn new(folder: Folder, ahead: i64) -> Option<WallClock> {
        let source = folder.write("shim.c", SHIM);
        let (shim, shift) = (source.replace(".c", ".so"), folder.write("shift", &ahead.to_string()));
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o", &shim, &source]).status().ok()?;
        assert!(compiled.success(), "the shim does not compile");
        Some(WallClock { folder, shim, shift })
    }

    /// Makes a command that has not been started yet read this clock.
    pub(crate) fn give_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_PRELOAD", &self.shim).env("SHIFT", &self.shift)
    }

    /// Sets the clock ahead of the machine's by some seconds.
    pub(crate) fn set(&self, ahead: i64) {
        // In one step: a file that is half written is another time.
        let new = self.folder.write("shift.new", &ahead.to_string());
        std::fs::rename(&new, &self.shift).unwrap();
    }
}
