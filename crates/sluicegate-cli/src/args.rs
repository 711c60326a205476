//! The arguments, with help that teaches by example.

mod listen;

use clap::{ArgGroup, Args as ClapArgs, Parser, Subcommand, ValueEnum};
use listen::ListenArgs;
use sluicegate_server::protocol::Protocol;
use std::path::PathBuf;

const LIMITS: &str = "\
A limit is one line: the algorithm, its measure, its options.
  token-bucket 30/60s burst=15         refills evenly at 30 per 60 s, holds at most 15
  token-bucket 50/10s initial=0        starts empty: one token every 200 ms
  leaky-bucket 1/2s capacity=3         the funnel: fills by cost, leaks one every 2 s
  fixed-window 5/60s                   windows aligned to the Unix epoch (start=first, start=TIME)
  fixed-window 1/day tz=Asia/Shanghai  calendar days there; also week, month, year
  sliding-log 5/60s                    never more than 5 in any 60 s, exactly (count=all)
  sliding-window 1000/1min             close to that, in constant memory
  min-interval 200ms                   at least 200 ms between two allowed calls
  pacer 10/s queue=20                  allowed calls leave 100 ms apart, up to 20 wait
  concurrency 10 ttl=30s               at most 10 at once; a lease that is not renewed expires after 30 s
  smooth 10/s warmup=4s                Guava's RateLimiter: the next caller pays (warmup, cold, burst)
Periods are [N]UNIT with UNIT us ms s min h d, or second minute hour day. Counts may be 1_000, 1k, 1M.
'A + B' is a list: every limit must allow the call.";

const REPLAY_HELP: &str = "\
Example: may a user reply, and when is the next reply allowed?
  $ printf 'at_us,key,cost\\n0,user:42,1\\n0,user:42,1\\n1000000,user:42,1\\n' |
      sluice replay --limit 'min-interval 2s'
  allowed,limit,remaining,retry_after_us,reset_after_us,delay_us
  1,1,0,,2000000,0
  0,1,0,2000000,2000000,0
  0,1,0,1000000,1000000,0

Input, with this header and in this order:
  at_us           time in microseconds since 1970; it may step back
  key             who or what is limited; each key has its own state
  cost            how much of the limit the call uses, usually 1
Output, one row per call:
  allowed         1 or 0
  limit           the highest cost admitted at once for an idle key
  remaining       the cost that would still be allowed after this call
  retry_after_us  if denied, the shortest wait until the same call is allowed, or `never`
  reset_after_us  the wait until the key is fully recovered
  delay_us        how long an allowed call must wait before it acts (pacer)

Several limits are all or nothing: --limit 'token-bucket 10/s burst=50' --limit 'fixed-window 1000/day'
A malformed row ends the replay with exit code 2 and the line number, after the rows before it.
Syntax of limits: sluice --help. What a limit promises: sluice explain LIMIT.";

const EXPLAIN_HELP: &str = "\
Examples:
  sluice explain 'token-bucket 30/60s burst=15'
  sluice explain 'fixed-window 1/day tz=Asia/Shanghai'
  sluice explain 'token-bucket 10/s burst=50 + fixed-window 1000/day'
Syntax of limits: sluice --help.";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  Two limits against the window-edge attack, drawn in the terminal
    sluice simulate --limit 'fixed-window 12/60s' --limit 'sliding-log 12/60s' \\
        --workload 'edge 12/60s' --terminal
  1000 callers, some far busier than others, and a picture for a slide
    sluice simulate --limit 'token-bucket 5/s burst=20' --workload 'poisson 200/s keys=1000 zipf=1.1 for=5min' \\
        --plot crowd.svg --plot crowd.png
  Which clients would each limit have denied last week?
    sluice simulate --log access.log --key ip --limit 'sliding-log 60/min' --limit 'token-bucket 60/min burst=30'
  Rotated logs
    zcat access.log.*.gz | cat - access.log | sluice simulate --log - --limit 'sliding-log 60/min'

Workloads: a name, a rate, options. Default: random calls at twice the first limit's rate.
";

