//! A lease of a key taken and given back at once, beside what people write by hand: a map of
//! tokio's semaphores under a lock.
//!
//! Two ways to write that: a key's semaphore stays for ever, so that memory grows with every key
//! there ever was; or it is taken out with its last permit, which takes the lock a second time.
//! Ours keeps nothing of a key that has no lease: so it is the second that does the same work.
//! Neither of them knows a ttl.

use super::{cpu_nanos, table};
use crate::input::Random;
use crate::measure::{Contender, interleaved};
use sluicegate::semaphore::Semaphore;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedSemaphorePermit;

const CALLS: u32 = 100_000;
const PERMITS: usize = 10;

const OURS: &str = "`Semaphore::try_acquire`";
const OURS_TTL: &str = "`Semaphore::try_acquire`, with ttl";
const STAYS: &str = "a map of tokio's, never removes keys";
const GOES: &str = "a map of tokio's, removes unused keys";

pub fn run(rounds: usize) {
    let one = vec![String::from("Harry"); CALLS as usize];
    let mut many = one.clone();
    for (place, number) in Random(1).order(CALLS).into_iter().enumerate() {
        many[place] = format!("user-{number}");
    }
    compare("Take and release a lease of one hot key", &one, false, rounds);
    compare("The same with 100,000 keys in random order, one after another", &many, false, rounds);
    compare("The same with 100,000 keys that each have an open lease already", &many, true, rounds);
}

fn compare(what: &str, keys: &[String], is_held: bool, rounds: usize) {
    let ours = |limit: &str| Semaphore::builder(limit).max_leases(1_000_000).build().expect("a semaphore");
    let (ours, ours_ttl) = (ours("concurrency 10"), ours("concurrency 10 ttl=1h"));
    let (stays, goes) = (Map::default(), Map::default());
    let held: &[String] = if is_held { keys } else { &[] };
    let held = held.iter().map(|key| {
        let permits = (stays.try_acquire(key), goes.try_acquire(key));
        (ours.try_acquire(key, 1).lease(), ours_ttl.try_acquire(key, 1).lease(), permits)
    });
    let held: Vec<_> = held.collect();
    let calls = keys.len() as u64;
    let each = |act: &dyn Fn(&str) -> bool| {
        cpu_nanos(calls, || keys.iter().for_each(|key| assert!(act(black_box(key)))))
    };
    let contenders: Vec<Contender<'_>> = vec![
        (OURS.to_owned(), Box::new(|| each(&|key| ours.try_acquire(key, 1).allowed()))),
        (OURS_TTL.to_owned(), Box::new(|| each(&|key| ours_ttl.try_acquire(key, 1).allowed()))),
        (STAYS.to_owned(), Box::new(|| each(&|key| stays.try_acquire(key).is_some()))),
        (
            GOES.to_owned(),
            Box::new(|| {
                each(&|key| {
                    let permit = goes.try_acquire(key);
                    let is_some = permit.is_some();
                    goes.give_back(key, permit);
                    is_some
                })
            }),
        ),
    ];
    let figures = interleaved(contenders, rounds);
    drop(held);
    table(what, &figures, &[OURS, OURS_TTL], &[GOES]);
}

/// What is written by hand where a semaphore with keys is wanted.
#[derive(Default)]
struct Map(Mutex<HashMap<String, Arc<tokio::sync::Semaphore>>>);

impl Map {
    fn try_acquire(&self, key: &str) -> Option<OwnedSemaphorePermit> {
        let mut map = self.lock();
        let semaphore = match map.get(key) {
            Some(semaphore) => Arc::clone(semaphore),
            None => {
                let semaphore = Arc::new(tokio::sync::Semaphore::new(PERMITS));
                map.insert(key.to_owned(), Arc::clone(&semaphore));
                semaphore
            }
        };
        drop(map);
        semaphore.try_acquire_owned().ok()
    }

    fn give_back(&self, key: &str, permit: Option<OwnedSemaphorePermit>) {
        let mut map = self.lock();
        drop(permit);
        if map.get(key).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            map.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
