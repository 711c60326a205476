//! The arguments, with help that teaches by example.

use clap::{Args as ClapArgs, Parser, Subcommand};

const LIMITS: &str = "\
A limit is one line: the algorithm, its measure, its options.
  token-bucket 30/60s burst=15         refills evenly at 30 per 60 s, holds at most 15
  token-bucket 50/10s initial=0        starts empty: one token each 200 ms
  leaky-bucket 1/2s capacity=3         the funnel: fills by cost, leaks one each 2 s
  fixed-window 5/60s                   windows aligned to the Unix epoch (start=first, start=TIME)
  fixed-window 1/day tz=Asia/Shanghai  calendar days there; also week, month, year
  sliding-log 5/60s                    never more than 5 in any 60 s, exactly (count=all)
  sliding-window 1000/1m               close to that, in constant memory
  min-interval 200ms                   at least 200 ms between two allowed calls
  pacer 10/s queue=20                  allowed calls leave 100 ms apart, up to 20 wait
Periods are [N]UNIT with UNIT us ms s m h d, or second minute hour day.";

const REPLAY_HELP: &str = "\
Example: may Harry reply, and when again?
  $ printf 'at_us,key,cost\\n0,Harry,1\\n0,Harry,1\\n1000000,Harry,1\\n' |
      sluice replay --limit 'min-interval 2s'
  allowed,limit,remaining,retry_after_us,reset_after_us,delay_us
  1,1,0,,2000000,0
  0,1,0,2000000,2000000,0
  0,1,0,1000000,1000000,0

In, with this header and in this order:
  at_us           when, in microseconds since 1970; it may go back
  key             who or what is limited; each key has its own state
  cost            how much of the limit the call takes, 1 for an ordinary one
Out, one row a call:
  allowed         1 or 0
  limit           the most that an idle key could take at once
  remaining       the cost that would still be allowed after this call
  retry_after_us  when denied, the shortest wait until the same call is allowed, or `never`
  reset_after_us  the wait until the key is as good as new
  delay_us        how long an allowed call waits before it acts (pacer)

Several limits are all or nothing: --limit 'token-bucket 10/s burst=50' --limit 'fixed-window 1000/day'
A row that is not a call stops it with exit 2 and the line number, after the rows before it.
What a limit may be: sluice --help. What it promises: sluice explain LIMIT.";

const EXPLAIN_HELP: &str = "\
Examples:
  sluice explain 'token-bucket 30/60s burst=15'
  sluice explain 'fixed-window 1/day tz=Asia/Shanghai'
  sluice explain 'sliding-log 5/60s'
What a limit may be: sluice --help.";

/// Rate limits that are exact: try one before you deploy it.
#[derive(Parser, Debug)]
#[command(name = "sluice", version, after_help = LIMITS, max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run limits over a trace in virtual time: sluice replay --limit LIMIT < trace.csv > decisions.csv
    #[command(after_help = REPLAY_HELP, max_term_width = 110)]
    Replay(ReplayArgs),
    /// Say in plain words what a limit promises, its worst case, its memory, and show it at work
    #[command(after_help = EXPLAIN_HELP, max_term_width = 110)]
    Explain(ExplainArgs),
}

/// Reads calls from standard input as CSV with the header `at_us,key,cost` and writes one decision a call to
/// standard output. Nothing sleeps: time is the trace's own, and may even go back.
#[derive(ClapArgs, Debug)]
pub(crate) struct ReplayArgs {
    /// The limit, such as 'sliding-log 5/60s'. Repeat it for several, which must all allow
    #[arg(long = "limit", value_name = "LIMIT", required = true)]
    pub(crate) limits: Vec<String>,

    /// Words that belong nowhere: the rest of a limit without quotes, or the name of a trace
    #[arg(hide = true, value_name = "WORD")]
    pub(crate) stray: Vec<String>,
}

/// Says in plain words what a limit promises, the worst case in any window and the memory a key takes, and shows a
/// small timeline of real decisions.
#[derive(ClapArgs, Debug)]
pub(crate) struct ExplainArgs {
    /// The limit, such as 'token-bucket 30/60s burst=15'
    #[arg(value_name = "LIMIT", required = true, num_args = 1..)]
    pub(crate) limit: Vec<String>,
}
