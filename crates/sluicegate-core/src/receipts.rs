//! The open reservations of one key: what each charged, so that it can be returned.
//!
//! The store passes the key's states and limits to each call; an [`crate::Account`] keeps both
//! together. A key that never reserves needs none of this.

mod lifetimes;

use crate::algorithm::{Algorithm, Verb};
use crate::all_of::{Part, attributed_to_part, peek_list, reserve_all};
use crate::decision::Decision;
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Charges, Rollback, Times};
use crate::time::{Exact, Span, Time};
use crate::verbs::{Unsupported, Verbs as _};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem;
use lifetimes::{Lifetime, Lifetimes};

/// Identifies one reservation of one key, for one cancel or settle. The store chooses the numbers,
/// and adds the scope and the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Receipt(pub u64);

/// The reservations of a key that were neither cancelled nor settled.
///
/// ```text
/// Blocks    The charges of receipts are kept in blocks, in the order in which they were made. In
///           that order stacks and heights never fall (unless the clock steps far back; then every
///           charge is visited). A return lowers heights from the newest down to those that lie
///           below it. A block that moves as a whole only notes by how much, so a return visits
///           few charges.
/// Lifetime  A receipt with a time to live, or with more charges than its reservation, has an
///           entry in `lifetimes` as well, which says in which blocks its charges are.
/// Expiry    Every call that may change the key closes the receipts that have expired, before all
///           else: [`Receipts::expire`].
/// ```
#[derive(Clone, Default, Debug)]
pub struct Receipts {
    /// When each limit's state is last known to have changed. Only rollbacks need it.
    latest: Vec<Time>,
    blocks: Vec<Block>,
    /// Whether a height or a stack has fallen.
    unsorted: bool,
    /// The id of the next block.
    next_block: u64,
    /// `None` unless a receipt needs it.
    lifetimes: Option<Box<Lifetimes>>,
}

/// The most receipts of a block.
const BLOCK_MAX: usize = if cfg!(test) { 4 } else { 128 };

/// How many charges a search for worthless receipts visits.
const VISITED_MAX: usize = 64;

/// Reservations that are neither cancelled nor settled. A block is never empty.
#[derive(Clone, Debug)]
struct Block {
    /// Rises from block to block. When two blocks become one, it keeps the smaller id: so a charge
    /// is in the last block whose id is at most that of the block it was put in.
    id: u64,
    /// One per charge.
    open: Vec<OpenReceipt>,
    /// One per limit.
    lanes: Vec<Lane>,
}

impl Block {
    /// Returns the cost of the charge at an index.
    fn cost_at(&self, at: usize) -> u64 {
        let charges: Vec<Charge> =
            self.lanes.iter().filter_map(|lane| lane.charges.get(at).copied()).collect();
        cost_of(&charges)
    }

