//! The verbs, for several keys, each under its own list of rules.

use std::borrow::Cow;

use crate::algorithm::{Algorithm, CallKind, admits, delay, remaining, reported, reset_after, retry_after};
use crate::bucket::CENTURY;
use crate::decision::{Answer, Decision, ReceiptId, Rejected, RetryAfter, UNLIMITED, Usage};
use crate::key::Key;
use crate::receipt::{Part, Then, Ttl};
use crate::rule::Rule;
use crate::state::LimitState;

/// The shortest time for which a receipt without a time to live is kept: an hour.
const KEPT: i128 = 3_600 * 1_000_000;

/// Several keys, each under its own rules, and the receipts over them.
///
/// A key here is whatever has state of its own: a rule together with a caller's key. A key without
/// rules is unlimited.
///
/// **Several calls** are decided together, and charged to all of their keys or to none. Calls on
/// the same key are one call with the sum of their costs, in the place of the first. The limits of
/// all calls, in order, are like one list: of an allowed call the limit with the least remaining is
/// reported, of a denied one the limit with the longest wait, and on a tie the first. A call of
/// cost 0 is allowed and charges nothing, but its limits are part of the list. An unlimited key
/// adds nothing to the list; if no key has a limit, [`UNLIMITED`] remains.
///
/// **Expiry.** A receipt with a time to live of `length` that was issued, or last restarted, at `t`
/// is open before `t + length`, and closed from that moment on. With [`Then::Cancel`] its charge is
/// returned as if it had been cancelled exactly at `t + length`, however late that is noticed:
/// after all calls noticed before, and before the call that notices. Charges whose receipts expire
/// at different moments are returned in the order of these moments; at one moment, the newest
/// reservation comes first.
///
/// **Who notices.** Each key notices by itself, at the first call at or after that moment that may
/// change it: a check, take, refund, reserve, or check within a wait, whether allowed or denied.
/// With extend, settle and cancel, all keys of their receipt notice, whether it is open or not. If
/// only the parameters of the key's rules changed meanwhile, the charge is returned under the
/// previous rules, and then the key is converted. Peek, usage and `next_window` report what they
/// would if the key noticed now, but leave it as it is. So do calls of cost 0 (except reserve and
/// extend) and rejected calls.
///
/// **Clock steps.** What a key has noticed stays: if the clock then steps back before that moment,
/// the receipt's part of this key stays void. A key that has not noticed yet still has its part,
/// and until its own clock reaches the moment the part can be settled, extended and cancelled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    keys: Vec<Key>,
    /// The keys of each reservation, one for each call. The keys know whether it is open.
    receipts: Vec<Vec<KeyId>>,
}

/// Identifies a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(usize);

/// One of several calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The key that is charged.
    pub key: KeyId,
    /// The cost.
    pub cost: u64,
}

/// What a reservation accepts and asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// The longest delay that is accepted.
    pub max_wait: u64,
    /// The receipt's own time to live, from the time of the call and not from the end of its delay.
    pub ttl: Option<Ttl>,
}

/// The calls on one key as one: the index of the first, and the sum of their costs.
struct Merged {
    call: usize,
    key: KeyId,
    cost: i128,
}

/// One limit that decides.
struct Deciding<'a> {
    call: usize,
    position: usize,
    cost: i128,
    algorithm: &'a dyn Algorithm,
}

impl Keys {
    /// Adds a key that was never charged.
    pub fn add(&mut self, rules: Vec<Rule>) -> KeyId {
        self.keys.push(Key::new(rules));
        KeyId(self.keys.len() - 1)
    }

    /// Decides calls. If they are allowed, all are charged, otherwise none.
    ///
    /// A rule that counts denied calls must be alone on the only key.
    pub fn check(&mut self, now: u64, calls: &[Call]) -> Answer {
        self.charge_unless_denied(now, calls, CallKind::Check)
    }

    /// Reserves without a receipt.
    ///
    /// A rule that counts denied calls does not support this: it decides as a peek.
    pub fn check_within(&mut self, now: u64, calls: &[Call], max_wait: u64) -> Answer {
        if self.count_denials(calls) {
            return self.peek(now, calls);
        }
        self.charge_unless_denied(now, calls, reserving(max_wait))
    }

