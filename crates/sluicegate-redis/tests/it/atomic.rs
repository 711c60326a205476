//! Eight processes share one key on one server, and together are allowed exactly the limit.
//!
//! Each process is this test, run again with environment variables. It calls every limit below
//! without a pause until its input ends, and records each allowed call, and some of the denied
//! ones: when it was made, when it was answered, and what remained.
//!
//! The number of calls depends on the machine, so nothing else may: no more is allowed than the
//! limit, and a denied call finds it used up.

use crate::support::{LONG, alone, connect, every_key_expires, until};
use redis_testkit::{Options, Server};
use sluicegate_redis::RedisLimiter;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use std::{env, fs, io, thread};

const PROCESSES: usize = 8;
const TEST: &str = "atomic::eight_processes_are_allowed_exactly_the_limit";
/// The arguments of a process: the store's URL, and the file for its calls.
const VARIABLES: [&str; 2] = ["SLUICE_TEST_URL", "SLUICE_TEST_FILE"];

const SECOND: u64 = 1_000_000;
/// How long all processes call.
const RUNS: Duration = Duration::from_secs(4);
/// Each process records one denied call per limit in this time.
const DENIALS_EVERY: u64 = SECOND / 20;

/// What must hold for the calls.
#[derive(Clone, Copy)]
enum Exactly {
    /// This many in total: nothing recovers meanwhile.
    InAll(usize),
    /// This many in each second of the clock.
    InEachSecond(u32),
    /// At most this many within any second.
    InAnySecond(usize),
    /// A burst, and then this many per second.
    BurstAndRate(u64, u64),
}

fn limits() -> Vec<(String, Exactly)> {
    let long = |text: &str, count: usize| (format!("{text} {count}/{LONG}"), Exactly::InAll(count));
    vec![
        long("token-bucket", 100),
        long("leaky-bucket", 101),
        long("fixed-window", 102),
        (format!("fixed-window 103/{LONG} start=first"), Exactly::InAll(103)),
        long("sliding-log", 104),
        long("sliding-window", 105),
        (format!("min-interval {LONG}"), Exactly::InAll(1)),
        (format!("pacer 100/{LONG} queue=106"), Exactly::InAll(107)),
        (String::from("fixed-window 40/s"), Exactly::InEachSecond(40)),
        (String::from("sliding-log 30/s"), Exactly::InAnySecond(30)),
        (String::from("token-bucket 50/s burst=20"), Exactly::BurstAndRate(20, 50)),
        (String::from("leaky-bucket 50/s capacity=20"), Exactly::BurstAndRate(20, 50)),
        (String::from("min-interval 20ms"), Exactly::BurstAndRate(1, 50)),
    ]
}

/// A call, in microseconds of the clock that all processes and the store share. The store decided
/// between the two times.
#[derive(Clone, Copy)]
struct Call {
    made: u64,
    answered: u64,
    /// What remained, or nothing if it was denied.
    remaining: Option<u32>,
}

/// The calls under one limit.
#[derive(Default)]
struct Calls {
    allowed: Vec<Call>,
    denied: Vec<Call>,
}

#[tokio::test]
async fn eight_processes_are_allowed_exactly_the_limit() {
    if let [Ok(url), Ok(file)] = VARIABLES.map(env::var) {
        return one_of_eight(&url, Path::new(&file)).await;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    let mut processes = Vec::new();
    for number in 0..PROCESSES {
        let file = env::temp_dir().join(format!("sluicegate-atomic-{}-{number}", std::process::id()));
        let arguments = [server.url(), file.display().to_string()];
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", TEST]).envs(VARIABLES.into_iter().zip(arguments));
        processes.push((command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap(), file));
    }
    until("all processes call", || processes.iter().all(|(_, file)| file.exists())).await;
    tokio::time::sleep(RUNS).await;
    for (process, _) in &mut processes {
        drop(process.stdin.take());
    }
    let mut calls: BTreeMap<usize, Calls> = BTreeMap::new();
    for (mut process, file) in processes {
        assert!(process.wait().unwrap().success());
        read(file, &mut calls);
    }
    for (index, (limit, exactly)) in limits().into_iter().enumerate() {
        calls[&index].judge(&limit, exactly);
    }
    every_key_expires(&server);
}

async fn one_of_eight(url: &str, file: &Path) {
    let ending = Arc::new(AtomicBool::new(false));
    let should_end = Arc::clone(&ending);
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        should_end.store(true, Relaxed);
    });
    let store = connect(url).await;
    // The file shows that this process is calling.
    fs::write(file, "").unwrap();
    let caller = |(index, (limit, _)): (usize, (String, Exactly))| {
        let limiter = RedisLimiter::builder(&limit).in_store(&store, &limit).build().unwrap();
        let ending = Arc::clone(&ending);
        tokio::spawn(async move {
            let (mut lines, mut denied_at) = (String::new(), 0);
            while !ending.load(Relaxed) {
                let made = now();
                let answer = limiter.check("one key").await.unwrap();
                let answered = now();
                if answer.allowed() {
                    lines += &format!("{index} {made} {answered} {}\n", answer.remaining());
                } else if made >= denied_at + DENIALS_EVERY {
                    lines += &format!("{index} {made} {answered} -\n");
                    denied_at = made;
                }
            }
            lines
        })
    };
    let callers: Vec<_> = limits().into_iter().enumerate().map(caller).collect();
    let mut text = String::new();
    for caller in callers {
        text += &caller.await.unwrap();
    }
    fs::write(file, text).unwrap();
}

