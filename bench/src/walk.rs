//! Visits many keys in a given order, from one thread or several at once.

use crate::measure::each;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Each order is a thread's. The figure is the time that a call took its thread, in nanoseconds:
/// from when the first thread began until the last was done.
pub fn walk<K: Sync, R>(keys: &[K], orders: &[Vec<u32>], call: impl Fn(&K) -> R + Sync) -> f64 {
    let visit = |order: &[u32]| {
        let began = Instant::now();
        for place in order {
            black_box(call(black_box(&keys[*place as usize])));
        }
        (began, Instant::now())
    };
    let calls = orders.iter().map(|order| order.len() as u64).sum::<u64>();
    let times: Vec<(Instant, Instant)> = if let [order] = orders {
        vec![visit(order)]
    } else {
        let (barrier, visit) = (Barrier::new(orders.len()), &visit);
        std::thread::scope(|scope| {
            let threads = orders.iter().map(|order| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    visit(order)
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().expect("a call does not panic")).collect()
        })
    };
    let began = times.iter().map(|(began, _)| *began).min().expect("an order");
    let ended = times.iter().map(|(_, ended)| *ended).max().expect("an order");
    each(ended - began, calls) * orders.len() as f64
}
