//! Hostile clients, a hundred of a kind at once, beside a good one whose waits are
//! measured.

use super::{Tried, megabytes};
use crate::histogram::Histogram;
use crate::measure::{head, median, row};
use crate::server::Outcome;
use crate::server::client::{Client, command};
use crate::server::options::Options;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Long enough for every time limit of the server; who is still connected then is reported so.
const WATCHED: Duration = Duration::from_secs(20);
/// How long the good client is measured by himself.
const ALONE: Duration = Duration::from_secs(2);
/// A client sends no more than this, so that a server without limits survives the trial.
const SENT_MAX: usize = 4 << 20;
/// One who does not read sends more: the system's own buffers take some megabytes of replies before
/// a server has to hold any.
const SENT_UNREAD_MAX: usize = 16 << 20;
const TICK: Duration = Duration::from_millis(5);

struct Kind {
    name: &'static str,
    /// Said at once.
    first: Vec<u8>,
    /// Then this, again and again.
    then: Vec<u8>,
    pace: Pace,
    reads: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Pace {
    /// As fast as it is taken.
    AtOnce,
    ByteASecond,
}

fn kinds() -> Vec<Kind> {
    let throttle = command(&["CL.THROTTLE", "someone", "15", "30", "60"]);
    // The reply is as long as the command, so that the buffers in between are soon full.
    let echo = command(&["ECHO", &"x".repeat(4096)]);
    let kind = |name, first: &[u8], then: &[u8]| Kind {
        name,
        first: first.to_vec(),
        then: then.to_vec(),
        pace: Pace::AtOnce,
        reads: true,
    };
    vec![
        Kind { reads: false, ..kind("sends and never reads", b"", &echo.repeat(8)) },
        Kind { pace: Pace::ByteASecond, ..kind("one byte per second", b"", &throttle) },
        kind("announces $536870912 and waits", b"*2\r\n$4\r\nECHO\r\n$536870912\r\n", b""),
        kind("announces $536870912 and sends", b"*2\r\n$4\r\nECHO\r\n$536870912\r\n", &[b'x'; 16 * 1024]),
        kind("announces *1000000 and waits", b"*1000000\r\n", b""),
        kind("announces *1000000 and sends", b"*1000000\r\n", &b"$1\r\na\r\n".repeat(1024)),
        kind("nested arrays", &b"*1\r\n".repeat(20_000), b""),
        kind("an endless line", b"", &[b'a'; 16 * 1024]),
        kind("speaks HTTP", b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
    ]
}

pub fn run(options: &Options) -> Outcome<()> {
    println!(
        "{} hostile clients of one kind at once, observed for {} s, beside a good client that calls every millisecond; memory in MB:\n",
        options.clients,
        WATCHED.as_secs(),
    );
    head([
        "",
        "client",
        "memory growth",
        "bytes accepted per client",
        "closed",
        "after s, median",
        "slowest",
        "reply",
        "good client's p99 alone, ms",
        "during the attack",
    ]);
    for mut tried in super::all(options)? {
        for kind in kinds() {
            row(trial(&mut tried, &kind, options.clients)?);
        }
    }
    Ok(())
}

/// One hostile client.
struct Hostile {
    stream: TcpStream,
    taken: usize,
    replied: Vec<u8>,
    closed: Option<Duration>,
}

fn trial(tried: &mut Tried, kind: &Kind, clients: usize) -> Outcome<[String; 10]> {
    let name = tried.name().to_owned();
    let process = tried.process();
    let address = process.address;
    let alone = AtomicBool::new(true);
    let stop = AtomicBool::new(false);
    let (mut hostile, before, most, good) = std::thread::scope(|scope| {
        let good = scope.spawn(|| good_client(address, &alone, &stop));
        std::thread::sleep(ALONE);
        alone.store(false, Ordering::Relaxed);
        let before = process.memory();
        let mut most = before;
        let attacked = attack(address, kind, clients, || most = most.max(process.memory()));
        stop.store(true, Ordering::Relaxed);
        let good = good.join().unwrap_or_else(|_| Err("the good client's thread failed".to_owned()));
        (attacked, before, most, good)
    });
    let hostile = hostile.as_mut().map_err(|problem| format!("{name}, {}: {problem}", kind.name))?;
    let good = good.map_or_else(
        |problem| [problem.clone(), problem],
        |mut good| good.each_mut().map(|times| format!("{:.2}", times.at_most([0.99])[0] as f64 / 1e6)),
    );
    let times: Vec<f64> =
        hostile.iter().filter_map(|one| one.closed).map(|time| time.as_secs_f64()).collect();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let taken = median(hostile.iter().map(|one| one.taken as f64).collect());
    let replied = hostile.first().map_or_else(String::new, |one| one.first_line());
    let [alone, meanwhile] = good;
    let ended = if process.runs() { "" } else { ", and the server ended" };
    Ok([
        name,
        kind.name.to_owned(),
        megabytes(most - before),
        format!("{taken:.0}"),
        format!("{} of {clients}{ended}", times.len()),
        if times.is_empty() { String::new() } else { format!("{:.2}", median(times.clone())) },
        if times.is_empty() { String::new() } else { format!("{slowest:.2}") },
        replied,
        alone,
        meanwhile,
    ])
}

/// Connects them all and lets each do its worst until all are closed or the watch ends.
fn attack(address: SocketAddr, kind: &Kind, clients: usize, mut look: impl FnMut()) -> Outcome<Vec<Hostile>> {
    let connect = || {
        let stream = TcpStream::connect(address)?;
        stream.set_nonblocking(true)?;
        Ok(Hostile { stream, taken: 0, replied: Vec::new(), closed: None })
    };
    let mut all: Vec<Hostile> =
        (0..clients).map(|_| connect()).collect::<std::io::Result<_>>().map_err(|error| error.to_string())?;
    let began = Instant::now();
    while began.elapsed() < WATCHED && all.iter().any(|one| one.closed.is_none()) {
        for one in all.iter_mut().filter(|one| one.closed.is_none()) {
            if !one.goes_on(kind, began.elapsed()) {
                one.closed = Some(began.elapsed());
            }
        }
        look();
        std::thread::sleep(TICK);
    }
    Ok(all)
}

impl Hostile {
    /// Sends what it may now, and reads if its kind does. Returns `true` while it is connected.
    fn goes_on(&mut self, kind: &Kind, passed: Duration) -> bool {
        let most = match kind.pace {
            Pace::AtOnce if !kind.reads => SENT_UNREAD_MAX,
            Pace::AtOnce => SENT_MAX,
            Pace::ByteASecond => passed.as_secs() as usize + 1,
        };
        // A few pieces a turn, so that one client does not keep the others waiting.
        for _ in 0..8 {
            let rest = match self.taken.checked_sub(kind.first.len()) {
                None => &kind.first[self.taken..],
                Some(_) if kind.then.is_empty() => break,
                Some(sent) => &kind.then[sent % kind.then.len()..],
            };
            let room = most.saturating_sub(self.taken).min(rest.len());
            if room == 0 {
                break;
            }
            match self.stream.write(&rest[..room]) {
                Ok(count) => self.taken += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        if !kind.reads {
            // Without reading, only an error of the socket tells that it was closed.
            return !matches!(self.stream.take_error(), Ok(Some(_)) | Err(_));
        }
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                if self.replied.len() < buffer.len() {
                    self.replied.extend_from_slice(&buffer[..count]);
                }
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    fn first_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.replied);
        let line = text.lines().next().unwrap_or_default().replace('|', "/");
        line.chars().take(60).collect()
    }
}

/// Asks each millisecond, and notes how long each answer took: alone, and then.
fn good_client(address: SocketAddr, alone: &AtomicBool, stop: &AtomicBool) -> Outcome<[Histogram; 2]> {
    let failed = |error: std::io::Error| format!("failed: {error}");
    let mut client = Client::connect(address).map_err(failed)?;
    let mut times = [Histogram::default(), Histogram::default()];
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        client.call(&["CL.THROTTLE", "a-good-client", "1000000", "1000000", "1"]).map_err(failed)?;
        let which = usize::from(!alone.load(Ordering::Relaxed));
        times[which].note(began.elapsed().as_nanos() as u64);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(times)
}