const SIMULATE_NOTES: &str = "\
Several --workload run at the same time; those with the same key= are the same callers.
Limits: each --limit is tried on its own; 'A + B' is a list that must allow every call. Syntax of limits: sluice --help.
The table: longest run = most consecutive denials of one key; longest wait = the longest retry_after;
  worst = the most that one key was allowed in any stretch as long as the limit's period.";

const OVERLOAD_EXAMPLES: &str = "\
Examples:
  A dependency that is ten times slower for 20 s, with and without protection
    sluice overload --protect none --protect 'breaker 50%/10s' --protect 'gradient 20 min=5' \\
        --workload 'poisson 150/s for=90s' --dependency 'workers=10 takes=50ms slow=20s..40s:x10'
  The same with callers that time out and retry, and a picture
    sluice overload --protect none --protect 'aimd 20 min=5 timeout=500ms' --callers 'timeout=1s retries=2' \\
        --workload 'poisson 150/s for=90s' --dependency 'workers=10 takes=50ms slow=20s..40s:x10' --plot storm.svg

Protections: none, or one or two of these with + between them
  bulkhead 20                          at most 20 at once
  aimd 20 min=5 timeout=500ms          adapts: fewer after a failure, one more after a success
  gradient 20 min=5                    adapts: fewer when calls take longer than usual
  breaker 50%/10s                      opens for 5 s when half of the last 10 s failed; then a probe
  breaker 50%/10s + aimd 20 min=5      both: the breaker decides first
The dependency: workers=N takes=DURATION, and optionally
  random=50%                           the share of that time that is random, exponentially distributed
  backlog=100                          rejects calls beyond 100 that wait for a worker; unlimited by default
  slow=20s..40s:x10,60s..70s:x3        slow periods, and how many times longer calls take
  fail=50s..60s:100%                   failure periods, and the share of calls that fail
The callers: timeout=1s retries=0 backoff=0s. When a caller gives up, the dependency keeps working on its call.

Workloads: a name, a rate, options.
";

const OVERLOAD_NOTES: &str = "\
The table: good = succeeded before the caller gave up; failed = failed or timed out; tries = calls and retries made;
  wasted = the share of the dependency's work for callers that had given up; waits end with any answer.
How to read it: docs/overload.md.";

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
  sluice serve --store redis://127.0.0.1           keys in Redis, shared by several servers
  sluice serve --config sluice.toml                rules and settings from a file
  sluice serve --resp 127.0.0.1:0 --http off       any free port; the log on standard error says which
Call it:
  $ redis-cli -p 6380 CL.THROTTLE user:42:reply 4 5 60
  $ sluice check 'sliding-log 5/60s' user:42

A file with every setting is crates/sluicegate-server/sluice.example.toml; sluice validate checks one.
Precedence, lowest first: defaults, the file, environment variables, flags. A setting NAME of the file has a variable,
usually SLUICE_NAME:
  SLUICE_CONFIG SLUICE_RESP SLUICE_HTTP SLUICE_PASSWORD SLUICE_PASSWORD_FILE SLUICE_TLS_CERT SLUICE_TLS_KEY SLUICE_HOSTS
  SLUICE_STORE SLUICE_MAX_KEYS SLUICE_THREADS SLUICE_LOG SLUICE_LOG_FORMAT ... ; docs/configuration.md lists all
An address that other machines can reach needs a password and TLS, or --insecure.
Signals: TERM and INT finish the calls that have arrived and exit 0 (after 30 s, or on a second signal, immediately);
  HUP reloads rules, certificates and the log level from the file; if the file is invalid, the old settings stay.
Exit code 2 if the server cannot start.";

const CHECK_HELP: &str = "\
Examples:
  $ sluice check reply user:42
  allowed: 4 of 5 remaining, resets in 1 min
  $ sluice check 'sliding-log 5/60s' user:42 --cost 5
  denied by sliding-log 5/min: retry in 42 s
  $ sluice check api partner-7 --peek --json       decides without charging
  $ sluice check reply user:42 --server limits.example.com:6380 --ca ca.pem
