//! Our server, with a configuration written for the occasion.

use super::Outcome;
use super::options::Options;
use super::process::{Process, free_address};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The rule that is measured; as a limit of CL.THROTTLE it is [`THROTTLE`]. A unit comes back each
/// 86.4 s, so a key that has used a hundred stays resident for hours, and 10,001 are never used up.
pub const RULE: &str = "token-bucket 1000/day burst=10001";
pub const THROTTLE: [&str; 3] = ["10000", "1000", "86400"];

/// The rule that is flooded: what was used does not come back while anybody watches.
pub const FLOODED: u32 = 5;

/// Our server, and its configuration file, which goes with it.
pub struct Ours {
    pub process: Process,
    _config: Config,
}

struct Config(PathBuf);

impl Drop for Config {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub fn start(
    options: &Options,
    program: &Path,
    threads: usize,
    max_keys: u64,
    core: Option<usize>,
) -> Outcome<Ours> {
    start_with(options, program, threads, core, &format!("[memory]\nmax_keys = {max_keys}\n\n"))
}

/// The same with its keys in a store at an address. The deadline is far off, as a full pipeline
/// waits for itself.
pub fn start_on_store(
    options: &Options,
    program: &Path,
    threads: usize,
    core: Option<usize>,
    store: SocketAddr,
) -> Outcome<Ours> {
    let settings = format!("[store]\nurl = \"redis://{store}\"\ndeadline = \"2s\"\n\n");
    start_with(options, program, threads, core, &settings)
}

fn start_with(
    options: &Options,
    program: &Path,
    threads: usize,
    core: Option<usize>,
    settings: &str,
) -> Outcome<Ours> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let name =
        format!("sluicegate-bench-{}-{}.toml", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
    let config = Config(std::env::temp_dir().join(name));
    let text = format!(
        "{settings}\
         [[rule]]\nname = \"bench\"\nlimit = \"{RULE}\"\n\n\
         [[rule]]\nname = \"flood\"\nlimit = \"token-bucket {FLOODED}/day\"\n"
    );
    fs::write(&config.0, text).map_err(|error| format!("{}: {error}", config.0.display()))?;
    let address = free_address();
    let filled = |word: &str| {
        word.replace("{config}", &config.0.to_string_lossy())
            .replace("{address}", &address.to_string())
            .replace("{port}", &address.port().to_string())
            .replace("{threads}", &threads.to_string())
    };
    let arguments: Vec<String> = [program.to_string_lossy().into_owned()]
        .into_iter()
        .chain(options.sluice_arguments.split(' ').map(filled))
        .collect();
    let process = Process::start("ours", &arguments, address, core)?;
    Ok(Ours { process, _config: config })
}
