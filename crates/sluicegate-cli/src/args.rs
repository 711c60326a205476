//! The arguments, with help that teaches by example.

mod listen;

use clap::{ArgGroup, Args as ClapArgs, Parser, Subcommand, ValueEnum};
use listen::ListenArgs;
use sluicegate_server::protocol::Protocol;
use std::path::PathBuf;

const LIMITS: &str = "\
A limit is one line: the algorithm, its measure, its options.
  token-bucket 30/60s burst=15         refills evenly at 30 per 60 s, holds at most 15
  token-bucket 50/10s initial=0        starts empty: one token each 200 ms
  leaky-bucket 1/2s capacity=3         the funnel: fills by cost, leaks one each 2 s
  fixed-window 5/60s                   windows aligned to the Unix epoch (start=first, start=TIME)
  fixed-window 1/day tz=Asia/Shanghai  calendar days there; also week, month, year
  sliding-log 5/60s                    never more than 5 in any 60 s, exactly (count=all)
  sliding-window 1000/1min               close to that, in constant memory
  min-interval 200ms                   at least 200 ms between two allowed calls
  pacer 10/s queue=20                  allowed calls leave 100 ms apart, up to 20 wait
  concurrency 10 ttl=30s               at most 10 at once, by leases that lapse after 30 s unless renewed
  smooth 10/s warmup=4s                Guava's RateLimiter: the next caller pays (warmup, cold, burst)
Periods are [N]UNIT with UNIT us ms s min h d, or second minute hour day.";

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

const SIMULATE_EXAMPLES: &str = "\
Examples:
  Two limits against the window-edge attack, drawn in the terminal
    sluice simulate --limit 'fixed-window 12/60s' --limit 'sliding-log 12/60s' \\
        --workload 'edge 12/60s' --terminal
  A crowd of 1000 callers, some far busier than others, and a picture for a slide
    sluice simulate --limit 'token-bucket 5/s burst=20' --workload 'poisson 200/s keys=1000 zipf=1.1 for=5min' \\
        --plot crowd.svg --plot crowd.png
  Who would have been limited last week, under each?
    sluice simulate --log access.log --key ip --limit 'sliding-log 60/min' --limit 'token-bucket 60/min burst=30'
  Rotated logs
    zcat access.log.*.gz | cat - access.log | sluice simulate --log - --limit 'sliding-log 60/min'

Workloads: a name, a rate, options. Without any, twice the first limit's rate at random.
";

const SIMULATE_NOTES: &str = "\
Several --workload come at the same time, those with the same key= as the same callers.
Limits: each --limit is tried on its own; 'A + B' are two that must both allow. What a limit may be: sluice --help.
The table: longest run = calls of one key denied in a row; longest wait = the longest that a caller was told;
  worst = the most that one key was allowed in any stretch as long as the limit's period.";

const OVERLOAD_EXAMPLES: &str = "\
Examples:
  A dependency that becomes ten times as slow for 20 s, with and without protection
    sluice overload --protect none --protect 'breaker 50%/10s' --protect 'gradient 20 min=5' \\
        --workload 'poisson 150/s for=90s' --dependency 'workers=10 takes=50ms slow=20s..40s:x10'
  What impatient callers make of it, and a picture
    sluice overload --protect none --protect 'aimd 20 min=5 timeout=500ms' --callers 'timeout=1s retries=2' \\
        --workload 'poisson 150/s for=90s' --dependency 'workers=10 takes=50ms slow=20s..40s:x10' --plot storm.svg

Protections: none, or one or two of these with + between them
  bulkhead 20                          at most 20 at once
  aimd 20 min=5 timeout=500ms          as many as go well: fewer after a drop, one more after a good call
  gradient 20 min=5                    as many as go well: fewer when calls take longer than usual
  breaker 50%/10s                      none for 5 s when half of the last 10 s failed; then a probe
  breaker 50%/10s + aimd 20 min=5      both: the breaker is asked first
The dependency: workers=N takes=DURATION, and if it has them
  random=50%                           the part of that time that is at random, exponentially
  backlog=100                          refuses when so many wait for a worker; any number may if not said
  slow=20s..40s:x10,60s..70s:x3        bad times: calls take so many times as long
  fail=50s..60s:100%                   so many of a hundred calls fail
The callers: timeout=1s retries=0 backoff=0s. Who gives up is forgotten by everyone but the dependency, which works on.

Workloads: a name, a rate, options.
";

const OVERLOAD_NOTES: &str = "\
The table: good = answered well before the caller gave up; in vain = failed or timed out; tries = calls and retries that were made;
  wasted = the part of the dependency's work for callers who had given up; waits are until a caller knew, whatever the answer.
