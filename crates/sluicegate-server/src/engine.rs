//! The one way in: every protocol asks here, and nothing is decided elsewhere.
//!
//! A question names a rule, or brings a limit of its own, and a key. `rule.rs` is a rule and its exceptions, `inline.rs`
//! knows the limits that callers bring, `verdict.rs` is the answer, `mistake.rs` what could not be answered.
//!
//! A limit of how many at once is not checked: `lender.rs` gives leases under it, `leases.rs` keeps those in memory.
//!
//! Keys live in memory or in a store that many servers share: `home.rs` is where, `judge.rs` who decides there, `shared.rs`
//! the shared store, `turns.rs` how many calls may be under way to it. All verbs can be awaited; what is in memory is answered at once.

mod home;
mod inline;
mod judge;
mod leases;
mod leasing;
mod lender;
mod mistake;
mod recent;
mod rule;
mod shared;
mod throttle;
mod together;
mod turns;
mod verdict;

pub use home::{Keys, WhoseTime};
pub use leasing::Leased;
pub use lender::{HeldView, LeasesView, Untold};
pub(crate) use lender::{lends, of_another_kind};
pub use mistake::Mistake;
pub use recent::Recent;
pub use rule::{INLINE, KeySpec, Rule, RuleSet, RuleSpec, Tally, TallyView};
pub use shared::StoreView;
pub use sluicegate_redis::{OnStoreFailure, Source};
pub use throttle::{Throttle, Throttled};
pub use verdict::{Reason, Verdict};

use arc_swap::ArcSwap;
use home::Home;
use inline::Inline;
use judge::Judge;
use recent::Found;
use rule::{Act, Applies, Ruling, Scope};
use shared::SharedLimiter;
use sluicegate::{CALLS_MAX, Clock, HashedKey, OnFull, Receipt, Span, Stats, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

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
    /// How many leases of `concurrency` limits may be out at once, in memory.
    pub max_leases: usize,
    /// What happens to a new key when that many have not recovered.
    pub on_full: OnFull,
    /// What to answer when a shared store cannot, unless a rule says otherwise.
    pub on_failure: OnStoreFailure,
    /// The share of a limit, in percent, that [`OnStoreFailure::Local`] decides with, unless a rule says otherwise.
    pub local_share: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allow_inline: true,
            key_len_max: 64 * 1024,
            cost_max: sluicegate::core::bounds::COUNT_MAX,
            max_keys: sluicegate::MAX_KEYS_DEFAULT,
            max_receipts: sluicegate::MAX_RECEIPTS_DEFAULT,
            max_leases: sluicegate::MAX_LEASES_DEFAULT,
            on_full: OnFull::Evict,
            on_failure: OnStoreFailure::Error,
            local_share: 100,
        }
    }
}

