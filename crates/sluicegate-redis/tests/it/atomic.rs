//! Eight processes on one key of one server: exactly what the limit allows is allowed, by all of them together.
//!
//! Each process is this test once more, told so by a variable. Each calls every limit below without a pause, until a moment that all were told, and
//! writes down each call that was allowed: when it was made, when it was answered, and what remained.

use crate::support::{LONG, alone, every_key_expires};
use redis_testkit::{Options, Server};
use sluicegate_redis::{RedisLimiter, RedisStore};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use std::{env, fs};

const PROCESSES: usize = 8;
const TEST: &str = "atomic::eight_processes_are_allowed_exactly_the_limit";
/// What a process is told: the store's address, the moments at which to begin and to end, and the file for what was allowed.
const TOLD: [&str; 4] = ["SLUICE_TEST_URL", "SLUICE_TEST_BEGIN", "SLUICE_TEST_END", "SLUICE_TEST_FILE"];

const SECOND: u64 = 1_000_000;
/// Begins and ends in the middle of a second, so that each window is used up before its end.
const RUNS: u64 = 4 * SECOND;

/// What has to be true of the calls that were allowed.
#[derive(Clone, Copy)]
enum Exactly {
    /// So many in all: nothing comes back meanwhile.
    InAll(usize),
    /// So many in each second of the clock.
    InEachSecond(u32),
    /// Never more than so many within a second, and at least so many for each.
    InAnySecond(usize),
    /// A burst, and then so many a second.
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

/// A call that was allowed, in microseconds of the clock that all processes share, the store's too.
#[derive(Clone, Copy)]
struct Allowed {
    made: u64,
    answered: u64,
    remaining: u32,
}

#[tokio::test]
async fn eight_processes_are_allowed_exactly_the_limit() {
    if let [Ok(url), Ok(begin), Ok(end), Ok(file)] = TOLD.map(env::var) {
        return one_of_eight(&url, begin.parse().unwrap(), end.parse().unwrap(), Path::new(&file)).await;
    }
    let _alone = alone().await;
    let server = Server::start(&Options::redis());
    // In the middle of a second, when all of them have started.
    let begin = (now() / SECOND + 2) * SECOND + SECOND / 2;
    let mut processes = Vec::new();
    for number in 0..PROCESSES {
        let file = env::temp_dir().join(format!("sluicegate-atomic-{}-{number}", std::process::id()));
        let told = [server.url(), begin.to_string(), (begin + RUNS).to_string(), file.display().to_string()];
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", TEST]).envs(TOLD.into_iter().zip(told)).stdout(Stdio::null());
        processes.push((command.spawn().unwrap(), file));
    }
    let mut allowed: BTreeMap<usize, Vec<Allowed>> = BTreeMap::new();
    for (mut process, file) in processes {
        assert!(process.wait().unwrap().success());
        read(file, &mut allowed);
    }
    for (place, (limit, exactly)) in limits().into_iter().enumerate() {
        judge(&limit, exactly, allowed.get(&place).map(Vec::as_slice).unwrap_or_default());
    }
    every_key_expires(&server);
}

async fn one_of_eight(url: &str, begin: u64, end: u64, file: &Path) {
    // The deadline is not what is tested: a call that fails may have been charged, and then nothing is exact.
    let store = RedisStore::builder(url).deadline(Duration::from_secs(10)).connect().await.unwrap();
    assert!(now() < begin, "too slow a start");
    let caller = |(place, (limit, _)): (usize, (String, Exactly))| {
        let limiter = RedisLimiter::builder(&limit).in_store(&store, &limit).build().unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(begin.saturating_sub(now()))).await;
            let mut lines = String::new();
            while now() < end {
                let made = now();
                let answer = limiter.check("one key").await.unwrap();
                if answer.allowed() {
                    lines += &format!("{place} {made} {} {}\n", now(), answer.remaining());
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

fn read(file: PathBuf, allowed: &mut BTreeMap<usize, Vec<Allowed>>) {
    for line in fs::read_to_string(&file).unwrap().lines() {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [place, made, answered, remaining] = numbers.try_into().unwrap();
        let call = Allowed { made, answered, remaining: remaining.try_into().unwrap() };
        allowed.entry(place.try_into().unwrap()).or_default().push(call);
    }
    fs::remove_file(file).unwrap();
}

fn judge(limit: &str, exactly: Exactly, allowed: &[Allowed]) {
    let first = allowed.iter().map(|call| call.made).min().expect("somebody was allowed");
    let last = allowed.iter().map(|call| call.answered).max().expect("somebody was allowed");
    let count = u64::try_from(allowed.len()).unwrap();
    match exactly {
        Exactly::InAll(all) => assert_eq!(allowed.len(), all, "{limit}"),
        Exactly::InEachSecond(each) => {
            // From the middle of one second to the middle of another. In each second every number remains once.
            let seconds = RUNS / SECOND + 1;
            let mut remaining: BTreeMap<u32, u64> = BTreeMap::new();
            for call in allowed {
                *remaining.entry(call.remaining).or_default() += 1;
            }
            let expected: BTreeMap<u32, u64> = (0..each).map(|number| (number, seconds)).collect();
            assert_eq!(remaining, expected, "{limit}");
        }
        Exactly::InAnySecond(most) => {
            // The store decided somewhere between `made` and `answered`: whoever is within a second with both surely was.
            for call in allowed {
                let from = call.made;
                let within = |other: &&Allowed| other.made >= from && other.answered < from + SECOND;
                let together = allowed.iter().filter(within).count();
                assert!(together <= most, "{limit}: {together} within a second");
            }
            let fewest = most * usize::try_from(RUNS / SECOND).unwrap();
            assert!(allowed.len() >= fewest, "{limit}: {} in all", allowed.len());
        }
        Exactly::BurstAndRate(burst, rate) => {
            let most = burst + (last - first) * rate / SECOND;
            assert!(count <= most, "{limit}: {count} allowed, {most} at most");
            // Nothing is lost as long as the bucket is not full, which that of one unit is all the time.
            let all = burst + RUNS * rate / SECOND;
            let fewest = if burst == 1 { all / 2 } else { all - rate / 5 };
            assert!(count >= fewest, "{limit}: {count} allowed, {fewest} at least");
        }
    }
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros().try_into().unwrap()
}
