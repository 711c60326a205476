//! Attacks of every kind at once on a real server, beside clients that behave.
//!
//! Attackers make up keys, inline limits, long logs, receipts and leases, and open connections that
//! stay silent, and the wall clock is set back and forth. Meanwhile no well-behaved call may fail,
//! no offender may go free, and the server's memory must stay flat. Latencies are printed, never
//! asserted; `cargo xtask attack SECONDS` runs this in a release build, for as long as you like.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout, reason = "latencies are printed, not asserted")]

use crate::serving::{Folder, Serving, TEST_TIMEOUT as SERVER_ANSWERS_WITHIN, free_port};
use crate::wall_clock::WallClock;
use redis_testkit::{Client, Reply};
use std::fmt;
use std::io::Read as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Small pools, so that every one of them is full within seconds.
const CONFIGURATION: &str = r#"
[server]
connections_max = 200

[memory]
max_keys = 20000
max_receipts = 2000
max_leases = 2000

[[rule]]
name = "login"
limit = "sliding-log 5/10d"

[[rule]]
name = "daily"
limit = "fixed-window 1/day"

[[rule]]
name = "api"
limit = "token-bucket 1000000/s"

[[rule]]
name = "budget"
limit = "token-bucket 1000000/h"

[[rule]]
name = "exports"
limit = "concurrency 2 ttl=1h"

[[rule]]
name = "imports"
limit = "concurrency 2 ttl=1h"
"#;

/// Calls per attacker that fill every pool, counted rather than timed, so that a slow machine
/// fills them too.
const CALLS_TO_FILL: u64 = 60_000;
/// Calls per pipeline of an attacker.
const PIPELINE: usize = 100;
/// Enough for percentiles of a long run, in bounded memory.
const LATENCIES_MAX: usize = 5_000_000;
const OFFENDERS: usize = 200;
const GOOD_CLIENTS: usize = 2;
const SILENT_CONNECTIONS: usize = 100;
/// The time between two steps of the wall clock.
const STEP_INTERVAL: Duration = Duration::from_millis(100);
/// The memory of a server under attack, in percent of what it was with full pools. (The first pass
/// that evicts made-up limits may allocate its tables later.)
const MEMORY_PERCENT_MAX: u64 = 120;

/// What an attacker sends: the words of its `n`th call.
type Attack = fn(u64) -> Vec<String>;

const ATTACKS: [(&str, Attack); 8] = [
    ("keys of a rule that one call uses up", |n| words(&["RL.CHECK", "daily", &format!("made-up:{n}")])),
    ("keys of an inline limit", |n| {
        words(&["RL.CHECK", "fixed-window 1/year", &format!("made-up:{n}"), "COST", "1"])
    }),
    ("keys of CL.THROTTLE", |n| words(&["CL.THROTTLE", &format!("made-up:{n}"), "1", "1", "86400"])),
    ("inline limits", |n| words(&["RL.CHECK", &format!("fixed-window {}/year", n + 2), "key"])),
    ("long logs", |n| words(&["RL.CHECK", "sliding-log 1000/3650d", &format!("log:{}", n % 50)])),
    ("receipts", |n| {
        words(&["RL.RESERVE", "fixed-window 1000000000/year", &format!("reserved:{}", n % 1_000)])
    }),
    ("receipts that expire", |n| {
        let (key, ttl) = (format!("expiring:{}", n % 1_000), (n % 50 + 1).to_string());
        words(&["RL.RESERVE", "fixed-window 1000000000/year", &key, "TTL", &ttl, "THEN", "cancel"])
    }),
    ("leases", |n| words(&["RL.ACQUIRE", "imports", &format!("made-up:{n}")])),
];

/// As many clients that behave, for comparison.
const WELL_BEHAVED: [(&str, Attack); ATTACKS.len()] =
    [("checks", |n| words(&["RL.CHECK", "api", &format!("neighbor:{}", n % 1_000)])); ATTACKS.len()];

#[test]
fn attackers_harm_neither_good_clients_nor_memory() {
    let seconds = std::env::var("SLUICE_ATTACK_SECONDS").map_or(3, |text| text.parse().unwrap());
    let lasts = Duration::from_secs(seconds);
    let folder = Folder::new("mixed-attack");
    let file = folder.write("sluice.toml", CONFIGURATION);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("serve").args(free_port()).args(["--config", &file]);
    // Without a C compiler the clock stays as it is.
    let clock = WallClock::new(Folder::new("mixed-attack-clock"), 0);
    if let Some(clock) = &clock {
        clock.give_to(&mut command);
    }
    let mut server = Serving::spawn(&mut command);
    let address = server.resp();
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();

    let offender = |index: usize| words(&["RL.CHECK", "login", &format!("offender:{index}"), "COST", "5"]);
    let offenders: Vec<_> = (0..OFFENDERS).map(offender).collect();
    let mut client = Client::connect(port).unwrap();
    assert_eq!(allowed(&client.ask_all(&offenders).unwrap()), OFFENDERS);

    let before = beside(&WELL_BEHAVED, port, &server, lasts / 4);
    let silent: Vec<_> = (0..SILENT_CONNECTIONS).map(|_| TcpStream::connect(("127.0.0.1", port))).collect();
    let attacked = while_the_clock_steps(clock.as_ref(), || beside(&ATTACKS, port, &server, lasts));
    println!("good clients beside well-behaved ones: {}", before.latencies);
    println!("good clients under attack:             {}", attacked.latencies);
    println!("memory with full pools {} kB, later at most {} kB", attacked.filled_kb, attacked.most_kb);

    // The server has closed the first connection if it was idle for long.
    let mut client = Client::connect(port).unwrap();
    assert_eq!(allowed(&client.ask_all(&offenders).unwrap()), 0, "offenders went free");
    let bound = attacked.filled_kb * MEMORY_PERCENT_MAX / 100;
    assert!(attacked.most_kb <= bound, "memory grew from {} to {} kB", attacked.filled_kb, attacked.most_kb);
    silent.into_iter().flatten().for_each(until_closed);
    server.signal("-TERM");
    assert!(server.end().success());
}

