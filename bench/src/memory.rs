//! Memory a key, as the operating system counts it. Each case has a process of its own, as what one
//! has freed the next would find lying about.

use crate::input::{Governor, Name, ask, governor, limiter};
use crate::measure::{head, memory, row};
use governor::Quota;
use nonzero_ext::nonzero;
use std::hash::Hash;
use std::process::Command;

pub const KEYS: u64 = 10_000_000;
/// The argument that makes the program a case's process.
pub const CHILD: &str = "memory-of";

/// What is held: limits, or governor's state.
#[derive(Clone, Copy)]
enum Held {
    Ours(&'static [&'static str]),
    Governor,
    GovernorU64,
}

struct Case {
    held: Held,
    key_bytes: usize,
    calls: u32,
    /// Of the number of keys asked for, this share.
    one_in: u64,
}

/// No key recovers while they come in.
const CELLS: [&[&str]; 4] =
    [&["token-bucket 5/h"], &["fixed-window 1000/h"], &["sliding-window 1000/h"], &["min-interval 1h"]];

fn cases() -> Vec<Case> {
    let case = |held, key_bytes, calls, one_in| Case { held, key_bytes, calls, one_in };
    let mut cases = Vec::new();
    for limits in CELLS {
        cases.extend([20, 200].map(|bytes| case(Held::Ours(limits), bytes, 1, 1)));
    }
    cases.push(case(Held::Governor, 20, 1, 1));
    cases.push(case(Held::Governor, 200, 1, 1));
    cases.push(case(Held::GovernorU64, 8, 1, 1));
    cases.push(case(Held::Ours(&["sliding-log 5/60s"]), 20, 1, 10));
    cases.push(case(Held::Ours(&["sliding-log 5/60s"]), 20, 5, 10));
    cases.push(case(Held::Ours(&["token-bucket 5/h", "fixed-window 1000/d"]), 20, 1, 10));
    cases
}

pub fn run(keys: u64) {
    println!("Memory of the process per key, in bytes; max_keys is the number of keys added:\n");
    head([
        "",
        "keys added",
        "key length",
        "calls per key",
        "held",
        "evicted",
        "bytes per key",
        "at the peak",
    ]);
    for (place, Case { held, key_bytes, calls, one_in }) in cases().into_iter().enumerate() {
        let program = std::env::current_exe().expect("a program knows its own file");
        let come = keys.div_ceil(one_in);
        let child = Command::new(program).args([CHILD, &place.to_string(), &come.to_string()]).output();
        let output = child.expect("the program starts once more").stdout;
        let output = String::from_utf8(output).expect("numbers");
        let [kept, evicted, bytes, peak] = *output.split_ascii_whitespace().collect::<Vec<_>>().as_slice()
        else {
            panic!("{output:?} is not what a case prints");
        };
        let name = match held {
            Held::Ours(limits) => limits.join(" and "),
            Held::Governor => "governor, String".to_owned(),
            Held::GovernorU64 => "governor, u64".to_owned(),
        };
        let [come, key_bytes, calls] = [come, key_bytes as u64, u64::from(calls)].map(|n| n.to_string());
        let [kept, evicted, bytes, peak] = [kept, evicted, bytes, peak].map(str::to_owned);
        row([name, come, format!("{key_bytes} bytes"), calls, kept, evicted, bytes, peak]);
    }
}

/// Measures one case, in a process of its own, and prints the last four cells of its row.
pub fn child(case: &str, keys: &str) {
    let case = case.parse::<usize>().ok().and_then(|place| cases().into_iter().nth(place)).expect("a case");
    let keys: u64 = keys.parse().expect("a number of keys");
    let before = memory("VmRSS");
    match case.held {
        Held::Ours(limits) => {
            let (limiter, mut name) = (limiter(limits, keys as usize), Name::new(case.key_bytes));
            for _ in 0..case.calls {
                assert!((0..keys).all(|key| limiter.check(name.of(key)).allowed()), "within the limit");
            }
            let stats = limiter.stats();
            report(before, stats.keys, &stats.evicted.to_string());
        }
        Held::Governor => {
            let mut name = Name::new(case.key_bytes);
            fill(before, keys, |governor: &Governor<String>, key| ask(governor, name.of(key)));
        }
        Held::GovernorU64 => fill(before, keys, |governor: &Governor<u64>, key| ask(governor, &key)),
    }
}

fn fill<K: Clone + Eq + Hash>(before: f64, keys: u64, mut call: impl FnMut(&Governor<K>, u64) -> bool) {
    let governor = governor::<K>(Quota::per_hour(nonzero!(5_u32)));
    assert!((0..keys).all(|key| call(&governor, key)), "within the limit");
    report(before, governor.len(), "-");
}

/// To be called while what is measured is still there.
fn report(before: f64, held: usize, evicted: &str) {
    let [bytes, peak] = ["VmRSS", "VmHWM"].map(|figure| (memory(figure) - before) / held as f64);
    println!("{held} {evicted} {bytes:.1} {peak:.1}");
}