    /// Decides whether calls would be allowed. Changes nothing.
    #[must_use]
    pub fn peek(&self, now: u64, calls: &[Call]) -> Answer {
        let at = i128::from(now);
        let merged = merged(calls);
        let seen = self.seen_at(at, &merged);
        let deciding = deciding(&merged, &seen, None);
        denial(&deciding, at, CallKind::Check)
            .unwrap_or_else(|| allowed(&deciding, at, longest_delay(&deciding, at, CallKind::Check)))
    }

    /// Charges as much as remains, up to a cost, and returns how much that was.
    ///
    /// A rule that counts denied calls does not support this: it decides as a peek and charges
    /// nothing.
    pub fn take(&mut self, now: u64, key: KeyId, up_to: u64) -> (Answer, u64) {
        let call = |cost| [Call { key, cost }];
        if up_to == 0 || self.count_denials(&call(up_to)) {
            return (self.peek(now, &call(up_to)), 0);
        }
        let taken = up_to.min(self.advanced_key(now, key).remaining(now.into()));
        match taken {
            0 => (self.peek(now, &call(1)), 0),
            _ => (self.check(now, &call(taken)), taken),
        }
    }

    /// Returns cost to a key. Returns `None`, and changes nothing, if a rule does not support that.
    pub fn refund(&mut self, now: u64, key: KeyId, cost: u64) -> Option<Answer> {
        let at = i128::from(now);
        if !self.keys[key.0].seen_at(at).algorithms().all(Algorithm::supports_refund) {
            return None;
        }
        if cost > 0 {
            for limit in &mut self.advanced_key(now, key).limits {
                limit.algorithm_mut().refund(at, i128::from(cost));
            }
        }
        Some(self.peek(now, &[Call { key, cost: 0 }]))
    }

    /// Charges calls now that act after their delay, if it is at most the wait that the terms
    /// accept. Returns one receipt for all of them, if a key has a limit.
    ///
    /// A rule that counts denied calls does not support this: it decides as a peek, without a
    /// receipt.
    pub fn reserve(&mut self, now: u64, calls: &[Call], terms: Terms) -> (Answer, Option<ReceiptId>) {
        if self.count_denials(calls) {
            return (self.peek(now, calls), None);
        }
        let at = i128::from(now);
        let kind = reserving(terms.max_wait);
        let merged = merged(calls);
        for Merged { key, .. } in &merged {
            self.advanced_key(now, *key);
        }
        let seen = self.seen_at(at, &merged);
        let deciding = deciding(&merged, &seen, None);
        if let Some(denial) = denial(&deciding, at, kind) {
            return (denial, None);
        }
        let longest_delay = longest_delay(&deciding, at, kind);
        let receipt = ReceiptId(self.receipts.len() as u64);
        self.receipts.push(calls.iter().map(|call| call.key).collect());
        for Merged { key, cost, .. } in &merged {
            let key = &mut self.keys[key.0];
            if !key.limits.is_empty() {
                key.parts.insert(receipt, Part::new(at, key.limits.len(), terms.ttl));
                key.charge_part(at, *cost, receipt, kind);
            }
        }
        let answer = self.allowed_now(at, &merged, None, longest_delay);
        (answer, self.has_part(receipt).then_some(receipt))
    }

    /// Reserves as much as remains, from `at_least` up to `cost`, and returns how much that was. If
    /// less remains, the call is denied as a check of `at_least` would be. It never waits.
    ///
    /// `at_least` is from 1 to `cost`, which may exceed the limit. Of several limits the least
    /// remaining counts. An unlimited key is granted its cost. A pacer, `smooth` and a rule that
    /// counts denied calls do not support this: they decide as a peek of `at_least` and charge
    /// nothing.
    pub fn reserve_at_least(
        &mut self,
        now: u64,
        call: Call,
        at_least: u64,
        ttl: Option<Ttl>,
    ) -> (Answer, Option<ReceiptId>, u64) {
        let least = [Call { cost: at_least, ..call }];
        if !self.keys[call.key.0].supports_at_least() {
            return (self.peek(now, &least), None, 0);
        }
        let key = self.advanced_key(now, call.key);
        let most = if key.limits.is_empty() { call.cost } else { key.remaining(now.into()) };
        let granted = call.cost.min(most);
        if granted < at_least {
            return (self.peek(now, &least), None, 0);
        }
        let granted_call = [Call { cost: granted, ..call }];
        let (answer, receipt) = self.reserve(now, &granted_call, Terms { max_wait: 0, ttl });
        (answer, receipt, granted)
    }