    /// Drops the receipts that are void under every limit, and calls `dropped` for each of their
    /// charges. All charges are written.
    fn drop_void(&mut self, mut dropped: impl FnMut(Receipt)) {
        let Block { open, lanes, .. } = self;
        let mut kept = vec![false; open.len()];
        for lane in &*lanes {
            kept.iter_mut().zip(&lane.charges).for_each(|(kept, charge)| *kept |= *charge != Charge::VOID);
        }
        if kept.contains(&false) {
            let mut each = kept.iter();
            open.retain(|open| {
                let kept = each.next() == Some(&true);
                if !kept {
                    dropped(open.receipt);
                }
                kept
            });
            for lane in lanes {
                let mut each = kept.iter();
                lane.charges.retain(|_| each.next() == Some(&true));
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct OpenReceipt {
    receipt: Receipt,
    made: Time,
}

/// The charges of a block under one limit.
#[derive(Clone, Debug)]
struct Lane {
    /// One per receipt.
    charges: Vec<Charge>,
    /// By how much all of them have moved down since they were written.
    moved: Option<Rollback>,
}

impl Lane {
    /// A charge of the lane as it is now, from how it was written.
    fn current<A: Algorithm>(&self, limit: &A, mut charge: Charge) -> Charge {
        if let Some(moved) = &self.moved {
            limit.shift_down(moved, &mut charge);
        }
        charge
    }

    /// Writes by how much the charges have moved down.
    fn write<A: Algorithm>(&mut self, limit: &A) {
        if let Some(moved) = self.moved.take() {
            self.charges.iter_mut().for_each(|charge| limit.shift_down(&moved, charge));
        }
    }

    /// Lowers the charges, whose heights rise, from the newest on. Returns `false` if all older
    /// ones stay.
    fn lower<A: Algorithm>(
        &mut self,
        limit: &A,
        stack: Option<u64>,
        sorted: bool,
        lower: &impl Fn(&mut Charge),
    ) -> bool {
        let (Some(oldest), Some(newest)) = (self.charges.first().copied(), self.charges.last().copied())
        else {
            return true;
        };
        if sorted && stack.is_some_and(|stack| oldest.stack > stack) {
            return true;
        }
        if sorted && oldest.stack == newest.stack {
            let (first, last) = (self.current(limit, oldest), self.current(limit, newest));
            let (mut first_lowered, mut last_lowered) = (first, last);
            lower(&mut first_lowered);
            lower(&mut last_lowered);
            if last_lowered == last {
                return last.height == Exact::ZERO;
            }
            let move_down = |from: &Charge| Rollback {
                stack: from.stack,
                top: from.height,
                bottom: first_lowered.height,
            };
            let mut last_moved = last;
            limit.shift_down(&move_down(&first), &mut last_moved);
            if first_lowered != first && last_moved == last_lowered {
                self.moved = Some(move_down(&oldest));
                return true;
            }
        }
        self.write(limit);
        for charge in self.charges.iter_mut().rev() {
            if sorted && stack.is_some_and(|stack| charge.stack < stack) {
                return false;
            }
            if stack.is_some_and(|stack| charge.stack != stack) {
                continue;
            }
            let before = charge.height;
            lower(charge);
            // After a refund that removed newer entries of a log, these are at 0 already.
            if sorted && charge.height == before && before > Exact::ZERO {
                return false;
            }
        }
        true
    }
}

impl Receipts {
    /// Notes that the key was charged outside a reservation.
    pub fn charged(&mut self, now: Time) {
        self.latest.iter_mut().for_each(|latest| *latest = now.max(*latest));
    }

    /// Returns `cost` to the key under every limit, as far as each allows, and returns the decision
    /// for cost 0.
    ///
    /// # Errors
    /// If one of the limits does not support this verb; then nothing is returned under any of them.
    pub fn refund<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        cost: u64,
    ) -> Result<Decision, Unsupported> {
        limits.iter().try_for_each(|limit| limit.require(Verb::Refund))?;
        self.fit(limits);
        for (position, ((limit, state), latest)) in
            limits.iter().zip(&mut *states).zip(&mut self.latest).enumerate()
        {
            if limit.refund(state, now, cost) {
                *latest = now.max(*latest);
                Self::lower(&mut self.blocks, !self.unsorted, (position, limit), None, |charge| {
                    limit.cap_height(state, charge);
                });
            }
        }
        Ok(peek_list(limits, states, now, 0))
    }

    /// Charges a reservation now, if the caller can act within the maximum wait, after the
    /// decision's delay. Buckets may borrow. The receipt is open if the reservation is allowed.
    /// Returns the cost that was granted as well, 0 if denied.
    ///
    /// # Errors
    /// If one of the limits does not support this verb.
    pub fn reserve<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        ReserveCall { mut cost, receipt, terms }: ReserveCall,
    ) -> Result<(Decision, u64), Unsupported> {
        let ReserveTerms { max_wait, at_least, ttl } = terms;
        let verb = if at_least.is_some() { Verb::ReserveAtLeast } else { Verb::Reserve };
        limits.iter().try_for_each(|limit| limit.require(verb))?;
        self.fit(limits);
        if let Some(at_least) = at_least {
            cost = cost.min(peek_list(limits, states, now, 0).remaining());
            if cost < at_least {
                return Ok((peek_list(limits, states, now, at_least), 0));
            }
        }
        let mut parts: Vec<Part<'_, A>> =
            limits.iter().zip(states).map(|(limit, state)| Part { limit, state, cost }).collect();
        let (decision, charges) = reserve_all(&mut parts, now, max_wait);
        let Some(charges) = charges else { return Ok((decision, 0)) };
        self.open(limits, now, receipt, &charges, ttl);
        Ok((decision, cost))
    }

    /// Opens the receipt of a reservation that was just charged.
    pub fn open<A: Algorithm>(
        &mut self,
        limits: &[A],
        now: Time,
        receipt: Receipt,
        charges: &[Charge],
        ttl: Option<Ttl>,
    ) {
        let cost = cost_of(charges);
        if cost > 0 {
            self.charged(now);
        }
        let block = self.push(limits, OpenReceipt { receipt, made: now }, charges);
        if ttl.is_some() {
            let lifetime = Lifetime { since: now, ttl, cost, first: block, extensions: Vec::new() };
            self.lifetimes.get_or_insert_default().insert(receipt, lifetime);
        }
    }

    /// Charges more to an open receipt, like a reservation that accepts no delay. Only the limits
    /// that still have their part of the reservation decide and are charged. If that is allowed,
    /// the time to live starts again: with the length `ttl`, if one is given. Returns `None` if the
    /// receipt is not open.
    pub fn extend<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
        (cost, ttl): (u64, Option<Span>),
    ) -> Option<Decision> {
        let has_part = self.charged_under(receipt)?;
        self.fit(limits);
        let positions: Vec<usize> = (0..limits.len()).filter(|at| has_part.get(*at) == Some(&true)).collect();
        let both = limits.iter().zip(states).enumerate().filter(|(at, _)| positions.contains(at));
        let mut parts: Vec<Part<'_, A>> =
            both.map(|(_, (limit, state))| Part { limit, state, cost }).collect();
        let (decision, charges) = reserve_all(&mut parts, now, Span::ZERO);
        if let Some(charges) = charges {
            self.extended(limits, now, receipt, &charges, ttl);
            return Some(decision);
        }
        Some(attributed_to_part(decision, positions.into_iter().map(|position| (0, position))))
    }

    /// Returns, for each limit, whether it still has its part of a reservation. `None` if the
    /// receipt is not open. Limits after the last returned one have no part.
    pub fn charged_under(&self, receipt: Receipt) -> Option<Vec<bool>> {
        let (block, at) = self.find(receipt)?;
        let lanes = &self.blocks.get(block)?.lanes;
        Some(
            lanes
                .iter()
                .map(|lane| lane.charges.get(at).is_some_and(|charge| *charge != Charge::VOID))
                .collect(),
        )
    }

    /// Adds charges that were just made to an open receipt, one for each limit that has its part of
    /// the reservation, and restarts its time to live.
    pub fn extended<A: Algorithm>(
        &mut self,
        limits: &[A],
        now: Time,
        receipt: Receipt,
        charges: &[Charge],
        ttl: Option<Span>,
    ) {
        let (Some((block, at)), Some(has_part)) = (self.find(receipt), self.charged_under(receipt)) else {
            return;
        };
        let known = self.lifetimes.as_mut().and_then(|lifetimes| lifetimes.remove(receipt));
        let mut lifetime = known.unwrap_or_else(|| {
            let (first, cost) = self.blocks.get(block).map_or((0, 0), |block| (block.id, block.cost_at(at)));
            Lifetime { since: now, ttl: None, cost, first, extensions: Vec::new() }
        });
        let cost = cost_of(charges);
        if cost > 0 {
            let mut charges = charges.iter().copied();
            let of_limit = |at: usize| match has_part.get(at) {
                Some(true) => charges.next().unwrap_or(Charge::VOID),
                _ => Charge::VOID,
            };
            let all: Vec<Charge> = (0..limits.len()).map(of_limit).collect();
            for (latest, _) in self.latest.iter_mut().zip(&has_part).filter(|(_, has_part)| **has_part) {
                *latest = now.max(*latest);
            }
            lifetime.extensions.push(self.push(limits, OpenReceipt { receipt, made: now }, &all));
            lifetime.cost = lifetime.cost.saturating_add(cost);
        }
        lifetime.restart(now, ttl);
        self.lifetimes.get_or_insert_default().insert(receipt, lifetime);
    }

    /// Closes the receipts whose time to live has ended. The charge of one with [`Then::Cancel`] is
    /// returned as by a cancel at that moment: in the order of these moments, and at one moment the
    /// newest reservation first. Returns `true` if anything was returned.
    pub fn expire<A: Algorithm>(&mut self, limits: &[A], states: &mut [A::State], now: Time) -> bool {
        // A receipt whose charge stays changes no state, so its turn does not matter.
        while let Some(receipt) = self.lifetimes.as_ref().and_then(|all| all.first_kept(now)) {
            self.discard(limits, receipt);
        }
        let mut returned = false;
        while let Some((end, mut receipts)) = self.lifetimes.as_ref().and_then(|all| all.first_cancelled(now))
        {
            if receipts.len() > 1 {
                receipts.sort_by_cached_key(|receipt| Reverse(self.find(*receipt)));
            }
            for receipt in receipts {
                returned |= self.cancel(limits, states, end, receipt);
            }
        }
        returned
    }

    /// Returns `true` if a receipt has expired, so that [`Receipts::expire`] would close it.
    pub fn has_expired(&self, now: Time) -> bool {
        self.lifetimes.as_ref().is_some_and(|lifetimes| lifetimes.has_ended(now))
    }

    /// Returns the next moment at which a charge is returned because its receipt expires.
    pub fn next_return(&self) -> Option<Time> {
        self.lifetimes.as_ref()?.next_return()
    }

    /// Cancels a reservation: the part of its cost that still counts is returned to the key.
    /// Returns `false` if there was no such part, or the receipt is used or unknown.
    pub fn cancel<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
    ) -> bool {
        self.close(limits, states, now, receipt, 0) == Some(true)
    }

