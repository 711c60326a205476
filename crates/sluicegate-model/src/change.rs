//! How a key's rules become others.

use crate::key::Key;
use crate::keys::{KeyId, Keys};
use crate::rule::Rule;
use crate::state::LimitState;

impl Keys {
    /// Replaces the rules of a key, as a reload of the configuration does.
    ///
    /// **What is kept.** The lists are matched by position. At each position the key keeps what it
    /// has used if only parameters differ:
    ///
    /// | rule | kept | starts fresh with another |
    /// |---|---|---|
    /// | bucket of any name | the tokens used, debt included | algorithm |
    /// | pacer | the tokens used; a new call waits for them at the new rate | algorithm |
    /// | fixed window | the count, and the first call's window | period, start, zone |
    /// | sliding window | both counts | period |
    /// | sliding log | the calls that still count, and their times | algorithm |
    /// | smooth | the wait, and the share of the maximum that is stored | algorithm |
    ///
    /// The algorithm is the one that the limit names: a token bucket that becomes a leaky bucket
    /// starts fresh, although both decide alike.
    ///
    /// A log has no windows, so its period is a parameter: a shorter one ages calls out sooner, a
    /// longer one keeps those that still counted under the old one. Whether denied calls count is a
    /// parameter too. `initial`, and the start of `smooth`, describe an unseen key: the new ones
    /// hold for a key that was never charged or refunded, and do not concern any other.
    ///
    /// A position that the new list does not have is gone, and one that the old list did not have
    /// starts fresh.
    ///
    /// **When.** At the key's next call that may change it: check, take, refund, reserve and check
    /// within a wait, allowed or denied; cancel, settle and extend of its open receipts. Until then
    /// the state is that of the old rules: it leaks and ages as they say, and further changes
    /// replace only what comes next. So of several changes between two calls only the last one
    /// counts, even if one of the others would have started fresh. What is not supported, and a
    /// cost of 0 (but for a reserve and an extend), changes nothing and converts nothing.
    ///
    /// Peek, usage and `next_window` report what they would if the key were converted now, but do
    /// not convert it. Their waits are therefore those that a call made now would report.
    ///
    /// **Rounding.** The tokens used are rounded up to the finest fraction that the new bucket can
    /// leak, which is what its rate leaks in the time of `1 / count` µs (`count / period` reduced
    /// to lowest terms). No decision can tell, before the next change.
    ///
    /// **Debt.** What was used may exceed the new limit: the level is then below 0, and nothing
    /// remains until it has recovered. A bucket's debt still stops at a century's worth, now at the
    /// new rate.
    ///
    /// **Clock steps.** A call before the latest one converts the bucket as of the latest charge or
    /// return, or of when the bucket was full if that was earlier. At another rate the step would
    /// take longer than it was, which would lock the key out, or shorter, which would admit more
    /// than the limit. Windows and logs stay at their latest time.
    ///
    /// **Receipts** stay open. Their charges keep their position in the stack: that of a bucket is
    /// converted and rounded like the tokens used. Charges are whole tokens, so their distances
    /// stay exact, and rounding creates no credit. What had leaked by the conversion is not
    /// returned, even if the clock steps back afterwards. Where the state starts fresh, or the
    /// position is gone, the receipt's part is void: nothing is returned there, and nothing charged
    /// for an excess or an extension. A receipt without any part left is void. A position that is
    /// new has no part in older receipts.
    pub fn change(&mut self, key: KeyId, rules: Vec<Rule>) {
        self.key_mut(key).rules = rules;
    }
}

impl Key {
    /// Converts the state to the current rules, if it is not under them yet.
    pub(crate) fn convert(&mut self, at: i128) {
        if self.is_converted() {
            return;
        }
        let before = std::mem::take(&mut self.limits);
        let kept: Vec<_> =
            self.rules.iter().zip(&before).map(|(rule, limit)| limit.converted(rule, at)).collect();
        self.parts.retain(|_, part| part.keep(|position| kept.get(position).is_some_and(Option::is_some)));
        let fresh = self.rules.iter().cloned().map(LimitState::new);
        let kept = kept.into_iter().chain(std::iter::repeat(None));
        self.limits = fresh.zip(kept).map(|(fresh, kept)| kept.unwrap_or(fresh)).collect();
    }

    /// Returns `true` if the state is under the current rules.
    pub(crate) fn is_converted(&self) -> bool {
        self.rules.len() == self.limits.len()
            && self.rules.iter().zip(&self.limits).all(|(rule, limit)| limit.is_under(rule))
    }
}
