//! No script call keeps the store busy for longer than a millisecond and 20 µs, however many leases
//! and waiters a key has. `--nocapture` prints the times.

use crate::bounded_work::{KEY, Timed};
use crate::in_redis::Connected;
use crate::support::until;
use redis_testkit::Server;
use sluicegate_redis::RedisSemaphore;
use std::time::Duration;

/// Adds to a key: ARGV is the first number, how many leases, the cost of each, their expiry in
/// microseconds from now; and the same three for waiters.
const FILL: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i = ARGV[1], ARGV[1] + ARGV[2] - 1 do
  local id = string.format('%016d', i)
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[4] + i), id)
  if ARGV[3] ~= '1' then redis.call('HSET', KEYS[2], id, ARGV[3]) end
end
if ARGV[3] ~= '1' then redis.call('HINCRBY', KEYS[2], '#', (ARGV[3] - 1) * ARGV[2]) end
for i = ARGV[1], ARGV[1] + ARGV[5] - 1 do
  local entry = string.format('%016d', i) .. struct.pack('<I6', ARGV[6])
  redis.call('ZADD', KEYS[3], i, entry)
  redis.call('ZADD', KEYS[4], string.format('%.0f', now + ARGV[7]), entry)
  for bit = 0, 39 do
    if math.floor((ARGV[6] - 1) / 2 ^ bit) % 2 == 1 then
      redis.call('ZADD', KEYS[5], string.format('%.0f', bit * 2 ^ 47 + i), entry .. string.char(bit))
    end
  end
end
return 'OK'";

const HOUR: &str = "3600000000";
const GONE: &str = "-3600000000";
/// No entry of a waiter lives for longer.
const WAITS: &str = "59000000";

fn name(kind: char) -> String {
    format!("sluice:1/jobs:0{kind}|{{{KEY}}}")
}

fn fill(server: &Server, leases: [&str; 3], waiters: [&str; 3]) {
    server.cli(&["FLUSHALL"]);
    add(server, "1", leases, waiters);
}

/// Adds leases and waiters to a key, with this and the following numbers.
fn add(server: &Server, first: &str, leases: [&str; 3], waiters: [&str; 3]) {
    let keys = ['c', 'k', 'w', 'u', 'x'].map(name);
    let keys = keys.iter().map(String::as_str);
    let arguments = [first].into_iter().chain(leases).chain(waiters);
    let words: Vec<&str> = ["EVAL", FILL, "5"].into_iter().chain(keys).chain(arguments).collect();
    assert_eq!(server.cli(&words), "OK");
}

#[test]
fn no_script_call_on_leases_takes_long() {
    let mut timed = Timed::start();
    let server = timed.server();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    let semaphore = |count: u64| {
        let limit = format!("concurrency {count} ttl=1h");
        RedisSemaphore::builder(limit.as_str()).in_store(&connected.store, "jobs").build().unwrap()
    };
    let acquire = |jobs: &RedisSemaphore, cost: u64| {
        run.block_on(jobs.try_acquire(KEY, cost)).unwrap().lease().map(|lease| _ = lease.keep()).is_some()
    };
    for (leases, number) in [("1", 1), ("1000", 1_000), ("10000", 10_000)] {
        for (cost, each) in [("1", 1), ("2", 2)] {
            fill(&server, [leases, cost, HOUR], ["0", "1", WAITS]);
            let what = |verb: &str| format!("{number} leases of cost {cost}: {verb}");
            let (full, free) = (semaphore(number * each), semaphore(number * each + 100));
            timed.row(&what("acquire, denied"), 1, || assert!(!acquire(&full, number)));
            timed.row(&what("acquire, denied, half"), 1, || assert!(!acquire(&full, number.div_ceil(2))));
            timed.row(&what("peek, denied"), 1, || {
                assert!(!run.block_on(full.peek(KEY, number)).unwrap().allowed());
            });
            timed.row(&what("acquire"), 1, || assert!(acquire(&free, 2)));
            timed.row(&what("acquire, renew, release"), 1, || {
                let id = run.block_on(free.try_acquire(KEY, 2)).unwrap().lease().unwrap().keep();
                assert!(run.block_on(free.renew(KEY, &id)).unwrap());
                assert!(run.block_on(free.release(KEY, &id)).unwrap());
            });
            timed.row(&what("reset"), 1, || run.block_on(free.reset(KEY)).unwrap());
        }
    }
    for cost in ["1", "2"] {
        timed.row(&format!("10000 expired leases of cost {cost}: acquire"), 1, || {
            fill(&server, ["10000", cost, GONE], ["0", "1", WAITS]);
            assert!(acquire(&semaphore(20), 2));
        });
    }
    // Each less than is removed in one call.
    timed.row("249 expired leases and waiters of cost 2 beside 5000 leases: acquire, denied", 1, || {
        fill(&server, ["249", "2", GONE], ["249", "2", GONE]);
        add(&server, "1000", ["5000", "2", HOUR], ["0", "1", WAITS]);
        assert!(!acquire(&semaphore(10_000), 5_000));
    });
    // Costs above 1 are summed by bits: 16 of 65,536 less 1, and 39 of the largest power of 2.
    for cost in ["1", "65536", "549755813888"] {
        for waiters in ["1000", "10000"] {
            let what = |verb: &str| format!("{waiters} waiters of cost {cost}: {verb}");
            let count = 1_000_000_000_000;
            fill(&server, ["1", "2", HOUR], [waiters, cost, WAITS]);
            let fits = waiters.parse::<u64>().unwrap() * cost.parse::<u64>().unwrap() < count;
            timed.row(&what("acquire"), 1, || assert_eq!(acquire(&semaphore(count), 1), fits));
            timed.row(&what("acquire, denied"), 1, || assert!(!acquire(&semaphore(count), count)));
            timed.row(&what("peek"), 1, || {
                assert_eq!(run.block_on(semaphore(count).peek(KEY, 1)).unwrap().allowed(), fits);
            });
            let full = RedisSemaphore::builder(format!("concurrency {count} ttl=1h").as_str());
            let full = full.in_store(&connected.store, "jobs").max_queue(20_000).build().unwrap();
            let queued = || server.cli(&["ZCARD", &name('w')]);
            timed.row(&what("wait at the end, poll, leave"), 1, || {
                let wait = full.acquire_within(KEY, count, Duration::from_millis(1));
                assert!(!run.block_on(wait).unwrap().allowed());
                run.block_on(until("it has left the queue", || queued() == waiters));
            });
            timed.row(&what("acquire, when all have expired"), 1, || {
                fill(&server, ["0", "1", HOUR], [waiters, cost, GONE]);
                assert!(acquire(&semaphore(count), count));
                assert_eq!(server.cli(&["EXISTS", &name('w'), &name('u'), &name('x')]), "0");
            });
        }
    }
    timed.end();
}