Exit code 0 if allowed, 1 if denied, 2 if there is no answer.
The password is read from SLUICE_PASSWORD, SLUICE_PASSWORD_FILE or --password-file. It is sent to another machine only over TLS (--ca).";

const VALIDATE_HELP: &str = "\
Examples:
  sluice validate sluice.toml                      on the server: also reads the password and TLS files it names
  sluice validate sluice.toml --no-files           in CI, where these files are not
  sluice validate sluice.toml --insecure           with the flags and variables that sluice serve would get
Exit code 0 if a server would start, 2 with the errors that it would report. Nothing is bound and no store is contacted.";

fn simulate_help() -> String {
    let mut help = SIMULATE_EXAMPLES.to_owned();
    for line in sluicegate_sim::traffic::workload::HELP.lines() {
        help += &format!("  {line}\n");
    }
    help + SIMULATE_NOTES
}

/// Exact rate limiting: try a limit before you deploy it, serve it, call it.
#[derive(Parser, Debug)]
#[command(name = "sluice", version, after_help = LIMITS, max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run limits over a trace in virtual time: sluice replay --limit LIMIT < trace.csv >
    /// decisions.csv
    #[command(after_help = REPLAY_HELP, max_term_width = 110)]
    Replay(ReplayArgs),
    /// Explain what a limit promises, its worst case and its memory, with a timeline
    #[command(after_help = EXPLAIN_HELP, max_term_width = 110)]
    Explain(ExplainArgs),
    /// Show what limits would do to traffic: a table, plots, and which keys would have been denied
    #[command(after_help = simulate_help(), max_term_width = 110)]
    Simulate(Box<SimulateArgs>),
    /// Show how breakers and bulkheads behave when a dependency slows down or fails
    #[command(after_help = overload_help(), max_term_width = 110)]
    Overload(Box<OverloadArgs>),
    /// Run the server: RESP for Redis clients, and HTTP
    #[command(after_help = SERVE_HELP, max_term_width = 110)]
    Serve(Box<ServeArgs>),
    /// Call a running server: exit code 0 allowed, 1 denied, 2 error
    #[command(after_help = CHECK_HELP, max_term_width = 110)]
    Check(CheckArgs),
    /// Check whether a server would start with a configuration file, and explain its rules
    #[command(after_help = VALIDATE_HELP, max_term_width = 110)]
    Validate(Box<ValidateArgs>),
}

/// Serves limits to Redis clients (RESP) and over HTTP until it is stopped.
#[derive(ClapArgs, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) settings: SettingArgs,
}

/// The flags that override the configuration file.
#[derive(ClapArgs, Debug)]
pub(crate) struct SettingArgs {
    #[command(flatten)]
    pub(crate) listen: ListenArgs,

    /// Where the state of keys lives: memory, or the address of a shared Redis or Valkey [default:
    /// memory]
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// Maximum number of keys in memory [default: 1000000]
    #[arg(long, value_name = "N")]
    pub(crate) max_keys: Option<String>,

    /// Number of worker threads, or auto for one per core
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,

    /// A file with the password that clients must send
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<String>,

    /// Certificate chain in PEM, the server's own certificate first
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<String>,

    /// The certificate's private key in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<String>,

    /// Allow other machines to connect without a password or TLS
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Log level: off error warn info debug trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,

    /// Log format: text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

/// Calls a running server over RESP: decides whether a key may act now, and charges it if so.
#[derive(ClapArgs, Debug)]
pub(crate) struct CheckArgs {
    /// The name of a rule, or a limit such as 'sliding-log 5/60s'
    #[arg(value_name = "RULE|LIMIT")]
    pub(crate) rule: String,

    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// The cost of the call
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cost: u64,

    /// Decide without charging
    #[arg(long)]
    pub(crate) peek: bool,

    /// Where the server listens for RESP
    #[arg(long, value_name = "ADDR", default_value = Protocol::Resp.description().default_address)]
    pub(crate) server: String,

