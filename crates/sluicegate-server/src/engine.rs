//! The one way in: every protocol asks here, and nothing is decided elsewhere.
//!
//! A question names a rule, or brings a limit of its own, and a key. `rule.rs` is a rule and its exceptions, `inline.rs`
//! knows the limits that callers bring, `verdict.rs` is the answer, `mistake.rs` what could not be answered.

mod inline;
mod mistake;
mod recent;
mod rule;
mod throttle;
mod together;
mod verdict;

pub use mistake::Mistake;
pub use recent::Recent;
pub use rule::{INLINE, KeySpec, OnStoreFailure, Rule, RuleSet, RuleSpec, Tally, TallyView};
pub use throttle::{Throttle, Throttled};
pub use verdict::{Reason, Verdict};

use arc_swap::ArcSwap;
use inline::Inline;
use recent::Found;
use rule::{Act, Applies};
use sluicegate::{CALLS_MAX, Clock, HashedKey, OnFull, Receipt, SharedStore, Span, Stats, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the engine is told when it is made. The bounds that callers can cross have names and defaults here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Whether callers may bring limits of their own, `CL.THROTTLE` included.
    pub allow_inline: bool,
    /// The longest key, in bytes.
    pub key_len_max: usize,
    /// The largest cost of one call.
    pub cost_max: u32,
    /// How many keys are held in memory at the most.
    pub max_keys: usize,
    /// How many receipts of reservations may be open at once.
    pub max_receipts: usize,
    /// What happens to a new key when that many have not recovered.
    pub on_full: OnFull,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allow_inline: true,
            key_len_max: 64 * 1024,
            cost_max: sluicegate::core::bounds::COUNT_MAX,
            max_keys: sluicegate::MAX_KEYS_DEFAULT,
            max_receipts: sluicegate::MAX_RECEIPTS_DEFAULT,
            on_full: OnFull::Evict,
        }
    }
}

/// Decides for all protocols.
pub struct Engine {
    settings: Settings,
    clock: Arc<dyn Clock>,
    store: SharedStore,
    rules: ArcSwap<RuleSet>,
    /// How often rules were loaded.
    loads: AtomicU64,
    inline: Inline,
}

/// Who is asked about: a rule's name, or a limit in the grammar (it has a space), and a key.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The name of a rule, or a limit.
    pub rule: &'a str,
    /// Whose call it is.
    pub key: &'a [u8],
}

/// One call of several that are charged all or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Who calls.
    pub target: Target<'a>,
    /// At what cost.
    pub cost: u32,
}

/// A question whose rule and key have been found, ready to be decided. Of a batch of questions all are prepared first, so
/// that their waits for memory overlap.
pub struct Prepared<'a> {
    found: Arc<Found>,
    key: &'a [u8],
    cost: u32,
    act: Act,
    hashed: Option<HashedKey>,
}

impl<'a> Prepared<'a> {
    fn new(found: Arc<Found>, key: &'a [u8], cost: u32, act: Act) -> Prepared<'a> {
        let hashed = match found.rule.applies(key) {
            Applies::Limits(ruling) if act == Act::Check => Some(ruling.limiter.hash(key)),
            _ => None,
        };
        Prepared { found, key, cost, act, hashed }
    }

    /// The rule that will decide.
    pub fn rule(&self) -> &Rule {
        &self.found.rule
    }
}

/// A question that is asked by itself, its rule found and its bounds checked.
struct Asked<'a> {
    rule: Arc<Rule>,
    key: &'a [u8],
    cost: u32,
}

impl Asked<'_> {
    /// What the rule says of the key.
    fn applies(&self) -> Applies<'_> {
        self.rule.applies(self.key)
    }
}