fn read(file: PathBuf, calls: &mut BTreeMap<usize, Calls>) {
    for line in fs::read_to_string(&file).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [index, made, answered, remaining] = words.try_into().unwrap();
        let call = Call {
            made: made.parse().unwrap(),
            answered: answered.parse().unwrap(),
            remaining: remaining.parse().ok(),
        };
        let calls = calls.entry(index.parse().unwrap()).or_default();
        if call.remaining.is_some() { calls.allowed.push(call) } else { calls.denied.push(call) }
    }
    fs::remove_file(file).unwrap();
}

impl Calls {
    fn judge(&self, limit: &str, exactly: Exactly) {
        assert!(!self.denied.is_empty(), "{limit}: no call was denied, so the test proves nothing");
        match exactly {
            Exactly::InAll(all) => assert_eq!(self.allowed.len(), all, "{limit}"),
            Exactly::InEachSecond(each) => self.judge_windows(limit, each),
            Exactly::InAnySecond(most) => self.judge_log(limit, most),
            Exactly::BurstAndRate(burst, rate) => self.judge_bucket(limit, burst, rate),
        }
    }

    /// When the first call was made and the last one answered.
    fn lasted(&self) -> (u64, u64) {
        let first = self.allowed.iter().map(|call| call.made).min().expect("an allowed call");
        (first, self.allowed.iter().map(|call| call.answered).max().expect("an allowed call"))
    }

    fn judge_windows(&self, limit: &str, each: u32) {
        let (first, last) = self.lasted();
        let windows = usize::try_from(last / SECOND - first / SECOND + 1).unwrap();
        // In each window each remaining count occurs once, and none is missing.
        let left = |number| self.allowed.iter().filter(|call| call.remaining == Some(number)).count();
        let counts: Vec<usize> = (0..each).map(left).collect();
        assert!(
            counts.is_sorted() && counts[counts.len() - 1] <= windows,
            "{limit}: {counts:?} of {windows}"
        );
        assert_eq!(counts.iter().sum::<usize>(), self.allowed.len(), "{limit}");
        // A window with a denied call was used up.
        let second_of =
            |call: &Call| (call.made / SECOND == call.answered / SECOND).then_some(call.made / SECOND);
        let used_up: BTreeSet<u64> = self.denied.iter().filter_map(second_of).collect();
        assert!(counts[0] >= used_up.len(), "{limit}: {counts:?}, used up {used_up:?}");
    }

    fn judge_log(&self, limit: &str, most: usize) {
        for call in &self.allowed {
            // A call with both times within the second was certainly in it.
            let within = |other: &&Call| other.made >= call.made && other.answered < call.made + SECOND;
            let together = self.allowed.iter().filter(within).count();
            assert!(together <= most, "{limit}: {together} within a second");
        }
        for denied in &self.denied {
            let perhaps =
                |other: &&Call| other.answered + SECOND >= denied.made && other.made <= denied.answered;
            let together = self.allowed.iter().filter(perhaps).count();
            assert!(together >= most, "{limit}: denied after {together} within a second");
        }
    }

    fn judge_bucket(&self, limit: &str, burst: u64, rate: u64) {
        let (first, last) = self.lasted();
        let (count, most) =
            (u64::try_from(self.allowed.len()).unwrap(), burst + (last - first) * rate / SECOND);
        assert!(count <= most, "{limit}: {count} allowed, {most} at most");
        for denied in &self.denied {
            // Since some moment at which the bucket was full, all of it was used, and all that
            // refilled since.
            let is_used_up_since = |begin: &Call| {
                let perhaps = |other: &&Call| other.answered >= begin.made && other.made <= denied.answered;
                let taken = u64::try_from(self.allowed.iter().filter(perhaps).count()).unwrap();
                let came_in = denied.made.saturating_sub(begin.answered) * rate / SECOND;
                begin.made <= denied.answered && taken + 1 > burst + came_in
            };
            assert!(self.allowed.iter().any(is_used_up_since), "{limit}: denied before it was used up");
        }
    }
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros().try_into().unwrap()
}