/// What was seen of the server and its good clients.
struct Seen {
    filled_kb: u64,
    most_kb: u64,
    latencies: Latencies,
}

/// Runs good clients beside others: first until the others have filled every pool, then for this
/// long.
fn beside(others: &[(&str, Attack)], port: u16, server: &Serving, lasts: Duration) -> Seen {
    let stop = AtomicBool::new(false);
    let filling = AtomicU64::new(others.len() as u64);
    thread::scope(|scope| {
        for (name, attack) in others {
            scope.spawn(|| attack_until(&stop, &filling, port, name, *attack));
        }
        let good: Vec<_> = (0..GOOD_CLIENTS)
            .map(|client| {
                let (stop, filling) = (&stop, &filling);
                scope.spawn(move || behave_until(stop, filling, port, client))
            })
            .collect();
        // A client that fails sets `stop`, and its panic fails the test at the end of the scope.
        while filling.load(Relaxed) > 0 && !stop.load(Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        let filled_kb = server.memory_kb();
        let (mut most_kb, end) = (filled_kb, Instant::now() + lasts);
        while Instant::now() < end && !stop.load(Relaxed) {
            thread::sleep(Duration::from_millis(50));
            most_kb = most_kb.max(server.memory_kb());
        }
        stop.store(true, Relaxed);
        let latencies = good.into_iter().flat_map(|client| client.join().unwrap()).collect();
        Seen { filled_kb, most_kb, latencies: Latencies::new(latencies) }
    })
}

/// Runs something while a clock is set forward by an hour and back again, several times a second.
fn while_the_clock_steps<R>(clock: Option<&WallClock>, run: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        if let Some(clock) = clock {
            scope.spawn(|| {
                for ahead in [3_600, 0, -3_600, 0].into_iter().cycle() {
                    clock.set(ahead);
                    thread::sleep(STEP_INTERVAL);
                    if ahead == 0 && stop.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        run()
    })
}

/// Sets a flag when it is dropped, also by a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Sends one attack in pipelines. A denial and an error are fine; a broken connection is not.
fn attack_until(stop: &AtomicBool, filling: &AtomicU64, port: u16, name: &str, attack: Attack) {
    let _stop = SetOnDrop(stop);
    let mut client = Client::connect(port).unwrap();
    for first in (0..).step_by(PIPELINE) {
        if stop.load(Relaxed) {
            return;
        }
        let commands: Vec<_> = (first..first + PIPELINE as u64).map(attack).collect();
        client.ask_all(&commands).unwrap_or_else(|error| panic!("{name}: {error}"));
        if first == CALLS_TO_FILL {
            filling.fetch_sub(1, Relaxed);
        }
    }
}

/// Checks, reserves and leases as a good client does, and expects every call to be allowed.
/// Returns how long each check took once the pools were full.
fn behave_until(stop: &AtomicBool, filling: &AtomicU64, port: u16, client: usize) -> Vec<Duration> {
    let _stop = SetOnDrop(stop);
    let mut connection = Client::connect(port).unwrap();
    let mut ask = |command: &[&str]| {
        let reply = connection.ask(command).unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{command:?}: {reply:?}");
        reply
    };
    let mut latencies = Vec::new();
    for call in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        let key = format!("good:{client}:{}", call % 500);
        let began = Instant::now();
        let checked = ask(&["RL.CHECK", "api", &key]);
        let took = began.elapsed();
        assert!(is_allowed(&checked), "check: {checked:?}");
        if filling.load(Relaxed) == 0 && latencies.len() < LATENCIES_MAX {
            latencies.push(took);
        }
        let reserved = ask(&["RL.RESERVE", "budget", &key, "COST", "10", "TTL", "60000", "THEN", "cancel"]);
        assert!(is_allowed(&reserved), "reserve: {reserved:?}");
        assert_eq!(ask(&["RL.SETTLE", &reserved.parts()[7].to_string(), "5"]), Reply::Number(1));
        let leased = ask(&["RL.ACQUIRE", "exports", &key]);
        assert!(is_allowed(&leased), "acquire: {leased:?}");
        let lease = leased.parts()[7].to_string();
        assert_eq!(ask(&["RL.RELEASE", "exports", &key, &lease]), Reply::Number(1));
    }
    latencies
}

pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub(crate) fn is_allowed(reply: &Reply) -> bool {
    reply.parts().first() == Some(&Reply::Number(1))
}

pub(crate) fn allowed(replies: &[Reply]) -> usize {
    replies.iter().filter(|reply| is_allowed(reply)).count()
}

/// Waits until the server closes a connection.
fn until_closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(SERVER_ANSWERS_WITHIN)).unwrap();
    let closed = stream.read_to_end(&mut Vec::new());
    let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    assert!(!closed.as_ref().is_err_and(timed_out), "a silent connection stays open");
}

/// Sorted latencies.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn new(mut latencies: Vec<Duration>) -> Latencies {
        latencies.sort_unstable();
        Latencies(latencies)
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentile = |p: usize| self.0.get(self.0.len() * p / 100).copied().unwrap_or_default();
        write!(f, "p50 {:?}, p99 {:?} of {} checks", percentile(50), percentile(99), self.0.len())
    }
}