impl Engine {
    /// An engine without rules.
    ///
    /// # Errors
    /// When a setting is out of bounds, or there is not so much memory.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Engine, Mistake> {
        let Settings { max_keys, max_receipts, on_full, .. } = settings;
        let store = SharedStore::builder().max_keys(max_keys).max_receipts(max_receipts).on_full(on_full);
        let store = store.clock(Arc::clone(&clock)).build()?;
        let inline = Inline::new(store.clone(), clock.now());
        Ok(Engine { settings, clock, store, rules: ArcSwap::default(), loads: AtomicU64::new(0), inline })
    }

    /// Takes up the rules of a configuration, all or none. Keys keep what they have used.
    ///
    /// # Errors
    /// When two have one name, limits do not go together, or there is no memory. Then the rules before go on.
    pub fn load(&self, specs: Vec<RuleSpec>) -> Result<(), Mistake> {
        let rules = RuleSet::new(&self.store, specs, &self.rules.load(), self.now())?;
        self.rules.store(Arc::new(rules));
        self.loads.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The rules of now.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// What limits that callers brought have answered, `CL.THROTTLE` included.
    pub fn inline_tally(&self) -> TallyView {
        self.inline.tally().view()
    }

    /// What the store holds and has let go.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// The time on the engine's clock. Of a batch of questions it is asked once.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// What it was told when it was made.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The rule of this name, or the limit as one.
    ///
    /// # Errors
    /// When there is no such rule, the limit is wrong, or none may be brought.
    pub fn find(&self, rule: &str) -> Result<Arc<Rule>, Mistake> {
        if let Some(rule) = self.rules.load().find(rule) {
            return Ok(Arc::clone(rule));
        }
        if !rule.contains(' ') {
            return Err(Mistake::new(format!(
                "no rule is called {:?}; RL.RULES and GET /v1/rules list them, and a limit is written like \"sliding-log 5/60s\"",
                shortened(rule)
            )));
        }
        self.may_bring_limits()?;
        self.inline.limit(rule)
    }

    /// A cost within bounds.
    ///
    /// # Errors
    /// When it is above what one call may cost.
    pub fn cost(&self, cost: u64) -> Result<u32, Mistake> {
        let most = self.settings.cost_max;
        let within = u32::try_from(cost).ok().filter(|cost| *cost <= most);
        within.ok_or_else(|| Mistake::new(format!("the cost {cost} is too large; use at most {most}")))
    }

    /// Finds what a question is about, to be decided with others.
    ///
    /// # Errors
    /// When there is no such rule, or a bound is crossed.
    pub fn prepare<'a>(
        &self,
        recent: &mut Recent,
        target: Target<'a>,
        cost: u32,
    ) -> Result<Prepared<'a>, Mistake> {
        self.bounded(target.key, cost)?;
        self.keep_up(recent);
        let found = recent.named(target.rule, || self.find(target.rule))?;
        Ok(Prepared::new(found, target.key, cost, Act::Check))
    }

    /// The same for redis-cell's command. Its limits have one scope: a key's new numbers re-read its debt.
    ///
    /// # Errors
    /// When a number is out of bounds, or no limits may be brought.
    pub fn prepare_throttle<'a>(
        &self,
        recent: &mut Recent,
        key: &'a [u8],
        throttle: &Throttle,
    ) -> Result<Prepared<'a>, Mistake> {
        self.may_bring_limits()?;
        let cost = self.cost(throttle.quantity.unsigned_abs())?;
        self.bounded(key, cost)?;
        let act = match throttle.quantity {
            ..0 => Act::Refund,
            0 => Act::Peek,
            1.. => Act::Check,
        };
        self.keep_up(recent);
        let found = recent.throttle(throttle.numbers(), || self.inline.throttle(throttle))?;
        Ok(Prepared::new(found, key, cost, act))
    }

    /// Has what is known of a prepared question's key brought from memory. In a batch all are prepared, then all are touched,
    /// with nothing in between, then all are decided: so their waits for memory overlap.
    #[inline]
    pub fn touch(&self, prepared: &Prepared<'_>) {
        if let Some(hashed) = prepared.hashed {
            self.store.touch(hashed);
        }
    }

    /// Decides what was prepared.
    ///
    /// # Errors
    /// When the limit does not offer this.
    pub fn decide(&self, prepared: &Prepared<'_>, now: Time) -> Result<Verdict, Mistake> {
        let Prepared { found, key, cost, act, hashed } = prepared;
        let verdict = found.rule.try_answer(key, now, |limiter| match (act, hashed) {
            (Act::Check, Some(hashed)) => Ok(limiter.check_hashed_at(*hashed, *cost, now)),
            (Act::Check, None) => Ok(limiter.check_at(key, *cost, now)),
            (Act::Peek, _) => Ok(limiter.peek_at(key, *cost, now)),
            (Act::Refund, _) => limiter.refund_at(key, *cost, now),
        })?;
        if *act == Act::Check {
            found.count(&verdict);
        }
        Ok(found.rule.shadowed(verdict))
    }

    /// May the key act now, at this cost? If so it is charged.
    ///
    /// # Errors
    /// When there is no such rule, or a bound is crossed.
    pub fn check(&self, target: Target<'_>, cost: u32, now: Time) -> Result<Verdict, Mistake> {
        self.decide(&self.prepare(&mut Recent::default(), target, cost)?, now)
    }

    /// Would it be allowed? Nothing is charged.
    ///
    /// # Errors
    /// As [`Engine::check`].
    pub fn peek(&self, target: Target<'_>, cost: u32, now: Time) -> Result<Verdict, Mistake> {
        let Asked { rule, key, cost } = self.asked(target, cost)?;
        Ok(rule.shadowed(rule.answer(key, now, |limiter| limiter.peek_at(key, cost, now))))
    }

    /// Gives cost back. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// As [`Engine::check`], and when the limit does not offer this.
    pub fn refund(&self, target: Target<'_>, cost: u32, now: Time) -> Result<Verdict, Mistake> {
        let Asked { rule, key, cost } = self.asked(target, cost)?;
        Ok(rule.shadowed(rule.try_answer(key, now, |limiter| limiter.refund_at(key, cost, now))?))
    }

    /// May all of these happen now? If so all are charged; if one denies, none is. The answer for all, and for each.
    ///
    /// # Errors
    /// As [`Engine::check`], with too many calls, or with one under `count=all`.
    pub fn check_all(&self, parts: &[Part<'_>], now: Time) -> Result<(Verdict, Vec<Verdict>), Mistake> {
        if parts.len() > CALLS_MAX {
            return Err(Mistake::new(format!("{} calls are too many; use at most {CALLS_MAX}", parts.len())));
        }
        let asked: Result<Vec<Asked<'_>>, Mistake> =
            parts.iter().map(|part| self.asked(part.target, part.cost)).collect();
        together::check_all(&asked?, now)
    }

    /// Takes as much as there is, up to a cost, and says how much that was.
    ///
    /// # Errors
    /// As [`Engine::check`], and when the limit does not offer this.
    pub fn take(&self, target: Target<'_>, up_to: u32, now: Time) -> Result<(Verdict, u32), Mistake> {
        let Asked { rule, key, .. } = self.asked(target, up_to)?;
        let (verdict, taken) = match rule.applies(key) {
            Applies::Unlimited => (Verdict::unlimited(), up_to),
            Applies::Blocked => (Verdict::blocked(), 0),
            Applies::Limits(ruling) => {
                let (decision, taken) = ruling.limiter.take_at(key, up_to, now)?;
                (ruling.verdict(&decision, now), taken)
            }
        };
        // A shadow rule takes what there is, and lets the caller have all that it asked for.
        let taken = if rule.spec().shadow { up_to } else { taken };
        Ok((rule.decided(verdict), taken))
    }

    /// Charges now, to act after the answer's delay. The receipt is good for one cancel or settle. There is none when nothing
    /// was charged: denied, even if by a shadow rule, or without limits.
    ///
    /// # Errors
    /// As [`Engine::check`], when the limit does not offer this, or too many receipts are open.
    pub fn reserve(
        &self,
        target: Target<'_>,
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<(Verdict, Option<Receipt>), Mistake> {
        let Asked { rule, key, .. } = self.asked(target, cost)?;
        let (verdict, receipt) = match rule.applies(key) {
            Applies::Unlimited => (Verdict::unlimited(), None),
            Applies::Blocked => (Verdict::blocked(), None),
            Applies::Limits(ruling) => {
                let reservation = ruling.limiter.reserve_at(key, cost, max_wait, now)?;
                (ruling.verdict(&reservation.decision(), now), reservation.keep())
            }
        };
        Ok((rule.decided(verdict), receipt))
    }

    /// Gives back what still counts of a reservation. Whether that was anything.
    ///
    /// # Errors
    /// When the text is not a receipt.
    pub fn cancel(&self, receipt: &str, now: Time) -> Result<bool, Mistake> {
        let receipt: Receipt = receipt.parse()?;
        Ok(self.store.cancel_at(receipt, now))
    }

    /// Says what a reservation has really used. Whether the receipt was good.
    ///
    /// # Errors
    /// When the text is not a receipt.
    pub fn settle(&self, receipt: &str, used: u32, now: Time) -> Result<bool, Mistake> {
        let receipt: Receipt = receipt.parse()?;
        Ok(self.store.settle_at(receipt, used, now))
    }

    /// Forgets the key.
    ///
    /// # Errors
    /// As [`Engine::check`].
    pub fn reset(&self, target: Target<'_>) -> Result<(), Mistake> {
        let Asked { rule, key, .. } = self.asked(target, 0)?;
        rule.forget(key);
        Ok(())
    }

    /// When the key's next window starts, or its next unit is there.
    ///
    /// # Errors
    /// As [`Engine::check`].
    pub fn next_window(&self, target: Target<'_>, now: Time) -> Result<Time, Mistake> {
        let Asked { rule, key, .. } = self.asked(target, 0)?;
        Ok(match rule.applies(key) {
            Applies::Limits(ruling) => ruling.limiter.next_window_at(key, now),
            Applies::Unlimited | Applies::Blocked => now,
        })
    }

    fn asked<'a>(&self, Target { rule, key }: Target<'a>, cost: u32) -> Result<Asked<'a>, Mistake> {
        self.bounded(key, cost)?;
        Ok(Asked { rule: self.find(rule)?, key, cost })
    }

    /// Forgets what a connection remembers of rules that have changed since.
    fn keep_up(&self, recent: &mut Recent) {
        let load = self.loads.load(Ordering::Acquire);
        if recent.load != load {
            recent.clear(load);
        }
    }

    fn bounded(&self, key: &[u8], cost: u32) -> Result<(), Mistake> {
        let most = self.settings.key_len_max;
        if key.len() > most {
            let length = key.len();
            return Err(Mistake::new(format!(
                "the key has {length} bytes; use at most {most}, or a hash of it"
            )));
        }
        self.cost(u64::from(cost)).map(|_| ())
    }

    fn may_bring_limits(&self) -> Result<(), Mistake> {
        if self.settings.allow_inline {
            return Ok(());
        }
        Err(Mistake::new(
            "limits may not be brought along here (allow_inline = false); use the name of a rule",
        ))
    }
}

/// A name that a caller sent, short enough for one line.
fn shortened(name: &str) -> &str {
    const SHOWN_MAX: usize = 64;
    let end = name.char_indices().map(|(at, _)| at).take_while(|at| *at <= SHOWN_MAX).last();
    if name.len() <= SHOWN_MAX { name } else { &name[..end.unwrap_or(0)] }
}
