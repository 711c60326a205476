//! `sluice replay`: calls in, decisions out.

mod shared;

use crate::Problem;
use crate::args::ReplayArgs;
use sluicegate::{IntoLimits as _, Limit};
use sluicegate_sim::replay::{Replay, ReplayError, run as run_trace};
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Problem> {
    if let Some(word) = args.stray.first() {
        return Err(format!(
            "{word:?} stands alone; quote the limit as in --limit 'sliding-log 5/60s', and pass the trace with < trace.csv"
        ));
    }
    let limits = args.limits.as_slice().into_limits().map_err(|error| error.to_string())?;
    Limit::check_list(&limits).map_err(|error| error.to_string())?;
    let stdin = io::stdin();
    if stdin.is_terminal() {
        let hint = "sluice: reading calls from the terminal, first the line at_us,key,cost; end with Ctrl-D";
        let _ = writeln!(io::stderr(), "{hint}");
    }
    let replayed = match args.store.as_deref() {
        None | Some("memory") => {
            let replay = Replay::new(limits).map_err(|error| error.to_string())?;
            run_trace(replay, stdin.lock(), io::stdout().lock()).map(|_| ())
        }
        Some(url) => shared::run(url, &limits, stdin.lock(), io::stdout().lock())?,
    };
    match replayed {
        Ok(()) => Ok(()),
        // The reader closed the pipe: `sluice replay ... | head`.
        Err(ReplayError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