What it shows and how to read it: docs/overload.md.";

fn overload_help() -> String {
    let mut help = OVERLOAD_EXAMPLES.to_owned();
    for line in sluicegate_sim::traffic::workload::HELP.lines() {
        help += &format!("  {line}\n");
    }
    help + OVERLOAD_NOTES
}

const SERVE_HELP: &str = "\
Examples:
  sluice serve                                     RESP on 127.0.0.1:6380, HTTP on 127.0.0.1:8380, keys in memory
  sluice serve --store redis://127.0.0.1           keys in a Redis that several servers share
  sluice serve --config sluice.toml                rules and all else from a file
  sluice serve --resp 127.0.0.1:0 --http off       any free port; the log on standard error says which
Ask it:
  $ redis-cli -p 6380 CL.THROTTLE Harry:reply 4 5 60
  $ sluice check 'sliding-log 5/60s' Harry

A file with every setting is crates/sluicegate-server/sluice.example.toml; sluice validate checks one.
What comes later wins: defaults, the file, variables, flags. Each setting NAME of the file has a variable, mostly SLUICE_NAME:
  SLUICE_CONFIG SLUICE_RESP SLUICE_HTTP SLUICE_PASSWORD SLUICE_PASSWORD_FILE SLUICE_TLS_CERT SLUICE_TLS_KEY SLUICE_HOSTS
  SLUICE_STORE SLUICE_MAX_KEYS SLUICE_THREADS SLUICE_LOG SLUICE_LOG_FORMAT ... ; docs/configuration.md lists all
An address that others can reach needs a password and TLS, or --insecure.
Signals: TERM and INT answer what has arrived and exit 0 (after 30 s, or at a second one, at once);
  HUP takes up rules, certificates and the log's level from the file, or refuses a bad one and goes on.
Exit 2 if it cannot start, with the reason.";

const CHECK_HELP: &str = "\
Examples:
  $ sluice check reply Harry
  allowed: 4 of 5 remain, full again in 1 min
  $ sluice check 'sliding-log 5/60s' Harry --cost 5
  denied by sliding-log 5/min: again in 42 s
  $ sluice check api partner-7 --peek --json       asks without taking anything
  $ sluice check reply Harry --server limits.example.com:6380 --ca ca.pem
Exit 0 if it is allowed, 1 if it is denied, 2 if that could not be found out.
The password is read from SLUICE_PASSWORD, SLUICE_PASSWORD_FILE or --password-file. It goes to another machine only in TLS (--ca).";

const VALIDATE_HELP: &str = "\
Example:
  sluice validate sluice.toml
Exit 0 if the file is right, 2 with a line for each mistake. Files that it names are not opened.";

fn simulate_help() -> String {
    let mut help = SIMULATE_EXAMPLES.to_owned();
    for line in sluicegate_sim::traffic::workload::HELP.lines() {
        help += &format!("  {line}\n");
    }
    help + SIMULATE_NOTES
}

/// Rate limits that are exact: try one before you deploy it, serve it, ask for it.
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
    /// Show what limits would do to traffic: a table, plots, and who would have been limited
    #[command(after_help = simulate_help(), max_term_width = 110)]
    Simulate(Box<SimulateArgs>),
    /// Show what protects callers from a dependency that slows down or fails: a table and plots
    #[command(after_help = overload_help(), max_term_width = 110)]
    Overload(Box<OverloadArgs>),
    /// Run the server: RESP for every Redis client, and HTTP
    #[command(after_help = SERVE_HELP, max_term_width = 110)]
    Serve(Box<ServeArgs>),
    /// Ask a running server: exit 0 allowed, 1 denied, 2 error
    #[command(after_help = CHECK_HELP, max_term_width = 110)]
    Check(CheckArgs),
    /// Check a configuration file, and explain its rules
    #[command(after_help = VALIDATE_HELP, max_term_width = 110)]
    Validate(ValidateArgs),
}

/// Serves limits to every Redis client (RESP) and over HTTP, until it is told to stop.
#[derive(ClapArgs, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) listen: ListenArgs,

    /// Where the state of keys lives: memory, or the address of a Redis or Valkey that servers share [default: memory]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// The most keys in memory [default: 1000000]
    #[arg(long, value_name = "N")]
    pub(crate) max_keys: Option<String>,

    /// Threads that serve, or auto for one a core
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,

    /// A file with the password that clients have to say
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<String>,

    /// Certificates in PEM, our own first
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<String>,

    /// The certificate's key in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<String>,

    /// Let others reach it without a password or TLS
    #[arg(long)]
    pub(crate) insecure: bool,

    /// What is logged: off error warn info debug trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,

    /// How lines of the log look: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