    /// Corrects a reservation to what was actually used: the rest is returned as by a cancel, an
    /// excess becomes debt. Returns `false` if the receipt is used or unknown.
    pub fn settle<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
        used: u64,
    ) -> bool {
        self.close(limits, states, now, receipt, used).is_some()
    }

    /// Corrects a reservation and its extensions to what was used. Returns `true` if anything was
    /// returned, `None` if the receipt is not open.
    ///
    /// What is returned comes from the newest charge first. Each accounts for its full cost: what
    /// of it does not count any more is not returned from an older one instead.
    pub fn close<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        receipt: Receipt,
        used: u64,
    ) -> Option<bool> {
        let Some(lifetime) = self.take_lifetime(receipt) else {
            let (block, at) = self.find(receipt)?;
            let charges = self.remove(limits, block, at);
            return Some(self.settle_charges(limits, states, now, &charges, used, &mut []));
        };
        let (mut unused, mut returned) = (lifetime.cost.saturating_sub(used), false);
        let mut excess = used.saturating_sub(lifetime.cost);
        for block in lifetime.blocks() {
            let Some((block, at)) = self.newest_in(block, receipt) else { continue };
            let charges = self.remove(limits, block, at);
            let cost = cost_of(&charges);
            let share = unused.min(cost);
            unused -= share;
            let used = cost - share + mem::take(&mut excess);
            returned |= self.settle_charges(limits, states, now, &charges, used, &mut []);
        }
        Some(returned)
    }

    fn take_lifetime(&mut self, receipt: Receipt) -> Option<Lifetime> {
        let lifetimes = self.lifetimes.as_mut()?;
        let lifetime = lifetimes.remove(receipt);
        if lifetimes.is_empty() {
            self.lifetimes = None;
        }
        lifetime
    }

    /// Settles charges that are kept elsewhere, as are those of `others`: the charges of dequeued
    /// waiters that have not been woken yet. Returns `true` if anything was returned.
    pub fn settle_charges<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &mut [A::State],
        now: Time,
        charges: &[Charge],
        used: u64,
        others: &mut [Charges],
    ) -> bool {
        let mut returned = false;
        for (position, (((limit, state), latest), charge)) in
            limits.iter().zip(states).zip(&mut self.latest).zip(charges).enumerate()
        {
            let rollback = limit.settle_charge(state, Times { now, latest: *latest }, charge, used);
            if rollback.is_some() || used > charge.cost() {
                *latest = now.max(*latest);
            }
            let Some(rollback) = rollback else { continue };
            returned = true;
            let stack = Some(rollback.stack);
            Self::lower(&mut self.blocks, !self.unsorted, (position, limit), stack, |charge| {
                limit.shift_down(&rollback, charge);
            });
            for charge in others.iter_mut().filter_map(|charges| charges.each_mut().get_mut(position)) {
                limit.shift_down(&rollback, charge);
            }
        }
        returned
    }

    /// Converts the key's states and open receipts to other limits, each from the limit at the same
    /// position, as `adopt` converts a state ([`Algorithm::adopt`], or a variant of it). There is
    /// one state per old limit. `latest` is the latest time known besides that of the receipts.
    ///
    /// A receipt keeps its charges under the limits that keep their states. Without any it is void.
    pub fn adopt<A: Algorithm>(
        &mut self,
        (limits, old): (&[A], &[A]),
        states: &mut [A::State],
        Times { now, latest }: Times,
        adopt: impl Fn(&A, &A, &mut A::State, Times) -> Adopted,
    ) {
        for (position, ((limit, old), state)) in limits.iter().zip(old).zip(states).enumerate() {
            let times = Times { now, latest: latest.max(self.latest(position)) };
            let adopted = adopt(limit, old, state, times);
            if let Some(latest) = self.latest.get_mut(position) {
                match adopted {
                    Adopted::Fresh => *latest = Time::EPOCH,
                    Adopted::Rescaled(_) => *latest = now.max(*latest),
                    Adopted::Kept | Adopted::Unseen => {}
                }
            }
            // No conversion changes the order of heights.
            for lane in self.blocks.iter_mut().filter_map(|block| block.lanes.get_mut(position)) {
                lane.write(old);
                lane.charges.iter_mut().for_each(|charge| adopted.convert(charge));
            }
        }
        let kept = limits.len().min(old.len());
        self.latest.truncate(kept);
        let mut dropped = Vec::new();
        self.blocks.retain_mut(|block| {
            block.lanes.truncate(kept);
            block.drop_void(|receipt| dropped.push(receipt));
            !block.open.is_empty()
        });
        // All charges of a receipt are void under the same limits.
        for receipt in dropped {
            self.take_lifetime(receipt);
        }
    }

    /// Returns when the state of the limit at a position is last known to have changed.
    pub fn latest(&self, position: usize) -> Time {
        self.latest.get(position).copied().unwrap_or(Time::EPOCH)
    }

    /// Returns the number of open receipts and of their extensions. Each receipt is kept until it
    /// is cancelled, settled or expires.
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.open.len()).sum()
    }

    /// Returns `true` if this receipt was not closed yet. It may have expired: see
    /// [`Receipts::expire`].
    pub fn is_open(&self, receipt: Receipt) -> bool {
        self.find(receipt).is_some()
    }

    /// Returns `true` if no receipt is open.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Discards a receipt; its cost stays charged. Returns `true` if it was open.
    pub fn discard<A: Algorithm>(&mut self, limits: &[A], receipt: Receipt) -> bool {
        let Some(lifetime) = self.take_lifetime(receipt) else {
            let found = self.find(receipt);
            if let Some((block, at)) = found {
                self.remove(limits, block, at);
            }
            return found.is_some();
        };
        for block in lifetime.blocks() {
            if let Some((block, at)) = self.newest_in(block, receipt) {
                self.remove(limits, block, at);
            }
        }
        true
    }

    /// Discards the oldest receipts, until they were at least this many, extensions included. Their
    /// costs stay charged.
    pub fn discard_oldest<A: Algorithm>(&mut self, limits: &[A], most: usize) {
        let left = self.len().saturating_sub(most);
        while self.len() > left
            && let Some(oldest) = self.blocks.first().and_then(|block| block.open.first())
        {
            self.discard(limits, oldest.receipt);
        }
    }

    /// Expires the receipts of reservations made before a time, so that abandoned ones do not
    /// accumulate. Those with a time to live stay.
    pub fn expire_made_before<A: Algorithm>(&mut self, limits: &[A], time: Time) {
        let all = self.blocks.iter().flat_map(|block| &block.open);
        let made_before = all.take_while(|open| open.made < time);
        let ended = made_before.filter(|open| {
            self.lifetime(open.receipt).is_none_or(|lifetime| lifetime.ttl.is_none() && lifetime.since < time)
        });
        for receipt in ended.map(|open| open.receipt).collect::<Vec<_>>() {
            self.discard(limits, receipt);
        }
    }

    /// Expires receipts whose cost no longer counts: a cancel would return nothing. Those of
    /// reservations made before a time, without a time to live of their own; or, without a time,
    /// all. Begins with the oldest, ends with the first that stays, and visits a bounded number of
    /// charges.
    pub fn expire_worthless<A: Algorithm>(
        &mut self,
        limits: &[A],
        states: &[A::State],
        now: Time,
        made_before: Option<Time>,
    ) {
        let (mut block, mut at) = (0, 0);
        for _ in 0..VISITED_MAX {
            let Some(open) = self.blocks.get(block).map(|block| block.open.get(at)) else { return };
            let Some(&OpenReceipt { receipt, made }) = open else {
                (block, at) = (block + 1, 0);
                continue;
            };
            let lifetime = self.lifetime(receipt);
            let has_time = made_before.is_some_and(|time| match lifetime {
                Some(lifetime) => lifetime.ttl.is_some() || lifetime.since >= time,
                None => made >= time,
            });
            match lifetime {
                // An extension, or a receipt that was extended: those behind it may be older.
                Some(_) if has_time => at += 1,
                None if has_time => return,
                _ if self.counts(limits, states, now, receipt) => return,
                _ => {
                    // The next one has taken its position, or that after the last of the block.
                    self.discard(limits, receipt);
                }
            }
        }
    }

    /// Returns `true` if a part of a receipt's charges still counts.
    fn counts<A: Algorithm>(&self, limits: &[A], states: &[A::State], now: Time, receipt: Receipt) -> bool {
        let charge_counts = |block: &Block, at: usize| {
            let mut charges = limits.iter().zip(states).zip(&self.latest).zip(&block.lanes);
            charges.any(|(((limit, state), latest), lane)| {
                let charge = lane.charges.get(at).map(|charge| lane.current(limit, *charge));
                charge.is_some_and(|charge| limit.counts(state, Times { now, latest: *latest }, &charge))
            })
        };
        let mut blocks: Vec<usize> = match self.lifetime(receipt) {
            None => self.find(receipt).map(|(block, _)| block).into_iter().collect(),
            Some(lifetime) => lifetime.blocks().filter_map(|id| self.block_of(id)).collect(),
        };
        blocks.dedup();
        blocks.into_iter().filter_map(|index| self.blocks.get(index)).any(|block| {
            let mut charges = block.open.iter().enumerate().filter(|(_, open)| open.receipt == receipt);
            charges.any(|(at, _)| charge_counts(block, at))
        })
    }

    /// Returns when the oldest open reservation was made.
    pub fn oldest(&self) -> Option<Time> {
        self.blocks.first()?.open.first().map(|open| open.made)
    }

    fn lifetime(&self, receipt: Receipt) -> Option<&Lifetime> {
        self.lifetimes.as_ref()?.get(receipt)
    }

    /// Returns the position of a reservation's charge: a block, and the index there.
    fn find(&self, receipt: Receipt) -> Option<(usize, usize)> {
        let at = |block: &Block| block.open.iter().position(|open| open.receipt == receipt);
        if let Some(lifetime) = self.lifetime(receipt) {
            let index = self.block_of(lifetime.first)?;
            return Some((index, at(self.blocks.get(index)?)?));
        }
        self.blocks.iter().enumerate().find_map(|(index, block)| Some((index, at(block)?)))
    }

    /// Returns the position of a receipt's newest charge of those that were put in a block.
    fn newest_in(&self, block: u64, receipt: Receipt) -> Option<(usize, usize)> {
        let index = self.block_of(block)?;
        Some((index, self.blocks.get(index)?.open.iter().rposition(|open| open.receipt == receipt)?))
    }

    /// Returns the index of the block in which the charges are that were put in the block of an id.
    fn block_of(&self, id: u64) -> Option<usize> {
        self.blocks.partition_point(|block| block.id <= id).checked_sub(1)
    }

    /// Adds charges, and returns the id of their block.
    fn push<A: Algorithm>(&mut self, limits: &[A], open: OpenReceipt, charges: &[Charge]) -> u64 {
        if let Some(last) = self.blocks.last() {
            let fell = |((limit, lane), charge): ((&A, &Lane), &Charge)| {
                let before = lane.charges.last().map(|before| lane.current(limit, *before));
                before.is_some_and(|before| (charge.stack, charge.height) < (before.stack, before.height))
            };
            self.unsorted |= limits.iter().zip(&last.lanes).zip(charges).any(fell);
        } else {
            self.unsorted = false;
        }
        let is_full = |block: &Block| block.open.len() == BLOCK_MAX || block.lanes.len() != charges.len();
        if self.blocks.last().is_none_or(is_full) {
            let lanes = charges.iter().map(|_| Lane { charges: Vec::new(), moved: None }).collect();
            self.blocks.push(Block { id: self.next_block, open: Vec::new(), lanes });
            self.next_block += 1;
        }
        let Some(block) = self.blocks.last_mut() else { return self.next_block };
        block.open.push(open);
        for ((limit, lane), charge) in limits.iter().zip(&mut block.lanes).zip(charges) {
            lane.write(limit);
            lane.charges.push(*charge);
        }
        block.id
    }

    /// Removes a receipt, and returns its charges. Those of others stay as they are.
    fn remove<A: Algorithm>(&mut self, limits: &[A], index: usize, at: usize) -> Vec<Charge> {
        let Some(block) = self.blocks.get_mut(index) else { return Vec::new() };
        block.open.remove(at);
        let take = |(limit, lane): (&A, &mut Lane)| {
            let charge = lane.charges.remove(at);
            lane.current(limit, charge)
        };
        let charges = limits.iter().zip(&mut block.lanes).map(take).collect();
        let (open, lanes) = (block.open.len(), block.lanes.len());
        // Blocks from before a limit was added have fewer lanes.
        let next = self.blocks.get(index + 1).filter(|next| next.lanes.len() == lanes);
        let of_next = next.map_or(BLOCK_MAX, |next| next.open.len());
        if open == 0 {
            self.blocks.remove(index);
        } else if open + of_next <= BLOCK_MAX / 2 {
            let next = self.blocks.remove(index + 1);
            let Some(block) = self.blocks.get_mut(index) else { return charges };
            block.open.extend(next.open);
            for ((limit, lane), mut next) in limits.iter().zip(&mut block.lanes).zip(next.lanes) {
                lane.write(limit);
                next.write(limit);
                lane.charges.append(&mut next.charges);
            }
        }
        charges
    }

    /// Lowers the charges under the limit at a position, of one stack or of all.
    fn lower<A: Algorithm>(
        blocks: &mut [Block],
        sorted: bool,
        (position, limit): (usize, &A),
        stack: Option<u64>,
        lower: impl Fn(&mut Charge),
    ) {
        for lane in blocks.iter_mut().rev().filter_map(|block| block.lanes.get_mut(position)) {
            if !lane.lower(limit, stack, sorted, &lower) && sorted {
                return;
            }
        }
    }

    /// Tracks from now on when the state of each of these limits changes.
    pub fn fit<A>(&mut self, limits: &[A]) {
        self.latest.resize(limits.len(), Time::EPOCH);
    }
}

