//! What a limiter, or a [`MemoryStore`](crate::MemoryStore), does with a receipt that was kept:
//! settles or cancels it, charges more to it, or discards it.

use super::check_all::longest;
use super::error::VerbError;
use super::options::checked_ttl;
use crate::ids::{Receipt, Several};
use crate::key::Fingerprint;
use crate::seal::Seal;
use crate::store::{AllVerb, NotDecided, SlotKind, Store, StoreCall, decide_all};
use crate::wait::{Host, Queues};
use sluicegate_core::decision::store::StoreDecision as _;
use sluicegate_core::receipts::Receipt as Name;
use sluicegate_core::{Decision, Time};
use std::sync::Arc;
use std::time::Duration;

/// Where the keys of a receipt are.
pub(crate) struct HeldReceipts<'a, S: SlotKind> {
    pub(crate) store: &'a Store<S>,
    pub(crate) seal: &'a Seal,
    pub(crate) queues: &'a Arc<Queues>,
    pub(crate) host: &'a dyn Host,
    /// The tag of the limiter's limits; `None` if the limits of each key's latest call apply.
    pub(crate) limiter: Option<u16>,
}

/// The contents of a receipt of one call.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) key: Fingerprint,
    pub(super) name: Name,
}

/// The contents of a receipt of several calls.
pub(super) struct OpenOfSeveral {
    pub(super) name: Name,
    /// The key of each part.
    pub(super) keys: Vec<Fingerprint>,
    /// For each call the index of its part, if it has one.
    pub(super) calls: Vec<Option<u8>>,
}

/// What is used of a part, or charged to it.
struct PartNumber {
    key: Fingerprint,
    number: u64,
    /// The index of its first call.
    call: usize,
}

impl<S: SlotKind> HeldReceipts<'_, S> {
    /// Settles a receipt. Returns `true` if anything was returned, `None` if it is not open.
    ///
    /// # Errors
    /// If there is neither one number for all calls nor one for each. Then nothing changes.
    pub(crate) fn close(
        &self,
        receipt: &Receipt,
        used: &[u64],
        now: Time,
    ) -> Result<Option<bool>, VerbError> {
        let Some(several) = receipt.several() else {
            let [used] = used else { return Err(wrong_count(used, 1)) };
            // Only once: unsealing a receipt costs more than all the rest.
            let Open { key, name } = Open::unsealed(receipt, self.seal);
            let closed = self.store.close(key, self.limiter, now, (name, *used));
            self.queues.usage_changed(self.host, key);
            return Ok(closed);
        };
        let several = OpenOfSeveral::unsealed(several, self.seal);
        let parts = several.with_numbers(used)?;
        let numbers: Vec<(Fingerprint, u64)> = parts.iter().map(|part| (part.key, part.number)).collect();
        let closed = self.store.close_all(&numbers, self.limiter, now, several.name);
        self.usage_changed(&parts);
        Ok(closed)
    }

    /// Charges more to a receipt, and restarts its time to live.
    ///
    /// # Errors
    /// If the numbers do not fit, the TTL is out of bounds, the receipt is not open or not of
    /// memory, or too many are open. Then nothing changes.
    pub(crate) fn extend(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
        now: Time,
    ) -> Result<Decision, VerbError> {
        if !receipt.is_of_memory() {
            return Err(VerbError::BadReceipt);
        }
        let several = match receipt.several() {
            Some(several) => OpenOfSeveral::unsealed(several, self.seal),
            None => Open::unsealed(receipt, self.seal).into(),
        };
        let parts = several.with_numbers(costs)?;
        let ttl = ttl.map(checked_ttl).transpose()?;
        let store = self.store.as_any();
        let call =
            |part: &PartNumber| StoreCall { store, key: part.key, cost: part.number, index: part.call };
        let calls: Vec<StoreCall<'_>> = parts.iter().map(call).collect();
        // An extension does not overtake waiters either.
        let denial = |part: &PartNumber| self.queue_denial(part, now);
        let behind = longest(&parts.iter().map(denial).collect::<Vec<_>>());
        let verb = AllVerb::Extend { receipt: several.name, ttl, limiter: self.limiter };
        let decided = decide_all(&calls, now, behind, verb);
        // The charge may be returned sooner than before.
        self.usage_changed(&parts);
        decided.map_err(|error| match error {
            NotDecided::NotReserved(error) => error.into(),
            NotDecided::CannotCombine(_) => VerbError::NotOpen,
        })
    }

    /// Discards a receipt; its charge stays.
    pub(crate) fn discard(&self, receipt: &Receipt) {
        match receipt.several() {
            None => {
                let Open { key, name } = Open::unsealed(receipt, self.seal);
                self.store.discard_receipt(key, name);
            }
            Some(several) => {
                let OpenOfSeveral { name, keys, .. } = OpenOfSeveral::unsealed(several, self.seal);
                for key in keys {
                    self.store.discard_receipt(key, name);
                }
            }
        }
    }

    fn queue_denial(&self, part: &PartNumber, now: Time) -> Option<Decision> {
        if part.number == 0 || !self.queues.may_have_waiters(part.key) {
            return None;
        }
        Some(self.queues.denial(self.host, part.key, part.number, now)?.of_call(part.call))
    }

    fn usage_changed(&self, parts: &[PartNumber]) {
        for part in parts {
            self.queues.usage_changed(self.host, part.key);
        }
    }
}