/// Asks a running server over RESP whether a key may act now, and takes its cost if so.
#[derive(ClapArgs, Debug)]
pub(crate) struct CheckArgs {
    /// The name of a rule, or a limit such as 'sliding-log 5/60s'
    #[arg(value_name = "RULE|LIMIT")]
    pub(crate) rule: String,

    /// Who acts
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// What the call costs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cost: u32,

    /// Only ask, and take nothing
    #[arg(long)]
    pub(crate) peek: bool,

    /// Where the server listens for RESP
    #[arg(long, value_name = "ADDR", default_value = Protocol::Resp.description().default_address)]
    pub(crate) server: String,

    /// Speak TLS; the certificate of whoever signed the server's, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// A file with the password
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Print the decision as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Words that belong nowhere: the rest of a limit without quotes
    #[arg(hide = true, value_name = "WORD")]
    pub(crate) stray: Vec<String>,
}

/// Checks a configuration file and says in plain words what each of its rules does.
#[derive(ClapArgs, Debug)]
pub(crate) struct ValidateArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Reads calls from standard input as CSV with the header `at_us,key,cost` and writes one decision a call to
/// standard output. Nothing sleeps: time is the trace's own, and may even go back.
#[derive(ClapArgs, Debug)]
pub(crate) struct ReplayArgs {
    /// The limit, such as 'sliding-log 5/60s'. Repeat it for several, which must all allow
    #[arg(long = "limit", value_name = "LIMIT", required = true)]
    pub(crate) limits: Vec<String>,

    /// Where the keys live meanwhile: memory, or redis://... for the decisions of the shared store's scripts. Those are under
    /// a prefix of their own, and removed afterwards
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,

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

/// Tries limits side by side on made-up or recorded traffic, in virtual time, and shows what they would do.
#[derive(ClapArgs, Debug)]
#[command(group = ArgGroup::new("source").multiple(false))]
pub(crate) struct SimulateArgs {
    /// A limit to try, such as 'sliding-log 5/60s'. Repeat it to compare
    #[arg(long = "limit", value_name = "LIMIT", required = true)]
    pub(crate) limits: Vec<String>,

    /// What to call a limit in tables and pictures: none, or one for each --limit in their order
    #[arg(long = "label", value_name = "TEXT")]
    pub(crate) labels: Vec<String>,

    /// Made-up traffic, such as 'poisson 20/s keys=100'. Repeat it for several at the same time
    #[arg(long = "workload", value_name = "WORKLOAD", group = "source", help_heading = "Traffic")]
    pub(crate) workloads: Vec<String>,

    /// Recorded calls as CSV, as for replay; - is standard input
    #[arg(long, value_name = "FILE", group = "source", help_heading = "Traffic")]
    pub(crate) trace: Option<PathBuf>,

    /// A web server's access log: common, combined or JSON lines; - is standard input
    #[arg(long, value_name = "FILE", group = "source", help_heading = "Traffic")]
    pub(crate) log: Option<PathBuf>,

    /// The format of the log: common, combined or json. Found out if not said
    #[arg(long, value_name = "FORMAT", requires = "log", conflicts_with_all = ["workloads", "trace"], help_heading = "Traffic")]
    pub(crate) format: Option<String>,

    /// The log's field that is limited: ip if not said; user, path, agent ...; in JSON any field, also a.b; several as
    /// ip,path
    #[arg(long, value_name = "FIELD", requires = "log", conflicts_with_all = ["workloads", "trace"], help_heading = "Traffic")]
    pub(crate) key: Option<String>,

    /// The field that says when, in a log of JSON lines
    #[arg(long, value_name = "FIELD", requires = "log", conflicts_with_all = ["workloads", "trace"], help_heading = "Traffic")]
    pub(crate) time: Option<String>,

    /// The field that a call costs, such as bytes; otherwise every call costs 1
    #[arg(long, value_name = "FIELD", requires = "log", conflicts_with_all = ["workloads", "trace"], help_heading = "Traffic")]
    pub(crate) cost: Option<String>,

    /// Where the random numbers of workloads begin
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Traffic")]
    pub(crate) seed: u64,

    /// Stop at the first broken line instead of passing over it
    #[arg(long, help_heading = "Traffic")]
    pub(crate) strict: bool,