    /// Use TLS, and trust this CA certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// A file with the password
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Print the decision as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Stray words: the rest of an unquoted limit
    #[arg(hide = true, value_name = "WORD")]
    pub(crate) stray: Vec<String>,
}

/// Checks whether a server would start with a configuration file, and explains each of its rules.
#[derive(ClapArgs, Debug)]
pub(crate) struct ValidateArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Do not read the password and TLS files that it names, as they may be on another machine
    #[arg(long)]
    pub(crate) no_files: bool,

    #[command(flatten)]
    pub(crate) settings: SettingArgs,
}

/// Reads calls from standard input as CSV with the header `at_us,key,cost` and writes one decision
/// per call to standard output. Time is virtual: it comes from the trace, and may step back.
#[derive(ClapArgs, Debug)]
pub(crate) struct ReplayArgs {
    /// The limit, such as 'sliding-log 5/60s'. Repeat it for a list of limits that must all allow
    #[arg(long = "limit", value_name = "LIMIT", required = true)]
    pub(crate) limits: Vec<String>,

    /// Where keys live during the replay: memory, or redis://... to decide with the shared store's
    /// scripts, under a key prefix of their own that is removed afterwards
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// Stray words: the rest of an unquoted limit, or the name of a trace
    #[arg(hide = true, value_name = "WORD")]
    pub(crate) stray: Vec<String>,
}

/// Explains what a limit promises, its worst case in any period and its memory per key, and shows a
/// short timeline of real decisions.
#[derive(ClapArgs, Debug)]
pub(crate) struct ExplainArgs {
    /// The limit, such as 'token-bucket 30/60s burst=15', or a list such as 'A + B'
    #[arg(value_name = "LIMIT", required = true, num_args = 1..)]
    pub(crate) limit: Vec<String>,
}

/// Compares limits on synthetic or recorded traffic, in virtual time.
#[derive(ClapArgs, Debug)]
#[command(group = ArgGroup::new("source").multiple(false))]
pub(crate) struct SimulateArgs {
    /// A limit to try, such as 'sliding-log 5/60s'. Repeat it to compare
    #[arg(long = "limit", value_name = "LIMIT", required = true)]
    pub(crate) limits: Vec<String>,

    /// Names for the limits in tables and pictures: none, or one per --limit in the same order
    #[arg(long = "label", value_name = "TEXT")]
    pub(crate) labels: Vec<String>,

    /// Synthetic traffic, such as 'poisson 20/s keys=100'. Repeat it for several at the same time
    #[arg(long = "workload", value_name = "WORKLOAD", group = "source", help_heading = "Traffic")]
    pub(crate) workloads: Vec<String>,

    /// Recorded calls as CSV, as for replay; - is standard input
    #[arg(long, value_name = "FILE", group = "source", help_heading = "Traffic")]
    pub(crate) trace: Option<PathBuf>,

    /// A web server's access log: common, combined or JSON lines; - is standard input
    #[arg(long, value_name = "FILE", group = "source", help_heading = "Traffic")]
    pub(crate) log: Option<PathBuf>,

    /// The format of the log: common, combined or json [default: detected]
    #[arg(long, value_name = "FORMAT", requires = "log", conflicts_with_all = ["workloads", "trace"], help_heading = "Traffic")]
    pub(crate) format: Option<String>,

    /// The log's field to limit by: ip, user, path, agent, ...; in JSON any field, also a.b;
    /// several as ip,path [default: ip]
    #[arg(long, value_name = "FIELD", requires = "log", conflicts_with_all = ["workloads", "trace"], help_heading = "Traffic")]
    pub(crate) key: Option<String>,

    /// The field with the time, in a log of JSON lines
    #[arg(long, value_name = "FIELD", requires = "log", conflicts_with_all = ["workloads", "trace"], help_heading = "Traffic")]
    pub(crate) time: Option<String>,

    /// The field with the cost of a call, such as bytes [default: every call costs 1]
    #[arg(long, value_name = "FIELD", requires = "log", conflicts_with_all = ["workloads", "trace"], help_heading = "Traffic")]
    pub(crate) cost: Option<String>,

