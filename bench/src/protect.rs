//! What keeps one failure from becoming many, beside others: permits and leases beside tokio's
//! semaphore, layers beside tower's `ConcurrencyLimit`, breakers beside `recloser` and `failsafe`.
//!
//! Every figure is processor time of the threads that did the work: what else the machine does
//! counts for little then. (Ours has one alarm a queue set with the timer's thread, which is not
//! counted; tokio's timers are in the thread that is.)

mod breaker;
mod keyed;
mod layer;
mod permit;
mod queue;

use crate::measure::{Rounds, each, head, median, own_thread_cpu, row, verdict};
use std::sync::Barrier;
use std::time::Duration;

pub const ROUNDS: usize = 41;
/// The most that ours may take, as a ratio to the best rival.
const BAR: f64 = 1.2;

pub fn run(rounds: usize) {
    permit::run(rounds);
    queue::run(rounds);
    keyed::run(rounds);
    layer::run(rounds);
    breaker::run(rounds);
}

/// Every contender beside the best of the rivals; those that are neither ours nor rivals are there
/// to be seen.
fn table(what: &str, figures: &Rounds, ours: &[&str], rivals: &[&str]) {
    let best = rivals.iter().copied().min_by(|a, b| figures.median(a).total_cmp(&figures.median(b)));
    let best = best.expect("there is a rival");
    println!("{what}, in nanoseconds of CPU time:\n");
    head(["", "median", "lowest to highest", "ratio to the best rival", "at most 1.2"]);
    for name in figures.names() {
        let [middle, spread] = figures.spread(name);
        let ratio = figures.ratio(name, best);
        let met = if ours.contains(&name) { verdict(ratio <= BAR) } else { String::new() };
        row([name.to_owned(), middle, spread, format!("{ratio:.2}"), met]);
    }
    println!();
}

/// What contenders take more than without any of them, and that as a share of what the rival takes.
fn overheads(figures: &Rounds, without: &str, names: &[&str], rival: &str) {
    let over = |name: &str| median(figures.beyond(name, without));
    let tell = |name: &&str| format!("{name} {:.1} ({:.2})", over(name), over(name) / over(rival));
    let names: Vec<String> = names.iter().map(tell).collect();
    println!("Overhead beyond {without}, and its ratio to {rival}: {}\n", names.join(", "));
}

/// The processor time per repetition.
fn cpu_nanos(count: u64, act: impl FnOnce()) -> f64 {
    let began = own_thread_cpu();
    act();
    each(own_thread_cpu() - began, count)
}

/// The processor time per repetition, with two threads at once.
fn cpu_nanos_of_two(count: u64, act: impl Fn() + Sync) -> f64 {
    let (barrier, act) = (Barrier::new(2), &act);
    let timed = || {
        barrier.wait();
        let began = own_thread_cpu();
        act();
        own_thread_cpu() - began
    };
    let took: Duration = std::thread::scope(|scope| {
        let other = scope.spawn(timed);
        let own = timed();
        own + other.join().expect("it does not panic")
    });
    each(took, 2 * count)
}
