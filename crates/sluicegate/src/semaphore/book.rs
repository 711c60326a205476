//! What a shard knows of its keys: their leases, and those who wait for them.

use super::lease::Name;
use super::scope::View;
use super::shard::{Given, Outcome, Waiter};
use super::slab::Slab;
use super::stats::SemaphoreStats;
use crate::clock::alarms::Alarms;
use crate::key::{ByFingerprint, Fingerprint};
use crate::wait::Priority;
use sluicegate_core::concurrency::{Concurrency, Held, Leases};
use sluicegate_core::in_order::InOrder;
use sluicegate_core::{Decision, Time};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

/// Keys by a moment before which none of their leases lapses.
pub(super) type Lapses = InOrder<(Time, Fingerprint), ()>;

/// What the lock guards.
pub(super) struct Book {
    pub(super) rule: Concurrency,
    /// Whether several semaphores share the room: then keys know by whose numbers they are judged.
    pub(super) is_shared: bool,
    /// Those with a lease or somebody who waits.
    pub(super) keys: HashMap<Fingerprint, KeyLeases, ByFingerprint>,
    pub(super) leases: Slab<Out>,
    pub(super) seats: Slab<Seat>,
    pub(super) next_nonce: u64,
    pub(super) lapses: Lapses,
    /// What the clock has to ring for.
    pub(super) due: InOrder<(Time, Due), ()>,
    pub(super) alarms: Alarms,
    /// Room for leases that was taken from all shards' and is not used.
    pub(super) room: usize,
    pub(super) counts: Counts,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) released: u64,
    pub(super) renewed: u64,
    pub(super) expired: u64,
}

/// What is known of a key.
#[derive(Default)]
pub(super) struct KeyLeases {
    pub(super) leases: Leases<u32>,
    /// Where it is in `lapses`.
    pub(super) listed: Option<Time>,
    pub(super) line: Option<Box<Line>>,
    /// Where several semaphores share a room: by which one it was last asked about.
    pub(super) of: Option<Arc<View>>,
}

/// Those who wait under a key. There is one only while somebody does.
#[derive(Default)]
pub(super) struct Line {
    /// By priority, then by arrival: the seat and the cost.
    pub(super) waiting: InOrder<(Priority, u64), (u32, u32)>,
    pub(super) next: u64,
    /// What all of them cost.
    pub(super) cost: u64,
    /// When the head's turn comes if nothing is returned. It is then in `due`.
    pub(super) turn: Option<Time>,
}

/// A lease that is out.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub(super) key: Fingerprint,
    pub(super) nonce: u64,
    pub(super) held: Held,
}

/// Somebody who waits, and what came of it.
pub(super) enum Seat {
    Waiting { waiter: Waiter, place: (Priority, u64), waker: Waker },
    Told(Outcome),
}

/// What the clock rings for. Of one moment what lapses comes first: then it is of use to those whose time is up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The head of a key's line may have its turn.
    Turn(Fingerprint),
    /// Somebody has waited for too long.
    Deadline(u32),
}
impl Book {
    pub(super) fn new(rule: Concurrency) -> Book {
        Book {
            rule,
            is_shared: false,
            keys: HashMap::default(),
            leases: Slab::default(),
            seats: Slab::default(),
            next_nonce: 0,
            lapses: Lapses::default(),
            due: InOrder::default(),
            alarms: Alarms::default(),
            room: 0,
            counts: Counts::default(),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.rule.count()
    }

    pub(super) fn count_denied(&mut self) {
        self.counts.denied += 1;
    }

    pub(super) fn add_to(&self, stats: &mut SemaphoreStats) {
        let Counts { allowed, denied, released, renewed, expired } = self.counts;
        stats.allowed += allowed;
        stats.denied += denied;
        stats.released += released;
        stats.renewed += renewed;
        stats.expired += expired;
        stats.leases += self.leases.len();
        stats.keys += self.keys.len();
    }

    /// Whether anything depends on what time it is.
    #[inline]
    pub(super) fn needs_time(&self) -> bool {
        // Whoever waits is told for how long.
        let anybody_waits = self.seats.len() > 0;
        anybody_waits || self.rule.ttl().is_some() || !self.lapses.is_empty() || !self.due.is_empty()
    }

    /// The alarm for a time will not ring. How to wake everybody who waits: they look again, and so set another.
    pub(super) fn alarm_is_lost(&mut self, at: Time) -> Vec<Waker> {
        self.alarms.disarm(at);
        let waiting = |(_, seat)| match seat {
            // When it looks it says anew how to wake it.
            &mut Seat::Waiting { ref mut waker, .. } => Some(std::mem::replace(waker, Waker::noop().clone())),
            Seat::Told(_) => None,
        };
        self.seats.iter_mut().filter_map(waiting).collect()
    }

    /// A lease of a key, for which there is room.
    #[inline]
    pub(super) fn give(
        &mut self,
        key: Fingerprint,
        cost: u32,
        now: Time,
        by: Option<&Arc<View>>,
    ) -> (Decision, Option<Given>) {
        let Book { rule, keys, leases, lapses, next_nonce, counts, .. } = self;
        let known = keys.entry(key).or_insert_with(|| KeyLeases::of(by));
        let rule = known.rule(*rule);
        let nonce = *next_nonce;
        *next_nonce += 1;
        // The place is known before the lease is, and the lease before its name.
        let place = leases.next();
        let (decision, held) = rule.acquire(&mut known.leases, now, cost, place);
        let Some(held) = held else { return (decision, None) };
        leases.insert(Out { key, nonce, held });
        known.list(lapses, key, held);
        known.tell(View::one_more_out);
        counts.allowed += 1;
        let name = Name { key: key.high, place, nonce };
        (decision, Some(Given { name, until: held.until() }))
    }
}

impl KeyLeases {
    /// A key that nothing is known of, and who asks about it.
    #[inline]
    pub(super) fn of(by: Option<&Arc<View>>) -> KeyLeases {
        KeyLeases { of: by.cloned(), ..KeyLeases::default() }
    }

    /// The numbers that hold for it, if those of the semaphore are these.
    #[inline]
    pub(super) fn rule(&self, of_all: Concurrency) -> Concurrency {
        self.of.as_ref().map_or(of_all, |of| of.rule)
    }

    /// Counts something of its scope, if it has one.
    #[inline]
    pub(super) fn tell(&self, what: fn(&View)) {
        if let Some(of) = &self.of {
            what(of);
        }
    }

    /// Whether somebody waits.
    #[inline]
    pub(super) fn has_line(&self) -> bool {
        self.line.is_some()
    }

    /// A lease lapses at that moment.
    #[inline]
    pub(super) fn list(&mut self, lapses: &mut Lapses, key: Fingerprint, held: Held) {
        if let Some(until) = held.until()
            && self.listed.is_none_or(|listed| until < listed)
        {
            if let Some(listed) = self.listed.replace(until) {
                lapses.remove(&(listed, key));
            }
            lapses.insert((until, key), ());
        }
    }

    /// Lists it anew: where it was is in the past.
    pub(super) fn relist(&mut self, lapses: &mut Lapses, key: Fingerprint) {
        if let Some(listed) = self.listed.take() {
            lapses.remove(&(listed, key));
        }
        self.listed = self.leases.lapses_at();
        if let Some(at) = self.listed {
            lapses.insert((at, key), ());
        }
    }
}