/// A reservation's own time to live, and what happens to its charge then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Ttl {
    /// How long the receipt is open, from the time of the call.
    pub length: Span,
    /// What happens to the charge when the receipt expires.
    pub then: Then,
}

impl Ttl {
    /// The charge stays when the receipt expires.
    pub fn keep(length: impl Into<Span>) -> Ttl {
        Ttl { length: length.into(), then: Then::Keep }
    }

    /// The charge is returned when the receipt expires.
    pub fn cancel(length: impl Into<Span>) -> Ttl {
        Ttl { length: length.into(), then: Then::Cancel }
    }
}

/// What happens to a charge when its receipt expires. Exhaustive: there is nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Then {
    /// It stays.
    #[default]
    Keep,
    /// It is returned as by a cancel at that moment, however late it is noticed: no later call
    /// sees it charged.
    Cancel,
}

/// A call that reserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveCall {
    /// The cost.
    pub cost: u64,
    /// The receipt, which no other open reservation of this key has.
    pub receipt: Receipt,
    /// What the call accepts and asks for.
    pub terms: ReserveTerms,
}

/// What a reservation accepts and asks for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReserveTerms {
    /// The longest delay that the caller accepts.
    pub max_wait: Span,
    /// The least that is worth granting, from 1 to the cost: as much as remains is reserved. `None`
    /// for the whole cost.
    pub at_least: Option<u64>,
    /// The receipt's own time to live.
    pub ttl: Option<Ttl>,
}