    /// Charges more to an open receipt, like a reserve that accepts no delay: to all its keys or to
    /// none. `costs` has one number for each call, or a single number that applies to each.
    ///
    /// Only the limits that still have their part of the reservation decide and are charged; a key
    /// that was reset, or a limit that started fresh or is new, is passed over. The index in a
    /// denial is that of the reservation's call.
    ///
    /// If it is allowed, even at cost 0, the time to live starts again now: with the length given,
    /// which a receipt without one gets too (and then keeps its charge), otherwise with the length
    /// that it had. The hour for which a receipt without one is kept starts again too. A denial
    /// restarts nothing.
    ///
    /// # Errors
    /// [`Rejected::WrongCount`], which changes nothing, whether or not the receipt is open; then
    /// [`Rejected::NotOpen`].
    pub fn extend(
        &mut self,
        now: u64,
        receipt: ReceiptId,
        costs: &[u64],
        ttl: Option<u64>,
    ) -> Result<Answer, Rejected> {
        let at = i128::from(now);
        let merged = self.open(now, receipt, costs)?;
        let (kind, only) = (reserving(0), Some(receipt));
        let seen = self.seen_at(at, &merged);
        let deciding = deciding(&merged, &seen, only);
        if let Some(denial) = denial(&deciding, at, kind) {
            return Ok(denial);
        }
        let longest_delay = longest_delay(&deciding, at, kind);
        for Merged { key, cost, .. } in &merged {
            let key = &mut self.keys[key.0];
            key.charge_part(at, *cost, receipt, kind);
            if let Some(part) = key.parts.get_mut(&receipt) {
                part.since = at;
                let length = ttl.or(part.ttl.map(|ttl| ttl.length));
                let then = part.ttl.map_or(Then::Keep, |ttl| ttl.then);
                part.ttl = length.map(|length| Ttl { length, then });
            }
        }
        Ok(self.allowed_now(at, &merged, only, longest_delay))
    }

    /// Corrects the charge of a reservation and its extensions to what was actually used: `used`
    /// has one number for each call, or a single number that applies to each. Returns `false` if
    /// the receipt is not open.
    ///
    /// The numbers of the calls on one key are added up, as their costs are. What was charged and
    /// not used is returned, from the newest charge first. Each charge accounts for its full cost:
    /// a part of it that no longer counts is not returned from an older charge instead. An excess
    /// is charged as debt. Debt is capped: in a bucket at a century's worth, in a window or log at
    /// a count of 2 * 10^12.
    ///
    /// # Errors
    /// [`Rejected::WrongCount`], which changes nothing, whether or not the receipt is open.
    pub fn settle(&mut self, now: u64, receipt: ReceiptId, used: &[u64]) -> Result<bool, Rejected> {
        let at = i128::from(now);
        let merged = match self.open(now, receipt, used) {
            Err(Rejected::NotOpen) => return Ok(false),
            opened => opened?,
        };
        for Merged { key, cost: used, .. } in merged {
            let key = &mut self.keys[key.0];
            let Some(part) = key.parts.remove(&receipt) else {
                continue;
            };
            if used < part.cost() {
                key.roll_back(at, &part, part.cost() - used);
            } else {
                key.discard(&part);
                if used > part.cost() {
                    key.charge_debt(at, &part, used - part.cost());
                }
            }
        }
        Ok(true)
    }

    /// Cancels a reservation and its extensions: what still counts is returned to all its keys,
    /// from the newest charge first. Returns `true` if anything still counted.
    pub fn cancel(&mut self, now: u64, receipt: ReceiptId) -> bool {
        let at = i128::from(now);
        let mut returned = false;
        for Merged { key, .. } in self.open(now, receipt, &[0]).unwrap_or_default() {
            let key = &mut self.keys[key.0];
            if let Some(part) = key.parts.remove(&receipt) {
                returned |= key.roll_back(at, &part, part.cost());
            }
        }
        returned
    }