    /// The seed of the workloads' random numbers
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Traffic")]
    pub(crate) seed: u64,

    /// Stop at the first malformed line instead of skipping it
    #[arg(long, help_heading = "Traffic")]
    pub(crate) strict: bool,

    /// Maximum number of calls, held in memory at 52 bytes per call
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

    /// The key whose window and room are shown [default: the busiest]
    #[arg(long, value_name = "KEY", help_heading = "Output")]
    pub(crate) focus: Option<String>,

    /// The title of pictures
    #[arg(long, value_name = "TEXT", requires = "plots", help_heading = "Output")]
    pub(crate) title: Option<String>,

    /// Colours: auto follows the reader's screen in SVG and is light in PNG
    #[arg(long, value_enum, default_value_t = ThemeName::Auto, help_heading = "Output")]
    pub(crate) theme: ThemeName,

    /// Also draw in the terminal
    #[arg(long, help_heading = "Output")]
    pub(crate) terminal: bool,

    /// Write the table as CSV; - is standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) csv: Option<PathBuf>,

    /// Write what happened over time as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) series: Option<PathBuf>,

    /// Write all keys with a denial as CSV
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) keys: Option<PathBuf>,

    /// Write everything as JSON; - is standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,

    /// How many of the most affected keys to list
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Output")]
    pub(crate) top: usize,

    /// Stray words: the rest of an unquoted limit, or the name of a file
    #[arg(hide = true, value_name = "WORD")]
    pub(crate) stray: Vec<String>,
}

/// Compares breakers, bulkheads and adaptive limits around a dependency that slows down or fails,
/// in virtual time.
#[derive(ClapArgs, Debug)]
pub(crate) struct OverloadArgs {
    /// A protection to try, such as 'breaker 50%/10s + aimd 20 min=5', or none. Repeat it to
    /// compare
    #[arg(long = "protect", value_name = "PROTECTION", required = true)]
    pub(crate) protections: Vec<String>,

    /// Names for the protections in tables and pictures: none, or one per --protect in the same
    /// order
    #[arg(long = "label", value_name = "TEXT")]
    pub(crate) labels: Vec<String>,

    /// The dependency, such as 'workers=10 takes=50ms slow=20s..40s:x10'
    #[arg(long, value_name = "DEPENDENCY", required = true)]
    pub(crate) dependency: String,

    /// How callers behave, such as 'timeout=1s retries=2'
    #[arg(long, value_name = "CALLERS", default_value = "timeout=1s", help_heading = "Traffic")]
    pub(crate) callers: String,

    /// When callers call, such as 'poisson 150/s for=90s'. Repeat it for several at the same time
    #[arg(long = "workload", value_name = "WORKLOAD", required = true, help_heading = "Traffic")]
    pub(crate) workloads: Vec<String>,

    /// The seed of random numbers
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Traffic")]
    pub(crate) seed: u64,

    /// Maximum number of calls, held in memory
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

    /// Colours: auto follows the reader's screen in SVG and is light in PNG
    #[arg(long, value_enum, default_value_t = ThemeName::Auto, help_heading = "Output")]
    pub(crate) theme: ThemeName,

    /// Write everything as JSON; - is standard output, instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) json: Option<PathBuf>,

    /// Stray words: the rest of an unquoted line, or the name of a file
    #[arg(hide = true, value_name = "WORD")]
    pub(crate) stray: Vec<String>,
}

/// What a picture of an overload can show.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OverloadView {
    /// The results of calls, by the time they were made
    Calls,
    /// How long callers waited for an answer
    Waits,
    /// Calls in flight, and the limit
    Limit,
}

/// What a picture can show.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// Offered and allowed calls over time
    Traffic,
    /// What one key was allowed in the preceding period, against the limit
    Window,
    /// What remains for one key
    Room,
}

/// The colours of a picture.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThemeName {
    /// Follows the reader's screen
    Auto,
    /// Dark on light
    Light,
    /// Light on dark
    Dark,
}