impl From<Span> for ReserveTerms {
    fn from(max_wait: Span) -> ReserveTerms {
        ReserveTerms { max_wait, ..ReserveTerms::default() }
    }
}

/// Returns the cost of a charge. It is the same under all limits that have a part of it.
fn cost_of(charges: &[Charge]) -> u64 {
    charges.iter().filter(|charge| **charge != Charge::VOID).map(Charge::cost).max().unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::as_conversions, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::bounds::Rate;
    use crate::sliding_log::SlidingLog;
    use crate::sliding_window::SlidingWindow;
    use crate::token_bucket::TokenBucket;

    fn call(number: u64, cost: u64, max_wait: Span) -> ReserveCall {
        ReserveCall { cost, receipt: Receipt(number), terms: max_wait.into() }
    }

    /// Compared with a list of charges that every return visits, on random calls and changes
    /// between two limits.
    fn behaves_as_a_list<A: Algorithm<State: PartialEq + core::fmt::Debug>>(limit: &A, other: &A) {
        for seed in 0..300_u64 {
            let mut random = seed * 7_919 + 1;
            let mut below = |end: u64| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % end
            };
            let (mut limit, mut other) = (limit, other);
            let (mut state, mut receipts) = ([A::State::default()], Receipts::default());
            let (mut expected_state, mut expected) = (A::State::default(), Vec::<(Receipt, Charge)>::new());
            let (mut latest, mut now) = (Time::EPOCH, Time::saturating_from_micros(1_000_000_000));
            for step in 0..200 {
                now = now.saturating_add(Span::from_micros(below(3) * below(2_000_000)));
                let cost = 1 + below(4);
                if below(20) == 0 {
                    let times = Times { now, latest };
                    let pair = (core::slice::from_ref(other), core::slice::from_ref(limit));
                    receipts.fit(pair.1);
                    receipts.adopt(pair, &mut state, times, A::adopt);
                    let adopted = other.adopt(limit, &mut expected_state, times);
                    for (_, charge) in &mut expected {
                        adopted.convert(charge);
                    }
                    if let Adopted::Rescaled(_) = adopted {
                        latest = now.max(latest);
                    }
                    (limit, other) = (other, limit);
                }
                let limits = core::slice::from_ref(limit);
                match below(if step < 100 { 6 } else { 12 }) {
                    0..3 => {
                        let receipt = Receipt(step);
                        let max_wait = Span::from_micros(below(9_000_000));
                        let call = call(step, cost, max_wait);
                        let _ = receipts.reserve(limits, &mut state, now, call).unwrap();
                        let mut parts = [Part { limit, state: &mut expected_state, cost }];
                        if let Some(charges) = reserve_all(&mut parts, now, max_wait).1 {
                            latest = now.max(latest);
                            expected.push((receipt, charges[0]));
                        }
                    }
                    3 => {
                        let charged = limit.admits(&state[0], now, cost, limit.remaining(&state[0], now));
                        if charged {
                            limit.charge(&mut state[0], now, cost);
                            limit.charge(&mut expected_state, now, cost);
                            receipts.charged(now);
                            latest = now.max(latest);
                        }
                    }
                    4 => {
                        let _ = receipts.refund(limits, &mut state, now, cost).unwrap();
                        if limit.refund(&mut expected_state, now, cost) {
                            latest = now.max(latest);
                            for (_, charge) in &mut expected {
                                limit.cap_height(&expected_state, charge);
                            }
                        }
                    }
                    _ if !expected.is_empty() => {
                        let at = usize::try_from(below(expected.len() as u64)).unwrap();
                        let (receipt, charge) = expected.remove(at);
                        assert!(receipts.settle(limits, &mut state, now, receipt, cost - 1));
                        let times = Times { now, latest };
                        let rollback = limit.settle_charge(&mut expected_state, times, &charge, cost - 1);
                        if rollback.is_some() || cost - 1 > charge.cost() {
                            latest = now.max(latest);
                        }
                        for (_, charge) in expected.iter_mut().filter(|_| rollback.is_some()) {
                            limit.shift_down(&rollback.unwrap(), charge);
                        }
                    }
                    _ => {}
                }
                assert_eq!(state[0], expected_state, "seed {seed}, step {step}");
                assert_eq!(receipts.len(), expected.len());
            }
        }
    }

    #[test]
    fn blocks_behave_as_a_list() {
        let rate = |count, seconds: u64| Rate::new(count, Span::from_micros(seconds * 1_000_000)).unwrap();
        let bucket = |rate, burst| TokenBucket::new(rate, burst).unwrap();
        behaves_as_a_list(&bucket(rate(7, 3), 40), &bucket(rate(2, 3), 30));
        let log = |rate| SlidingLog::new(rate).unwrap();
        behaves_as_a_list(&log(rate(40, 30)), &log(rate(50, 20)));
        let window = |rate| SlidingWindow::new(rate).unwrap();
        behaves_as_a_list(&window(rate(60, 40)), &window(rate(50, 40)));
    }

    #[test]
    fn receipts_from_before_a_limit_was_added_have_no_charge_under_it() {
        let bucket =
            |burst| TokenBucket::new(Rate::new(1, Span::from_micros(1_000_000)).unwrap(), burst).unwrap();
        let (one, two) = ([bucket(100)], [bucket(100), bucket(50)]);
        let now = Time::saturating_from_micros(1_000_000_000);
        let times = Times { now, latest: now };
        let call = |number| call(number, 1, Span::ZERO);
        let (mut states, mut receipts) = (Vec::from([crate::cell::Cell::UNSEEN]), Receipts::default());
        for number in 0..10 {
            assert!(receipts.reserve(&one, &mut states, now, call(number)).unwrap().0.allowed());
        }
        receipts.adopt((&two, &one), &mut states, times, TokenBucket::adopt);
        states.push(crate::cell::Cell::UNSEEN);
        for number in 10..20 {
            assert!(receipts.reserve(&two, &mut states, now, call(number)).unwrap().0.allowed());
        }
        for number in [9, 10, 0, 19, 8, 11, 1, 12, 7, 13, 2, 14] {
            assert!(receipts.cancel(&two, &mut states, now, Receipt(number)));
        }
        assert_eq!(two[0].remaining(&states[0], now), 92);
        assert_eq!(two[1].remaining(&states[1], now), 46);
        receipts.adopt((&one, &two), &mut states, times, TokenBucket::adopt);
        states.pop();
        for number in [3, 15, 4, 16, 5, 17, 6, 18] {
            assert!(receipts.cancel(&one, &mut states, now, Receipt(number)));
        }
        assert!(receipts.is_empty() && one[0].remaining(&states[0], now) == 100);
    }

    #[test]
    fn many_receipts_of_one_key_stay_cheap() {
        let limits =
            [TokenBucket::new(Rate::new(1, Span::from_micros(1_000_000)).unwrap(), 1_000_000).unwrap()];
        let (mut states, mut receipts) = ([crate::cell::Cell::UNSEEN], Receipts::default());
        let now = Time::saturating_from_micros(1_000_000_000);
        for number in 0..16_384 {
            let call = call(number, 1, Span::ZERO);
            assert!(receipts.reserve(&limits, &mut states, now, call).unwrap().0.allowed());
        }
        assert!(receipts.blocks.len() <= 16_384 / BLOCK_MAX);
        // From both ends and from the middle.
        for number in (0..16_384_u64).map(|number| number * 5_003 % 16_384) {
            assert!(receipts.cancel(&limits, &mut states, now, Receipt(number)));
        }
        assert!(receipts.is_empty() && limits[0].remaining(&states[0], now) == 1_000_000);
    }

    fn bucket(burst: u64) -> [TokenBucket; 1] {
        [TokenBucket::new(Rate::new(1, Span::from_micros(60_000_000)).unwrap(), burst).unwrap()]
    }

    fn with_ttl(number: u64, ttl: Ttl) -> ReserveCall {
        let terms = ReserveTerms { ttl: Some(ttl), ..ReserveTerms::default() };
        ReserveCall { cost: 1, receipt: Receipt(number), terms }
    }

    const START: Time = Time::saturating_from_micros(1_000_000_000);

    fn after(micros: u64) -> Time {
        START.saturating_add(Span::from_micros(micros))
    }

    /// Reserves one after another at the times and for the lengths that are given.
    fn reserved(
        limits: &[TokenBucket],
        states: &mut [crate::cell::Cell],
        number: u64,
        at_and_length: impl Fn(u64) -> (u64, u64),
    ) -> Receipts {
        let mut receipts = Receipts::default();
        for number in 0..number {
            let (at, length) = at_and_length(number);
            let call = with_ttl(number, Ttl::cancel(Span::from_micros(length)));
            assert!(receipts.reserve(limits, states, after(at), call).unwrap().0.allowed());
        }
        receipts
    }

    #[test]
    fn many_receipts_that_expire_together_are_all_returned() {
        let limits = bucket(1_000_000);
        // At one moment; each at its own, the oldest first; and the newest first.
        let orders: [fn(u64) -> (u64, u64); 3] =
            [|_| (0, 20_000), |number| (0, 3_616 + number), |number| (0, 20_000 - number)];
        for order in orders {
            let mut states = [crate::cell::Cell::UNSEEN];
            let mut receipts = reserved(&limits, &mut states, 16_384, order);
            assert_eq!(receipts.len(), 16_384);
            assert!(!receipts.has_expired(after(3_615)) && receipts.has_expired(after(20_000)));
            assert!(receipts.expire(&limits, &mut states, after(20_000)));
            assert!(receipts.is_empty() && receipts.lifetimes.is_none());
            assert_eq!(limits[0].remaining(&states[0], after(20_000)), 1_000_000);
        }
    }

    /// Blocks become one while receipts expire, and a charge is found in whichever it is by then.
    #[test]
    fn charges_are_found_in_blocks_that_became_one() {
        let limits = bucket(1_000);
        let mut states = [crate::cell::Cell::UNSEEN];
        let mut receipts = reserved(&limits, &mut states, 40, |number| (number, 1_000));
        for number in (0..40).step_by(3) {
            let terms = (2, None);
            let extended = receipts.extend(&limits, &mut states, after(50), Receipt(number), terms);
            assert!(extended.unwrap().allowed());
        }
        assert_eq!(receipts.len(), 54);
        for number in (0..40).filter(|number| number % 3 > 0) {
            assert!(receipts.settle(&limits, &mut states, after(60), Receipt(number), 1));
        }
        assert!(receipts.blocks.len() <= 14, "{} blocks", receipts.blocks.len());
        assert_eq!(limits[0].remaining(&states[0], after(60)), 1_000 - 40 - 28);
        // They expire a millisecond after their extension, not after the reservation.
        assert!(!receipts.has_expired(after(1_049)));
        assert_eq!(receipts.next_return(), Some(after(1_050)));
        assert!(receipts.expire(&limits, &mut states, after(1_050)) && receipts.is_empty());
        assert_eq!(limits[0].remaining(&states[0], after(1_050)), 1_000 - 26);
    }

    #[test]
    fn a_kept_charge_stays_when_its_receipt_expires() {
        let limits = bucket(10);
        let (mut states, mut receipts) = ([crate::cell::Cell::UNSEEN], Receipts::default());
        let call = with_ttl(0, Ttl::keep(Span::from_micros(10)));
        assert!(receipts.reserve(&limits, &mut states, START, call).unwrap().0.allowed());
        assert_eq!(receipts.next_return(), None);
        assert!(!receipts.expire(&limits, &mut states, after(10)));
        assert!(receipts.is_empty() && limits[0].remaining(&states[0], after(10)) == 9);
    }

    /// Neither an age of an hour nor that its charge has leaked ends a receipt with a time to live.
    #[test]
    fn receipts_without_a_time_to_live_expire_behind_those_with_one() {
        let limits = [TokenBucket::new(Rate::new(1, Span::from_micros(1)).unwrap(), 100).unwrap()];
        let (mut states, mut receipts) = ([crate::cell::Cell::UNSEEN], Receipts::default());
        let call_with_ttl = with_ttl(0, Ttl::keep(Span::from_micros(1_000_000)));
        let _ = receipts.reserve(&limits, &mut states, START, call_with_ttl).unwrap();
        for number in 1..10 {
            let _ = receipts.reserve(&limits, &mut states, START, call(number, 1, Span::ZERO)).unwrap();
        }
        let _ = receipts.extend(&limits, &mut states, after(50_000), Receipt(5), (1, None)).unwrap();
        let now = after(100_000);
        receipts.expire_worthless(&limits, &states, now, Some(after(50_000)));
        let open =
            |receipts: &Receipts| (0..10).map(Receipt).filter(|receipt| receipts.is_open(*receipt)).count();
        assert_eq!(open(&receipts), 2);
        receipts.expire_worthless(&limits, &states, now, Some(now));
        assert_eq!(open(&receipts), 1, "the extended one is old enough by now");
        receipts.expire_worthless(&limits, &states, now, None);
        assert!(receipts.is_empty() && receipts.lifetimes.is_none());
    }
}