/// Decides for all protocols.
pub struct Engine {
    settings: Settings,
    clock: Arc<dyn Clock>,
    home: Arc<Home>,
    rules: ArcSwap<RuleSet>,
    /// How often rules were loaded.
    loads: AtomicU64,
    /// For those who wait for a lease meanwhile.
    loaded: Notify,
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
            Applies::Limits(Ruling { judge: Judge::Memory(limiter), .. }) if act == Act::Check => {
                Some(limiter.hash(key))
            }
            _ => None,
        };
        Prepared { found, key, cost, act, hashed }
    }

    /// The rule that will decide.
    pub fn rule(&self) -> &Rule {
        &self.found.rule
    }

    /// Who decides in a shared store, if this is a check there.
    fn shared_check(&self) -> Option<(&Ruling, &SharedLimiter)> {
        match self.found.rule.applies(self.key) {
            Applies::Limits(ruling) if self.act == Act::Check => match &ruling.judge {
                Judge::Shared(limiter) => Some((ruling, limiter)),
                Judge::Memory(_) | Judge::Lends(_) => None,
            },
            _ => None,
        }
    }

    /// Decides what is no check, and was not decided here.
    async fn decide_alone(&self, now: Time) -> Result<Verdict, Mistake> {
        let Prepared { found, key, cost, act, .. } = self;
        let verdict = found.rule.answer(key, now, async |judge| match act {
            Act::Refund => judge.refund(key, *cost, now).await,
            Act::CheckWithin(max_wait) => judge.check_within(key, *cost, *max_wait, now).await,
            // A check takes another way: with others.
            Act::Peek | Act::Check => judge.peek(key, *cost, now).await,
        });
        Ok(self.decided(verdict.await?))
    }

    /// Counts a verdict if it could charge, and lets it pass if the rule is a shadow.
    #[inline]
    fn decided(&self, verdict: Verdict) -> Verdict {
        if let Act::Check | Act::CheckWithin(_) = self.act {
            self.found.count(&verdict);
        }
        self.found.rule.shadowed(verdict)
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
    /// An engine without rules, whose keys live in memory.
    ///
    /// # Errors
    /// When a setting is out of bounds, or there is not so much memory.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Engine, Mistake> {
        Engine::keeping(Keys::InMemory, settings, clock)
    }

    /// An engine without rules, whose keys live there.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn keeping(keys: Keys, settings: Settings, clock: Arc<dyn Clock>) -> Result<Engine, Mistake> {
        let home = Arc::new(Home::new(keys, &settings, &clock)?);
        let inline = Inline::new(Arc::clone(&home), clock.now());
        let (rules, loads, loaded) = (ArcSwap::default(), AtomicU64::new(0), Notify::new());
        Ok(Engine { settings, clock, home, rules, loads, loaded, inline })
    }

    /// Takes up the rules of a configuration, all or none. Keys keep what they have used.
    ///
    /// # Errors
    /// When two have one name, limits do not go together, or there is no memory. Then the rules before go on.
    pub fn load(&self, specs: Vec<RuleSpec>) -> Result<(), Mistake> {
        let rules = RuleSet::new(&self.home, specs, &self.rules.load(), self.now())?;
        self.rules.store(Arc::new(rules));
        self.loads.fetch_add(1, Ordering::Release);
        self.loaded.notify_waiters();
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

    /// What has become of leases under limits that callers brought.
    pub fn inline_leases(&self) -> LeasesView {
        self.inline.leases()
    }

    /// What the store in memory holds and has let go; `None` if keys live elsewhere.
    pub fn stats(&self) -> Option<Stats> {
        self.home.stats()
    }

    /// Whether keys live in a store that many servers share.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.home.memory().is_none()
    }

    /// What the shared store has answered; `None` if keys live in memory.
    pub fn store(&self) -> Option<StoreView> {
        self.home.shared().map(|shared| shared.view())
    }

    /// Whether every rule can be answered now: by the store, or without it.
    pub fn is_ready(&self) -> bool {
        let is_up = self.home.shared().is_none_or(|shared| shared.is_partly_up());
        is_up || self.rules.load().iter().all(|rule| rule.on_failure() != OnStoreFailure::Error)
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

    /// Finds what a question is about, to be decided with others. With a longest wait the call is charged now and told its
    /// delay, if that is not longer.
    ///
    /// # Errors
    /// When there is no such rule, or a bound is crossed.
    pub fn prepare<'a>(
        &self,
        recent: &mut Recent,
        target: Target<'a>,
        cost: u32,
        max_wait: Option<Span>,
    ) -> Result<Prepared<'a>, Mistake> {
        self.bounded(target.key, cost)?;
        self.keep_up(recent);
        let found = recent.named(target.rule, || self.find_for_checks(target.rule))?;
        Ok(Prepared::new(found, target.key, cost, max_wait.map_or(Act::Check, Act::CheckWithin)))
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
        if let (Some(hashed), Some(store)) = (prepared.hashed, self.home.memory()) {
            store.touch(hashed);
        }
    }

    /// Decides what was prepared, if that takes no trip to a shared store; else it is for [`Engine::decide_each`].
    ///
    /// # Errors
    /// When the limit does not offer this.
    #[inline]
    pub fn decide_here(&self, prepared: &Prepared<'_>, now: Time) -> Option<Result<Verdict, Mistake>> {
        let Prepared { found, key, cost, act, hashed } = prepared;
        let verdict = match found.rule.applies(key) {
            Applies::Unlimited => Verdict::unlimited(),
            Applies::Blocked => Verdict::blocked(),
            Applies::Limits(ruling) => {
                let Judge::Memory(limiter) = &ruling.judge else { return None };
                let decision = match (act, hashed) {
                    (Act::Check, Some(hashed)) => limiter.check_hashed_at(*hashed, *cost, now),
                    (Act::Check, None) => limiter.check_at(key, *cost, now),
                    (Act::Peek, _) => limiter.peek_at(key, *cost, now),
                    (Act::CheckWithin(max_wait), _) => {
                        match limiter.check_within_at(key, *cost, *max_wait, now) {
                            Ok(decision) => decision,
                            Err(not_offered) => return Some(Err(not_offered.into())),
                        }
                    }
                    (Act::Refund, _) => match limiter.refund_at(key, *cost, now) {
                        Ok(decision) => decision,
                        Err(not_offered) => return Some(Err(not_offered.into())),
                    },
                };
                ruling.verdict(&decision.into(), now)
            }
        };
        Some(Ok(prepared.decided(verdict)))
    }

    /// Decides what was prepared, one after another. Checks that stand beside each other take one trip to a shared store.
    pub async fn decide_each(&self, prepared: &[&Prepared<'_>], now: Time) -> Vec<Result<Verdict, Mistake>> {
        let mut verdicts = Vec::with_capacity(prepared.len());
        let mut rest = prepared;
        while let Some((first, others)) = rest.split_first() {
            if let Some(verdict) = self.decide_here(first, now) {
                verdicts.push(verdict);
                rest = others;
                continue;
            }
            let checks: Vec<_> = rest.iter().map_while(|prepared| prepared.shared_check()).collect();
            if let Some((_, limiter)) = checks.first() {
                let calls: Vec<_> =
                    checks.iter().zip(rest).map(|((_, it), of)| it.on_at(of.key, of.cost, now)).collect();
                let told = limiter.shared().check_each(&calls).await;
                for (((ruling, _), of), told) in checks.iter().zip(rest).zip(told) {
                    verdicts.push(told.map(|told| of.decided(ruling.verdict(&told, now))));
                }
                rest = &rest[checks.len()..];
            } else {
                verdicts.push(first.decide_alone(now).await);
                rest = others;
            }
        }
        verdicts
    }

    /// Decides what was prepared.
    ///
    /// # Errors
    /// When the limit does not offer this, or a shared store gives no answer.
    pub async fn decide(&self, prepared: &Prepared<'_>, now: Time) -> Result<Verdict, Mistake> {
        match self.decide_here(prepared, now) {
            Some(verdict) => verdict,
            None => self.decide_each(&[prepared], now).await.pop().unwrap_or_else(|| {
                // Cannot be: there is an answer for each question.
                Err(Mistake::unavailable("the store gave no answer"))
            }),
        }
    }

    /// May the key act now, at this cost? If so it is charged.
    ///
    /// # Errors
    /// When there is no such rule, a bound is crossed, or a shared store gives no answer.
    pub async fn check(&self, target: Target<'_>, cost: u32, now: Time) -> Result<Verdict, Mistake> {
        self.decide(&self.prepare(&mut Recent::default(), target, cost, None)?, now).await
    }

    /// May the key act within the longest wait, at this cost? If so it is charged now, and told its delay.
    ///
    /// # Errors
    /// As [`Engine::check`], and when the limit does not offer this.
    pub async fn check_within(
        &self,
        target: Target<'_>,
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<Verdict, Mistake> {
        self.decide(&self.prepare(&mut Recent::default(), target, cost, Some(max_wait))?, now).await
    }

    /// Would it be allowed? Nothing is charged.
    ///
    /// # Errors
    /// As [`Engine::check`].
    pub async fn peek(&self, target: Target<'_>, cost: u32, now: Time) -> Result<Verdict, Mistake> {
        let Asked { rule, key, cost } = self.asked(target, cost)?;
        let verdict = rule.answer(key, now, async |judge| judge.peek(key, cost, now).await).await?;
        Ok(rule.shadowed(verdict))
    }

    /// Gives cost back. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// As [`Engine::check`], and when the limit does not offer this.
    pub async fn refund(&self, target: Target<'_>, cost: u32, now: Time) -> Result<Verdict, Mistake> {
        let Asked { rule, key, cost } = self.asked_to_charge(target, cost)?;
        let verdict = rule.answer(key, now, async |judge| judge.refund(key, cost, now).await).await?;
        Ok(rule.shadowed(verdict))
    }

    /// May all of these happen now? If so all are charged; if one denies, none is. The answer for all, and for each.
    ///
    /// # Errors
    /// As [`Engine::check`], with too many calls, or with one under `count=all`; on a cluster when keys are on different
    /// servers.
    pub async fn check_all(&self, parts: &[Part<'_>], now: Time) -> Result<(Verdict, Vec<Verdict>), Mistake> {
        if parts.len() > CALLS_MAX {
            return Err(Mistake::new(format!("{} calls are too many; use at most {CALLS_MAX}", parts.len())));
        }
        let asked: Result<Vec<Asked<'_>>, Mistake> =
            parts.iter().map(|part| self.asked_to_charge(part.target, part.cost)).collect();
        together::check_all(&asked?, now).await
    }

    /// Takes as much as there is, up to a cost, and says how much that was.
    ///
    /// # Errors
    /// As [`Engine::check`], and when the limit does not offer this.
    pub async fn take(&self, target: Target<'_>, up_to: u32, now: Time) -> Result<(Verdict, u32), Mistake> {
        let Asked { rule, key, .. } = self.asked_to_charge(target, up_to)?;
        let (verdict, taken) = match rule.applies(key) {
            Applies::Unlimited => (Verdict::unlimited(), up_to),
            Applies::Blocked => (Verdict::blocked(), 0),
            Applies::Limits(ruling) => {
                let (told, taken) = ruling.judge.take(key, up_to, now).await?;
                (ruling.verdict(&told, now), taken)
            }
        };
        // A shadow rule takes what there is, and lets the caller have all that it asked for.
        let taken = if rule.spec().shadow { up_to } else { taken };
        Ok((rule.decided(verdict), taken))
    }

    /// Charges now, to act after the answer's delay. The text is a receipt, good for one cancel or settle. There is none
    /// when nothing was charged: denied, even if by a shadow rule, or without limits.
    ///
    /// # Errors
    /// As [`Engine::check`], when the limit does not offer this, or too many receipts are open.
    pub async fn reserve(
        &self,
        target: Target<'_>,
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<(Verdict, Option<String>), Mistake> {
        let Asked { rule, key, .. } = self.asked_to_charge(target, cost)?;
        let (verdict, receipt) = match rule.applies(key) {
            Applies::Unlimited => (Verdict::unlimited(), None),
            Applies::Blocked => (Verdict::blocked(), None),
            Applies::Limits(ruling) => {
                let (told, receipt) = ruling.judge.reserve(key, cost, max_wait, now).await?;
                (ruling.verdict(&told, now), receipt)
            }
        };
        Ok((rule.decided(verdict), receipt))
    }

    /// Gives back what still counts of a reservation. Whether that was anything.
    ///
    /// # Errors
    /// When the text is not a receipt, or a shared store gives no answer.
    pub async fn cancel(&self, receipt: &str, now: Time) -> Result<bool, Mistake> {
        if let Some(store) = self.home.memory() {
            let receipt: Receipt = receipt.parse()?;
            return Ok(store.cancel_at(&receipt, now));
        }
        let receipt = receipt.parse()?;
        match self.giver_of(&receipt).as_deref().and_then(|rule| shared_judge(rule, receipt.key())) {
            Some(limiter) => limiter.cancel(&receipt, now).await,
            None => Ok(false),
        }
    }

    /// Says what a reservation has really used. Whether the receipt was good.
    ///
    /// # Errors
    /// As [`Engine::cancel`].
    pub async fn settle(&self, receipt: &str, used: u32, now: Time) -> Result<bool, Mistake> {
        if let Some(store) = self.home.memory() {
            let receipt: Receipt = receipt.parse()?;
            return Ok(store.settle_at(&receipt, used, now));
        }
        let receipt = receipt.parse()?;
        match self.giver_of(&receipt).as_deref().and_then(|rule| shared_judge(rule, receipt.key())) {
            Some(limiter) => limiter.settle(&receipt, used, now).await,
            None => Ok(false),
        }
    }

    /// Forgets the key.
    ///
    /// # Errors
    /// As [`Engine::check`].
    pub async fn reset(&self, target: Target<'_>) -> Result<(), Mistake> {
        let Asked { rule, key, .. } = self.asked(target, 0)?;
        rule.judge_of(key).reset(key).await
    }

    /// When the key's next window starts, or its next unit is there.
    ///
    /// # Errors
    /// As [`Engine::check`].
    pub async fn next_window(&self, target: Target<'_>, now: Time) -> Result<Time, Mistake> {
        let Asked { rule, key, .. } = self.asked_to_charge(target, 0)?;
        match rule.applies(key) {
            Applies::Limits(ruling) => ruling.judge.next_window(key, now).await,
            Applies::Unlimited | Applies::Blocked => Ok(now),
        }
    }

    /// The rule or limit that gave a receipt, perhaps on another server. If it is gone, what it counted does not count any more.
    fn giver_of(&self, receipt: &sluicegate_redis::Receipt) -> Option<Arc<Rule>> {
        self.find(Scope::named_in(receipt.scope())?).ok()
    }

    fn asked<'a>(&self, Target { rule, key }: Target<'a>, cost: u32) -> Result<Asked<'a>, Mistake> {
        self.bounded(key, cost)?;
        Ok(Asked { rule: self.find(rule)?, key, cost })
    }

    /// The same for what may charge the key, which a rule that gives leases does not offer.
    fn asked_to_charge<'a>(&self, target: Target<'a>, cost: u32) -> Result<Asked<'a>, Mistake> {
        let asked = self.asked(target, cost)?;
        asked.rule.decides_checks()?;
        Ok(asked)
    }

    /// The rule of this name, or the limit as one, if it can be checked.
    fn find_for_checks(&self, rule: &str) -> Result<Arc<Rule>, Mistake> {
        let rule = self.find(rule)?;
        rule.decides_checks()?;
        Ok(rule)
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

/// Who judges a key of a rule in a shared store.
fn shared_judge<'r>(rule: &'r Rule, key: &[u8]) -> Option<&'r SharedLimiter> {
    match rule.judge_of(key) {
        Judge::Shared(limiter) => Some(limiter),
        Judge::Memory(_) | Judge::Lends(_) => None,
    }
}

/// A name that a caller sent, short enough for one line.
fn shortened(name: &str) -> &str {
    const SHOWN_MAX: usize = 64;
    let end = name.char_indices().map(|(at, _)| at).take_while(|at| *at <= SHOWN_MAX).last();
    if name.len() <= SHOWN_MAX { name } else { &name[..end.unwrap_or(0)] }
}