impl Open {
    pub(super) fn sealed(self, seal: &Seal) -> Receipt {
        Receipt::of_memory(seal.seal([self.key.high, self.key.low, self.name.0]))
    }

    /// Unseals a receipt. A forged one yields values that no store knows.
    pub(super) fn unsealed(receipt: &Receipt, seal: &Seal) -> Open {
        let [high, low, name] = seal.unseal(receipt.sealed());
        Open { key: Fingerprint { high, low }, name: Name(name) }
    }
}

impl From<Open> for OpenOfSeveral {
    fn from(Open { key, name }: Open) -> OpenOfSeveral {
        OpenOfSeveral { name, keys: vec![key], calls: vec![Some(0)] }
    }
}

impl OpenOfSeveral {
    pub(super) fn sealed(self, seal: &Seal) -> Receipt {
        let mut words: Vec<u64> = self.keys.iter().flat_map(|key| [key.high, key.low]).collect();
        let name = seal.seal_all(self.name.0, &mut words, &self.calls);
        words.insert(0, name);
        Receipt::of_memory_of_several(Several { calls: self.calls, sealed: words })
    }

    /// Unseals a receipt. A forged one yields values that no store knows.
    fn unsealed(Several { calls, sealed }: &Several, seal: &Seal) -> OpenOfSeveral {
        let (&name, words) = sealed.split_first().unwrap_or((&0, &[]));
        let mut words = words.to_vec();
        let name = Name(seal.unseal_all(name, &mut words, calls));
        let keys = words.chunks_exact(2).map(|pair| Fingerprint { high: pair[0], low: pair[1] }).collect();
        OpenOfSeveral { name, keys, calls: calls.clone() }
    }

    /// The sum of the numbers of the calls on each key: one number for each call, or one that
    /// applies to all.
    fn with_numbers(&self, numbers: &[u64]) -> Result<Vec<PartNumber>, VerbError> {
        if numbers.len() != 1 && numbers.len() != self.calls.len() {
            return Err(wrong_count(numbers, self.calls.len()));
        }
        let part = |(index, key): (usize, &Fingerprint)| {
            let is_here = |part: Option<u8>| part.is_some_and(|part| usize::from(part) == index);
            let calls = || (0..).zip(&self.calls).filter(|(_, part)| is_here(**part)).map(|(call, _)| call);
            let number = |call: usize| numbers.get(call).or(numbers.first()).copied().unwrap_or(0);
            let sum = calls().map(number).fold(0, u64::saturating_add);
            PartNumber { key: *key, number: sum, call: calls().next().unwrap_or(0) }
        };
        Ok(self.keys.iter().enumerate().map(part).collect())
    }
}

fn wrong_count(numbers: &[u64], calls: usize) -> VerbError {
    VerbError::WrongCount { numbers: numbers.len(), calls }
}
