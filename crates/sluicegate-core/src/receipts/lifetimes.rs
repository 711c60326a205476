//! The receipts of a key that are more than one charge kept for an hour: those with a time to live,
//! and those that were extended.

use super::{Receipt, Then, Ttl};
use crate::time::{Span, Time};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::iter;

/// What is known of such receipts.
#[derive(Clone, Default, Debug)]
pub(super) struct Lifetimes {
    by_receipt: BTreeMap<Receipt, Lifetime>,
    /// When receipts expire whose charges stay, in microseconds.
    kept: BTreeSet<(u64, Receipt)>,
    /// When receipts expire whose charges are returned, in microseconds.
    cancelled: BTreeSet<(u64, Receipt)>,
}

/// How long a receipt is open, and where its charges are.
#[derive(Clone, Debug)]
pub(super) struct Lifetime {
    /// The time of the reservation, or of the latest extension.
    pub(super) since: Time,
    pub(super) ttl: Option<Ttl>,
    /// The sum of the costs charged.
    pub(super) cost: u64,
    /// The id of the block that the reservation's charge was put in.
    pub(super) first: u64,
    /// The same for the charge of each extension, oldest first.
    pub(super) extensions: Vec<u64>,
}

impl Lifetime {
    /// Restarts the time to live, with this length if one is given. A receipt without one gets one
    /// that keeps its charge.
    pub(super) fn restart(&mut self, now: Time, length: Option<Span>) {
        self.since = now;
        if let Some(length) = length {
            let then = self.ttl.map_or(Then::Keep, |ttl| ttl.then);
            self.ttl = Some(Ttl { length, then });
        }
    }

    /// Returns the ids of the blocks that its charges were put in, newest first.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.extensions.iter().rev().copied().chain(iter::once(self.first))
    }

    /// Returns when it ends, in microseconds: perhaps after the end of time.
    fn end(&self) -> Option<(u64, Then)> {
        self.ttl.map(|ttl| (self.since.as_micros().saturating_add(ttl.length.as_micros()), ttl.then))
    }
}

impl Lifetimes {
    pub(super) fn get(&self, receipt: Receipt) -> Option<&Lifetime> {
        self.by_receipt.get(&receipt)
    }

    pub(super) fn insert(&mut self, receipt: Receipt, lifetime: Lifetime) {
        match lifetime.end() {
            Some((end, Then::Keep)) => drop(self.kept.insert((end, receipt))),
            Some((end, Then::Cancel)) => drop(self.cancelled.insert((end, receipt))),
            None => {}
        }
        self.by_receipt.insert(receipt, lifetime);
    }

    pub(super) fn remove(&mut self, receipt: Receipt) -> Option<Lifetime> {
        let lifetime = self.by_receipt.remove(&receipt)?;
        match lifetime.end() {
            Some((end, Then::Keep)) => drop(self.kept.remove(&(end, receipt))),
            Some((end, Then::Cancel)) => drop(self.cancelled.remove(&(end, receipt))),
            None => {}
        }
        Some(lifetime)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_receipt.is_empty()
    }

    /// Returns `true` if a time to live has ended by now.
    pub(super) fn has_ended(&self, now: Time) -> bool {
        let firsts = [self.kept.first(), self.cancelled.first()];
        firsts.into_iter().flatten().any(|(end, _)| *end <= now.as_micros())
    }

    /// Returns a receipt that has expired and whose charge stays.
    pub(super) fn first_kept(&self, now: Time) -> Option<Receipt> {
        self.kept.first().filter(|(end, _)| *end <= now.as_micros()).map(|(_, receipt)| *receipt)
    }

    /// Returns the first moment by now at which receipts expire whose charges are returned, and
    /// these receipts.
    pub(super) fn first_cancelled(&self, now: Time) -> Option<(Time, Vec<Receipt>)> {
        let (first, _) = *self.cancelled.first().filter(|(end, _)| *end <= now.as_micros())?;
        let receipts = self.cancelled.iter().take_while(|(end, _)| *end == first);
        Some((Time::saturating_from_micros(first), receipts.map(|(_, receipt)| *receipt).collect()))
    }

    /// Returns the next moment at which a charge is returned.
    pub(super) fn next_return(&self) -> Option<Time> {
        self.cancelled.first().map(|(end, _)| Time::saturating_from_micros(*end))
    }
}
