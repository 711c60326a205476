//! From an answer to what is done with the request, and from its end to what it was charged.

use crate::after::Outcome;
use crate::backend::{Answer, Backend, Decided, Step, Undecided, Used};
use crate::fields::Fields;
use crate::head::Head;
use crate::key::{NoKey, RequestKey};
use crate::layer::{Mode, Shared, WithoutKeyThen};
use crate::observe::{Seen, Verdict};
use crate::refusal::{Reason, Refusal, Respond};
use http::{HeaderMap, Response};
use sluicegate::Decision;
use std::sync::Arc;

/// A request that was admitted, until it is over. Whatever there is to do then is in a box, as it would make the future of every
/// request larger, and axum moves those about.
pub(crate) struct Passage<L: Backend, R>(Option<Box<ToDo<L, R>>>);

struct ToDo<L: Backend, R> {
    fields: Option<Fields>,
    charge: Option<OpenCharge<L, R>>,
}

/// What a request was charged for the time being. If nobody waits for its response the outcome is just that.
struct OpenCharge<L: Backend, R> {
    shared: Arc<Shared<L, R>>,
    cost: u32,
    held: Option<L::Held>,
}

/// What is known of a charge when its request is over.
pub(crate) enum Settled<L: Backend, R> {
    /// The fields to add to the response.
    Now(Option<Fields>),
    /// Something is still to be written somewhere, and then the fields are these or new ones.
    Later { closing: L::Closing, fields: Option<Fields>, shared: Arc<Shared<L, R>> },
}

impl<L: Backend, R> Shared<L, R> {
    /// What to do about a request without a key. A shadow refuses nothing.
    pub(crate) fn without_key(&self, missing: NoKey, head: &Head<'_>) -> WithoutKeyThen {
        let then = self.settings.without_key.then(missing);
        if !matches!(then, WithoutKeyThen::Refuse(_)) {
            return then;
        }
        self.observe(
            head,
            None,
            match missing {
                NoKey::Absent => Verdict::NoKey,
                NoKey::NotProvided(what) => Verdict::SetUp(what),
            },
        );
        if self.settings.mode == Mode::Shadow {
            return WithoutKeyThen::Pass;
        }
        then
    }

    /// What an answer comes to: a passage, or the response that the client gets instead. Here is only a yes that nobody is
    /// told of, compiled in place, so that the answer is not copied.
    #[inline]
    pub(crate) fn admit<B>(
        self: &Arc<Self>,
        answer: Answer<L::Held>,
        cost: u32,
        head: &Head<'_>,
        key: &RequestKey<'_>,
    ) -> Result<Passage<L, R>, Response<B>>
    where
        R: Respond<B>,
    {
        let is_told_of = self.settings.tells() || self.settings.observe.is_some();
        match answer {
            Ok(Decided { decision, held: None }) if decision.allowed() && !is_told_of => Ok(Passage::free()),
            answer => self.admit_in_full(answer, cost, head, key),
        }
    }

    #[inline(never)]
    fn admit_in_full<B>(
        self: &Arc<Self>,
        answer: Answer<L::Held>,
        cost: u32,
        head: &Head<'_>,
        key: &RequestKey<'_>,
    ) -> Result<Passage<L, R>, Response<B>>
    where
        R: Respond<B>,
    {
        let shadow = self.settings.mode == Mode::Shadow;
        let decided = match answer {
            Ok(decided) => decided,
            Err(undecided) => return self.undecided(undecided, head, key),
        };
        let decision = &decided.decision;
        let verdict = match (decision.allowed(), shadow) {
            (true, _) => Verdict::Allowed(decision),
            (false, true) => Verdict::WouldDeny(decision),
            (false, false) => Verdict::Denied(decision),
        };
        self.observe(head, Some(key), verdict);
        if decision.allowed() || shadow {
            let open = |held| OpenCharge { shared: Arc::clone(self), cost, held: Some(held) };
            return Ok(Passage::new(self.fields(decision), decided.held.map(open)));
        }
        Err(self.denied(decision, head))
    }

