//! Attacks on a shared store through one server, beside a client of another server.
//!
//! The attacker has 32 connections and makes the calls that cost the store most, on keys that hold
//! as much as a key can. Meanwhile no call of the other client may fail. Latencies are printed,
//! never asserted; `cargo xtask attack --store SECONDS` runs this in a release build with the
//! default deadline.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout, reason = "latencies are printed, not asserted")]

use crate::mixed_attack::{Latencies, allowed, is_allowed, words};
use crate::serving::{Folder, Serving};
use redis_testkit::{Client, Options, Reply, Server};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const RULES: &str = r#"
[[rule]]
name = "api"
limit = "token-bucket 1000000/s"

[[rule]]
name = "budget"
limit = "token-bucket 1000000/3650d"

[[rule]]
name = "log"
limit = "sliding-log 10000/3650d"

[[rule]]
name = "log-all"
limit = "sliding-log 10000/3650d count=all"
"#;

/// A deadline that a busy machine meets too, for the run that asserts that nothing fails.
const LONG_DEADLINE: &str = "[store]\ndeadline = \"20s\"\n";
const CONNECTIONS: usize = 32;
/// The most open receipts of a key.
const RECEIPTS: usize = 16_384;
/// Some less than a log holds, so that every connection can add an entry.
const LOG_LEN: usize = 10_000 - 2 * CONNECTIONS;
/// Commands per pipeline of the setup.
const PIPELINE: usize = 64;
/// The time between two calls of the client that must not notice.
const PAUSE: Duration = Duration::from_millis(1);

/// One connection of an attacker: makes calls until the flag is set, and counts them.
type Attack<'a> = Box<dyn FnMut(&mut Client) + Send + 'a>;
/// Makes the attack of each connection, by its number.
type Attacks<'a> = dyn Fn(usize) -> Attack<'a> + Sync + 'a;

#[test]
fn an_attack_on_the_store_through_one_server_fails_no_call_of_another() {
    let seconds = std::env::var("SLUICE_ATTACK_SECONDS").ok();
    let lasts = Duration::from_secs(seconds.as_ref().map_or(1, |text| text.parse().unwrap()));
    let redis = Server::start(&Options::redis());
    let folder = Folder::new("store-attack");
    let serve = |name: &str, settings: &str| {
        let file = folder.write(name, &format!("{settings}{RULES}"));
        let mut server = Serving::start(&["--config", &file, "--store", &redis.url()]);
        let port: u16 = server.resp().rsplit(':').next().unwrap().parse().unwrap();
        (server, port)
    };
    let deadline = if seconds.is_some() { "" } else { LONG_DEADLINE };
    let (_filler, filler) = serve("filler.toml", LONG_DEADLINE);
    let (_attacked, attacked) = serve("attacked.toml", deadline);
    let (_other, other) = serve("other.toml", deadline);

    let mut setup = Client::connect(filler).unwrap();
    let reserved = repeat(&mut setup, RECEIPTS, &["RL.RESERVE", "budget", "full", "COST", "60"]);
    assert_eq!(allowed(&reserved), RECEIPTS);
    let refused = setup.ask(&["RL.RESERVE", "budget", "full"]).unwrap();
    assert!(matches!(&refused, Reply::Error(why) if why.contains("receipts")), "{refused:?}");
    let logged = repeat(&mut setup, LOG_LEN, &["RL.RESERVE", "log", "full"]);
    assert_eq!(allowed(&logged), LOG_LEN);
    let receipts: Vec<String> = logged.iter().map(|reply| reply.parts()[7].to_string()).collect();
    let all = repeat(&mut setup, 10_000, &["RL.CHECK", "log-all", "full"]);
    assert_eq!(allowed(&all), 10_000);

    let same = |command: &'static [&'static str]| {
        move |_: usize| -> Attack<'_> { Box::new(move |client| _ = client.ask(command).unwrap()) }
    };
    let cancels = |index: usize| -> Attack<'_> {
        let mut open: VecDeque<String> = receipts.iter().skip(index).step_by(CONNECTIONS).cloned().collect();
        Box::new(move |client| {
            // Of the entries of this connection, the earliest: most of the log comes after it.
            if let Some(receipt) = open.pop_front() {
                client.ask(&["RL.CANCEL", &receipt]).unwrap();
            }
            let reserved = client.ask(&["RL.RESERVE", "log", "full"]).unwrap();
            if is_allowed(&reserved) {
                open.push_back(reserved.parts()[7].to_string());
            }
        })
    };
    let quiet = beside(None, attacked, other, lasts);
    quiet.print("nothing");
    let attacks: [(&str, &Attacks<'_>); 5] = [
        ("plain RL.CHECK", &same(&["RL.CHECK", "api", "attacker"])),
        ("RL.RESERVE, refused: 16,384 receipts are open", &same(&["RL.RESERVE", "budget", "full"])),
        ("RL.REFUND with 16,384 open receipts", &same(&["RL.REFUND", "budget", "full", "1"])),
        ("RL.CANCEL, oldest of a log of 10,000", &cancels),
        ("RL.CHECK, denied, count=all, log of 10,000", &same(&["RL.CHECK", "log-all", "full"])),
    ];
    for (name, attack) in attacks {
        let seen = beside(Some(attack), attacked, other, lasts);
        seen.print(name);
        assert!(seen.calls > 0, "{name}: no attack was made");
        assert_eq!(seen.failed, Vec::<String>::new(), "{name}");
    }
}

/// Sends a command many times, in pipelines.
fn repeat(client: &mut Client, times: usize, command: &[&str]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while replies.len() < times {
        let commands = vec![words(command); PIPELINE.min(times - replies.len())];
        replies.extend(client.ask_all(&commands).unwrap());
    }
    replies
}

/// What the client of the other server saw.
struct Seen {
    latencies: Latencies,
    failed: Vec<String>,
    /// The calls of the attackers.
    calls: u64,
    lasted: Duration,
}

impl Seen {
    fn print(&self, name: &str) {
        let rate = u128::from(self.calls) * 1_000 / self.lasted.as_millis().max(1);
        println!("beside {name} ({rate}/s): {}, {} failed", self.latencies, self.failed.len());
    }
}

/// Makes checks on one server while an attack on another runs.
fn beside(attack: Option<&Attacks<'_>>, attacked: u16, other: u16, lasts: Duration) -> Seen {
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut latencies, mut failed) = (Vec::new(), Vec::new());
    let began = Instant::now();
    thread::scope(|scope| {
        for index in 0..if attack.is_some() { CONNECTIONS } else { 0 } {
            let (stop, calls) = (&stop, &calls);
            scope.spawn(move || {
                let mut act = attack.map(|attack| attack(index));
                let mut client = Client::connect(attacked).unwrap();
                while !stop.load(Relaxed) {
                    act.as_mut().into_iter().for_each(|act| act(&mut client));
                    calls.fetch_add(1, Relaxed);
                }
            });
        }
        let mut client = Client::connect(other).unwrap();
        // At least one call of the attackers, however busy the machine is.
        while began.elapsed() < lasts || (attack.is_some() && calls.load(Relaxed) == 0) {
            let key = format!("good:{}", latencies.len() % 500);
            let began = Instant::now();
            let reply = client.ask(&["RL.CHECK", "api", &key]).unwrap();
            latencies.push(began.elapsed());
            if !is_allowed(&reply) {
                failed.push(reply.to_string());
            }
            thread::sleep(PAUSE);
        }
        stop.store(true, Relaxed);
    });
    Seen { latencies: Latencies::new(latencies), failed, calls: calls.into_inner(), lasted: began.elapsed() }
}