    /// The most calls, which are held in memory at 36 bytes each
    #[arg(long, value_name = "N", default_value_t = sluicegate_sim::traffic::CALLS_MAX_DEFAULT,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=sluicegate_sim::traffic::CALLS_MAX as u64),
          help_heading = "Traffic")]
    pub(crate) max_calls: usize,

    /// Draw a picture: FILE.svg or FILE.png. Repeat it for both
    #[arg(long = "plot", value_name = "FILE", help_heading = "Output")]
    pub(crate) plots: Vec<PathBuf>,

    /// What pictures and drawings show, such as window,room [default: traffic,window,room]
    #[arg(long, value_name = "VIEW", value_delimiter = ',', help_heading = "Output")]
    pub(crate) show: Vec<View>,

    /// The key whose window and room are shown, the one that offers most if not said
    #[arg(long, value_name = "KEY", help_heading = "Output")]
    pub(crate) focus: Option<String>,

    /// The title of pictures
    #[arg(long, value_name = "TEXT", requires = "plots", help_heading = "Output")]
    pub(crate) title: Option<String>,

    /// Colours. auto follows the reader's screen in SVG, and is light in PNG
    #[arg(long, value_enum, default_value_t = ThemeName::Auto, help_heading = "Output")]
    pub(crate) theme: ThemeName,

    /// Draw in the terminal too
    #[arg(long, help_heading = "Output")]
    pub(crate) terminal: bool,

    /// Write the table as CSV; - is standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) csv: Option<PathBuf>,

    /// Write what happened over time as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) series: Option<PathBuf>,

    /// Write all keys that were denied anything as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) keys: Option<PathBuf>,

    /// Write everything as JSON; - is standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,

    /// How many of the keys most affected are listed
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Output")]
    pub(crate) top: usize,

    /// Words that belong nowhere: the rest of a limit without quotes, or the name of a file
    #[arg(hide = true, value_name = "WORD")]
    pub(crate) stray: Vec<String>,
}

/// Tries breakers, bulkheads and adaptive limits side by side on callers of a dependency that has bad times, in virtual time.
#[derive(ClapArgs, Debug)]
pub(crate) struct OverloadArgs {
    /// A protection to try, such as 'breaker 50%/10s + aimd 20 min=5', or none. Repeat it to compare
    #[arg(long = "protect", value_name = "PROTECTION", required = true)]
    pub(crate) protections: Vec<String>,

    /// What to call a protection in tables and pictures: none, or one for each --protect in their order
    #[arg(long = "label", value_name = "TEXT")]
    pub(crate) labels: Vec<String>,

    /// What is called, such as 'workers=10 takes=50ms slow=20s..40s:x10'
    #[arg(long, value_name = "DEPENDENCY", required = true)]
    pub(crate) dependency: String,

    /// How callers call, such as 'timeout=1s retries=2'
    #[arg(long, value_name = "CALLERS", default_value = "timeout=1s", help_heading = "Traffic")]
    pub(crate) callers: String,

    /// When they call, such as 'poisson 150/s for=90s'. Repeat it for several at the same time
    #[arg(long = "workload", value_name = "WORKLOAD", required = true, help_heading = "Traffic")]
    pub(crate) workloads: Vec<String>,

    /// Where random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Traffic")]
    pub(crate) seed: u64,

    /// The most calls, which are held in memory
    #[arg(long, value_name = "N", default_value_t = crate::overload::CALLS_MAX_DEFAULT,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=crate::overload::CALLS_MAX as u64),
          help_heading = "Traffic")]
    pub(crate) max_calls: usize,

    /// Draw a picture: FILE.svg or FILE.png. Repeat it for both
    #[arg(long = "plot", value_name = "FILE", help_heading = "Output")]
    pub(crate) plots: Vec<PathBuf>,

    /// What pictures show, such as calls,limit [default: calls,waits,limit]
    #[arg(long, value_name = "VIEW", value_delimiter = ',', help_heading = "Output")]
    pub(crate) show: Vec<OverloadView>,

    /// The title of pictures
    #[arg(long, value_name = "TEXT", requires = "plots", help_heading = "Output")]
    pub(crate) title: Option<String>,

    /// Colours. auto follows the reader's screen in SVG, and is light in PNG
    #[arg(long, value_enum, default_value_t = ThemeName::Auto, help_heading = "Output")]
    pub(crate) theme: ThemeName,

    /// Write everything as JSON; - is standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,

    /// Words that belong nowhere: the rest of a line without quotes, or the name of a file
    #[arg(hide = true, value_name = "WORD")]
    pub(crate) stray: Vec<String>,
}

/// What a picture of an overload can show.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OverloadView {
    /// What became of the calls, by when they were made
    Calls,
    /// How long callers waited until they knew
    Waits,
    /// How many calls the dependency had, and the limit
    Limit,
}

/// What a picture can show.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// What is offered and what is allowed, over time
    Traffic,
    /// What one key was allowed in the period before, against the limit
    Window,
    /// What one key has left
    Room,
}

/// The colours of a picture.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThemeName {
    /// As the reader's screen is
    Auto,
    /// Dark on light
    Light,
    /// Light on dark
    Dark,
}
