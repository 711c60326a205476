//! The rivals: redis-server by itself, and with redis-cell loaded.
//!
//! redis-cell is taken from the file that `REDIS_CELL_SO` names, or else the newest version
//! published as a crate is built once into the benchmark's target folder. The crate's newest is
//! 0.2.2; later versions are in its repository only.

use super::Outcome;
use super::process::{Process, free_address};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the file of a module that was built before.
pub const MODULE_VARIABLE: &str = "REDIS_CELL_SO";

const PUBLISHED: &str = "0.2.2";

/// Where redis-cell is, and which one it is.
pub struct RedisCell {
    pub file: PathBuf,
    pub version: String,
}

impl RedisCell {
    pub fn find() -> Outcome<RedisCell> {
        if let Some(file) = std::env::var_os(MODULE_VARIABLE) {
            let file = PathBuf::from(file);
            let file =
                file.canonicalize().map_err(|error| format!("{MODULE_VARIABLE}: {file:?}: {error}"))?;
            return Ok(RedisCell { file, version: format!("from {MODULE_VARIABLE}") });
        }
        let folder = super::target_folder(Path::new(env!("CARGO_MANIFEST_DIR"))).join("redis-cell");
        let file = folder.join("target/release/libredis_cell.so");
        if !file.exists() {
            build(&folder).map_err(|problem| {
                format!("redis-cell {PUBLISHED}: {problem}; or set {MODULE_VARIABLE} to a built one")
            })?;
        }
        Ok(RedisCell { file, version: PUBLISHED.to_owned() })
    }
}

/// Fetches the published crate by way of a package that names it, and builds it as a library that a
/// C program can load.
fn build(folder: &Path) -> Outcome<()> {
    let text = |error: std::io::Error| error.to_string();
    fs::create_dir_all(folder.join("src")).map_err(text)?;
    fs::write(folder.join("src/lib.rs"), "").map_err(text)?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n\
         [dependencies]\nredis-cell = \"={PUBLISHED}\"\n\n[workspace]\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).map_err(text)?;
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", folder.join("target"));
        match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    cargo(&["vendor", "vendor"])?;
    // It lies inside the workspace of the benchmarks, which does not know it, and so has to be one
    // of its own.
    let crate_manifest = folder.join("vendor/redis-cell/Cargo.toml");
    let of_crate = fs::read_to_string(&crate_manifest).map_err(text)?;
    fs::write(&crate_manifest, of_crate + "\n[workspace]\n").map_err(text)?;
    let crate_manifest = crate_manifest.to_string_lossy();
    cargo(&["rustc", "--release", "--lib", "--crate-type", "cdylib", "--manifest-path", &crate_manifest])
}

/// redis-server without persistence, on a free port of loopback.
pub fn start(name: &str, module: Option<&RedisCell>, core: Option<usize>) -> Outcome<Process> {
    let address = free_address();
    let mut arguments: Vec<String> = format!(
        "redis-server --bind 127.0.0.1 --port {} --save  --appendonly no --daemonize no",
        address.port()
    )
    .split(' ')
    .map(str::to_owned)
    .collect();
    if let Some(module) = module {
        arguments.extend(["--loadmodule".to_owned(), module.file.to_string_lossy().into_owned()]);
    }
    Process::start(name, &arguments, address, core)
}