    /// Returns `true` while a receipt must be open: until it expires or, without a time to live,
    /// for an hour from its latest charge, and beyond that as long as a cancel would return
    /// anything.
    ///
    /// Later the model still knows a receipt without a time to live, but implementations may have
    /// dropped it.
    #[must_use]
    pub fn is_kept(&self, now: u64, receipt: ReceiptId) -> bool {
        let at = i128::from(now);
        self.keys.iter().any(|key| {
            let mut seen = key.seen_at(at).into_owned();
            seen.parts.remove(&receipt).is_some_and(|part| {
                part.ttl.is_some() || at < part.since + KEPT || seen.roll_back(at, &part, part.cost())
            })
        })
    }

    /// Returns the usage of each limit of a key, in the order of its rules; of a key without limits
    /// a single one. Changes nothing.
    #[must_use]
    pub fn usage(&self, now: u64, key: KeyId) -> Vec<Usage> {
        let at = i128::from(now);
        self.keys[key.0].seen_at(at).usage(at)
    }

    /// Returns when the next window of a key starts: the latest of all its rules.
    #[must_use]
    pub fn next_window(&self, now: u64, key: KeyId) -> u64 {
        let at = i128::from(now);
        let key = self.keys[key.0].seen_at(at);
        let latest = key.algorithms().map(|algorithm| algorithm.next_window(at)).max();
        reported(latest.unwrap_or(at))
    }

    /// Deletes a key's state, and with it its part of every receipt.
    pub fn reset(&mut self, key: KeyId) {
        self.keys[key.0].reset();
    }

    pub(crate) fn key_mut(&mut self, key: KeyId) -> &mut Key {
        &mut self.keys[key.0]
    }

    fn advanced_key(&mut self, now: u64, key: KeyId) -> &mut Key {
        let key = self.key_mut(key);
        key.advance(now.into());
        key
    }

    fn count_denials(&self, calls: &[Call]) -> bool {
        calls.iter().any(|call| self.keys[call.key.0].counts_denials())
    }

    fn has_part(&self, receipt: ReceiptId) -> bool {
        self.keys.iter().any(|key| key.parts.contains_key(&receipt))
    }

    /// Returns the keys of an open receipt, advanced, each with the sum of its calls' numbers.
    fn open(&mut self, now: u64, receipt: ReceiptId, numbers: &[u64]) -> Result<Vec<Merged>, Rejected> {
        let calls = usize::try_from(receipt.0).ok().and_then(|index| self.receipts.get(index));
        let keys = calls.ok_or(Rejected::NotOpen)?;
        let cost = |index| match numbers {
            [for_each] => Some(*for_each),
            _ if numbers.len() == keys.len() => numbers.get(index).copied(),
            _ => None,
        };
        let calls = keys.iter().enumerate().map(|(index, &key)| Some(Call { key, cost: cost(index)? }));
        let merged = merged(&calls.collect::<Option<Vec<_>>>().ok_or(Rejected::WrongCount)?);
        // A call that names no open receipt changes nothing, so it converts nothing either.
        if !self.has_part(receipt) {
            return Err(Rejected::NotOpen);
        }
        for Merged { key, .. } in &merged {
            self.advanced_key(now, *key);
        }
        if self.has_part(receipt) { Ok(merged) } else { Err(Rejected::NotOpen) }
    }

    fn charge_unless_denied(&mut self, now: u64, calls: &[Call], kind: CallKind) -> Answer {
        let at = i128::from(now);
        let merged = merged(calls);
        for Merged { key, .. } in merged.iter().filter(|call| call.cost > 0) {
            self.advanced_key(now, *key);
        }
        let seen = self.seen_at(at, &merged);
        let deciding = deciding(&merged, &seen, None);
        let denial = denial(&deciding, at, kind);
        let longest_delay = longest_delay(&deciding, at, kind);
        if let Some(denial) = denial {
            let is_counted = self.count_denials(calls);
            if !is_counted || denial.decision.retry_after == Some(RetryAfter::Never) {
                return denial;
            }
        }
        for Merged { key, cost, .. } in merged.iter().filter(|call| call.cost > 0) {
            self.keys[key.0].charge(at, *cost);
        }
        match denial {
            Some(_) => self.peek(now, calls),
            None => self.allowed_now(at, &merged, None, longest_delay),
        }
    }