    #[cold]
    fn undecided<B>(
        &self,
        undecided: Undecided,
        head: &Head<'_>,
        key: &RequestKey<'_>,
    ) -> Result<Passage<L, R>, Response<B>>
    where
        R: Respond<B>,
    {
        self.observe(head, Some(key), Verdict::Undecided(&undecided));
        if self.settings.mode == Mode::Shadow {
            return Ok(Passage::free());
        }
        Err(Refusal::new(Reason::Undecided(undecided), String::new(), *head).answer(&self.respond))
    }

    #[cold]
    fn denied<B>(&self, decision: &Decision, head: &Head<'_>) -> Response<B>
    where
        R: Respond<B>,
    {
        let violated = self.policies.violated(&self.settings, decision);
        let mut response = Refusal::new(Reason::Denied(*decision), violated, *head).answer(&self.respond);
        if let Some(fields) = self.fields(decision) {
            fields.write(response.headers_mut());
        }
        response
    }

    #[inline]
    pub(crate) fn fields(&self, decision: &Decision) -> Option<Fields> {
        if !self.settings.tells() {
            return None;
        }
        self.policies.fields(&self.settings, decision)
    }

    fn observe(&self, head: &Head<'_>, key: Option<&RequestKey<'_>>, verdict: Verdict<'_>) {
        if let Some(observe) = &self.settings.observe {
            observe(&Seen { head, key, verdict });
        }
    }
}

impl<L: Backend, R> Passage<L, R> {
    fn new(fields: Option<Fields>, charge: Option<OpenCharge<L, R>>) -> Passage<L, R> {
        let is_free = fields.is_none() && charge.is_none();
        Passage((!is_free).then(|| Box::new(ToDo { fields, charge })))
    }

    /// Whether there is nothing to do when the request is over.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.0.is_none()
    }

    /// Of a request that nothing is done about.
    #[inline]
    pub(crate) fn free() -> Passage<L, R> {
        Passage(None)
    }

    /// The request is over: its head is this, or there is no response.
    #[inline]
    pub(crate) fn end(&mut self, response: Option<(http::StatusCode, &HeaderMap)>) -> Settled<L, R> {
        match self.0.take().map(|to_do| *to_do) {
            None => Settled::Now(None),
            Some(ToDo { fields, charge: None }) => Settled::Now(fields),
            Some(ToDo { fields, charge: Some(charge) }) => charge.end(fields, response),
        }
    }
}

impl<L: Backend, R> OpenCharge<L, R> {
    fn end(
        mut self,
        fields: Option<Fields>,
        response: Option<(http::StatusCode, &HeaderMap)>,
    ) -> Settled<L, R> {
        let outcome = match response {
            Some((status, headers)) => Outcome::Response { status, headers },
            None => Outcome::Failed,
        };
        let used = self.used(&outcome);
        // Taken only after the closure has been asked: if it panics, the charge stays.
        let Some(held) = self.held.take() else { return Settled::Now(fields) };
        match self.shared.settings.limiter.close(held, used) {
            Step::Now(standing) => {
                let renewed = standing.and_then(|standing| self.shared.fields(&standing));
                Settled::Now(renewed.or(fields))
            }
            Step::Later(closing) => Settled::Later { closing, fields, shared: Arc::clone(&self.shared) },
        }
    }

    fn used(&self, outcome: &Outcome<'_>) -> Used {
        let after = &self.shared.settings.after;
        after.as_ref().map_or(Used::All, |after| after(outcome).of(self.cost))
    }
}

impl<L: Backend, R> Drop for OpenCharge<L, R> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        // A closure that has just panicked is not asked again.
        let used = if std::thread::panicking() { Used::All } else { self.used(&Outcome::Dropped) };
        self.shared.settings.limiter.close_unwatched(held, used);
    }
}