    /// Returns the keys of calls as they would be if they were advanced.
    fn seen_at(&self, at: i128, calls: &[Merged]) -> Vec<Cow<'_, Key>> {
        calls.iter().map(|call| self.keys[call.key.0].seen_at(at)).collect()
    }

    fn allowed_now(&self, at: i128, calls: &[Merged], only: Option<ReceiptId>, delay: i128) -> Answer {
        let seen = self.seen_at(at, calls);
        allowed(&deciding(calls, &seen, only), at, delay)
    }
}

fn reserving(max_wait: u64) -> CallKind {
    CallKind::Reserve { max_wait: i128::from(max_wait).min(CENTURY) }
}

fn merged(calls: &[Call]) -> Vec<Merged> {
    let mut merged: Vec<Merged> = Vec::new();
    for (index, &Call { key, cost }) in calls.iter().enumerate() {
        let cost = i128::from(cost);
        match merged.iter_mut().find(|earlier| earlier.key == key) {
            Some(earlier) => earlier.cost += cost,
            None => merged.push(Merged { call: index, key, cost }),
        }
    }
    merged
}

/// Returns the limits of calls in order; if `only` is given, those that have a part of it.
fn deciding<'a>(calls: &[Merged], keys: &'a [Cow<'_, Key>], only: Option<ReceiptId>) -> Vec<Deciding<'a>> {
    let mut deciding = Vec::new();
    for (&Merged { call, cost, .. }, key) in calls.iter().zip(keys) {
        for (position, limit) in key.limits.iter().enumerate() {
            let has_part = |receipt| key.parts.get(&receipt).is_some_and(|part| part.has(position));
            if only.is_none_or(has_part) {
                deciding.push(Deciding { call, position, cost, algorithm: LimitState::algorithm(limit) });
            }
        }
    }
    deciding
}

/// Returns the answer of the limit that denies for longest, the first on a tie: all fields are its
/// own. `None` if all allow.
fn denial(limits: &[Deciding<'_>], at: i128, kind: CallKind) -> Option<Answer> {
    let mut longest: Option<(&Deciding<'_>, RetryAfter)> = None;
    for limit in limits.iter().filter(|limit| !admits(limit.algorithm, at, limit.cost, kind)) {
        let wait = retry_after(limit.algorithm, at, limit.cost, kind);
        if longest.is_none_or(|(_, so_far)| wait > so_far) {
            longest = Some((limit, wait));
        }
    }
    let (&Deciding { call, position, algorithm, .. }, retry_after) = longest?;
    let decision = Decision {
        allowed: false,
        limit: reported(algorithm.limit()),
        remaining: reported(remaining(algorithm, at)),
        retry_after: Some(retry_after),
        reset_after: reported(reset_after(algorithm, at)),
        delay: 0,
        denied_by: Some(position),
    };
    Some(Answer { decision, denied_call: Some(call) })
}

fn longest_delay(limits: &[Deciding<'_>], at: i128, kind: CallKind) -> i128 {
    let delays = limits.iter().map(|limit| delay(limit.algorithm, at, limit.cost, kind));
    delays.max().unwrap_or(0)
}

/// Returns the answer to allowed calls: the fields of the limit with the least remaining, the first
/// on a tie.
fn allowed(limits: &[Deciding<'_>], at: i128, delay: i128) -> Answer {
    let tightest = limits
        .iter()
        .map(|limit| (remaining(limit.algorithm, at), limit.algorithm))
        .min_by_key(|(remaining, _)| *remaining);
    let (limit, remaining, reset_after) = match tightest {
        Some((remaining, algorithm)) => {
            (reported(algorithm.limit()), reported(remaining), reported(reset_after(algorithm, at)))
        }
        None => (UNLIMITED, UNLIMITED, 0),
    };
    let delay = reported(delay);
    let decision =
        Decision { allowed: true, limit, remaining, retry_after: None, reset_after, delay, denied_by: None };
    Answer { decision, denied_call: None }
}
