//! From a request to the limiter's answer, and from the response to the final charge.

use super::event::{EventKind, RateLimitEvent};
use super::fields::Fields;
use super::layer::{Mode, Settings};
use super::settle::Completion;
use crate::common::{Admit, BackendCall, Shared, require_backend};
use crate::future::Later;
use crate::key::{MissingKey, RequestKey};
use crate::rejection::{Reason, Respond};
use crate::request_head::RequestHead;
use http::{HeaderMap, Response, StatusCode};
use sluicegate::backend::Reserved;
use sluicegate::backend::{Answer, Backend, BackendError, Pending};
use sluicegate::{Decision, Receipt, Span, VerbError};
use std::future::IntoFuture;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// An admitted request, until its response. Boxed, since its contents would make every future
/// larger, and axum moves futures about.
pub(crate) struct Admitted<L: Backend, R>(Option<Box<OnResponse<L, R>>>);

struct OnResponse<L: Backend, R> {
    fields: Option<Fields>,
    charge: Option<OpenCharge<L, R>>,
}

/// The charge of a request without a response so far. If it is dropped, the request was.
struct OpenCharge<L: Backend, R> {
    shared: Arc<Shared<Settings<L>, R>>,
    cost: u64,
    receipt: Option<Receipt>,
}

/// What to do when the response is ready.
pub(super) enum Ended<L: Backend, R> {
    /// The fields to add to the response.
    Now(Option<Fields>),
    /// The charge is being settled.
    Later(Settling<L, R>),
}

/// A charge that is being settled.
pub(super) struct Settling<L: Backend, R> {
    shared: Arc<Shared<Settings<L>, R>>,
    /// `None` once it is settled.
    settled: Option<Later<Result<bool, BackendError>>>,
    used: u64,
    receipt: Receipt,
    fields: Option<Fields>,
}

impl<L: Backend + Clone + 'static, R> Admit<R> for Settings<L> {
    type Answer = Result<Reserved, BackendError>;
    type Admitted = Admitted<L, R>;

    #[inline]
    fn ask_backend(&self, key: &RequestKey<'_>, cost: u64) -> Pending<Self::Answer> {
        let (limiter, uncharged) = (&self.limiter, move |answer: Answer| {
            let granted = if answer.allowed() { cost } else { 0 };
            Reserved::new(answer, granted, None)
        });
        match (self.mode, &self.after) {
            (Mode::Enforce, None) => self.when_due(limiter.check(key, cost, None), true, uncharged),
            // A shadow only observes: it does not pace.
            (Mode::Shadow, None) => self.when_due(limiter.check(key, cost, None), false, uncharged),
            (Mode::Wait(max_wait), None) => {
                let acquired = limiter.acquire(key, cost, Some(max_wait));
                // It has already waited in the queue.
                self.when_due(acquired, false, move |acquired| uncharged(acquired.answer()))
            }
            (mode, Some(_)) => {
                let max_wait = if let Mode::Wait(max_wait) = mode { max_wait } else { Duration::ZERO };
                let reserved = limiter.reserve(key, cost, &max_wait.into(), None);
                self.when_due(reserved, mode != Mode::Shadow, |reserved| reserved)
            }
        }
    }

    /// Inlined only for an allowed call that is not reported, so that the answer is not copied.
    #[inline]
    fn admit<B>(
        shared: &Arc<Shared<Self, R>>,
        answer: Self::Answer,
        call: &BackendCall<'_>,
    ) -> Result<Admitted<L, R>, Response<B>>
    where
        R: Respond<B>,
    {
        let reports = shared.settings.sends_headers() || shared.settings.observe.is_some();
        match answer {
            Ok(Reserved { answer, receipt: None, .. }) if answer.allowed() && !reports => Ok(Admitted(None)),
            answer => shared.admit_in_full(answer, call),
        }
    }

    /// A shadow rejects nothing.
    fn rejects(&self, head: &RequestHead<'_>, missing: MissingKey) -> bool {
        if let Some(observe) = &self.observe {
            let kind = match missing {
                MissingKey::Absent => EventKind::MissingKey,
                MissingKey::NotProvided(what) => EventKind::Misconfigured(what),
            };
            observe(&RateLimitEvent { head, key: None, kind });
        }
        self.mode != Mode::Shadow
    }
}

impl<L: Backend + Clone + 'static> Settings<L> {
    /// Returns the answer when the request is due: a pacer allows calls for later, so that requests
    /// are evenly spaced.
    #[inline]
    fn when_due<T: 'static>(
        &self,
        answer: Pending<Result<T, BackendError>>,
        paces: bool,
        reserved: impl FnOnce(T) -> Reserved + Send + 'static,
    ) -> Pending<Result<Reserved, BackendError>> {
        let is_early = move |reserved: &Reserved| paces && reserved.answer.delay() > Span::ZERO;
        match answer {
            Pending::Ready(answer) => match answer.map(reserved) {
                Ok(reserved) if is_early(&reserved) => Pending::Later(pace(self.limiter.clone(), reserved)),
                answer => Pending::Ready(answer),
            },
            Pending::Later(answer) => {
                let limiter = self.limiter.clone();
                Pending::later(async move {
                    let answer = answer.await?;
                    let reserved = reserved(answer);
                    if is_early(&reserved) { pace(limiter, reserved).await } else { Ok(reserved) }
                })
            }
        }
    }
}

/// Waits until an allowed call is due. If it is dropped before, its charge is returned if it has a
/// receipt.
#[cold]
fn pace<L: Backend + 'static>(limiter: L, reserved: Reserved) -> Later<Result<Reserved, BackendError>> {
    struct Waiting<L: Backend>(L, Option<Receipt>);

    impl<L: Backend> Drop for Waiting<L> {
        fn drop(&mut self) {
            if let Some(receipt) = &self.1 {
                self.0.settle_detached(receipt, 0);
            }
        }
    }

    let Reserved { answer, receipt, granted, .. } = reserved;
    let delay = limiter.delay(answer.delay().into()).into_future();
    let mut waiting = Waiting(limiter, receipt);
    Box::pin(async move {
        delay.await;
        Ok(Reserved::new(answer, granted, waiting.1.take()))
    })
}

impl<L: Backend, R> Shared<Settings<L>, R> {
    #[inline(never)]
    fn admit_in_full<B>(
        self: &Arc<Self>,
        answer: Result<Reserved, BackendError>,
        call: &BackendCall<'_>,
    ) -> Result<Admitted<L, R>, Response<B>>
    where
        R: Respond<B>,
    {
        let Reserved { answer, receipt, .. } = match answer.and_then(|reserved| {
            require_backend(&reserved.answer)?;
            Ok(reserved)
        }) {
            Ok(reserved) => reserved,
            Err(error) => return self.no_answer(error, call),
        };
        let (decision, shadow) = (answer.decision(), self.settings.mode == Mode::Shadow);
        // Before the observer runs, so that the receipt is not lost if it panics.
        let open = |receipt| OpenCharge { shared: Arc::clone(self), cost: call.cost, receipt: Some(receipt) };
        let charge = receipt.map(open);
        self.emit(
            call,
            match (decision.allowed(), shadow) {
                (true, _) => EventKind::Allowed(&decision),
                (false, true) => EventKind::WouldDeny(&decision),
                (false, false) => EventKind::Denied(&decision),
            },
        );
        if !decision.allowed() && !shadow {
            return Err(self.deny(&decision, call));
        }
        let fields = self.fields(&decision, call);
        let is_noop = fields.is_none() && charge.is_none();
        Ok(Admitted((!is_noop).then(|| Box::new(OnResponse { fields, charge }))))
    }

    #[cold]
    fn no_answer<B>(&self, error: BackendError, call: &BackendCall<'_>) -> Result<Admitted<L, R>, Response<B>>
    where
        R: Respond<B>,
    {
        let reason = if let BackendError::Verb(VerbError::Unsupported(error)) = error {
            Reason::Misconfigured(format!(
                "this limit cannot return a charge: {error}; use another limit, or remove `settle` and \
                 `charge_if`"
            ))
        } else {
            Reason::BackendFailed(error)
        };
        match &reason {
            Reason::Misconfigured(mistake) => self.emit(call, EventKind::Misconfigured(mistake)),
            Reason::BackendFailed(error) => self.emit(call, EventKind::BackendFailed(error)),
            _ => {}
        }
        if self.settings.mode == Mode::Shadow {
            return Ok(Admitted(None));
        }
        Err(self.reject(reason, String::new(), call.head))
    }

    #[cold]
    fn deny<B>(&self, decision: &Decision, call: &BackendCall<'_>) -> Response<B>
    where
        R: Respond<B>,
    {
        let violated = self.settings.policies.violated(&self.common.name, &self.settings.limiter, decision);
        let mut response = self.reject(Reason::Denied(*decision), violated, call.head);
        if let Some(fields) = self.fields(decision, call) {
            fields.write(response.headers_mut());
        }
        response
    }

    #[inline]
    fn fields(&self, decision: &Decision, call: &BackendCall<'_>) -> Option<Fields> {
        let Settings { policies, limiter, .. } = &self.settings;
        if !self.settings.sends_headers() {
            return None;
        }
        policies.fields(&self.common.name, limiter, decision, || {
            let usages = self.with_key(call, |key| limiter.usage(key, None));
            usages.ready().and_then(Result::ok)
        })
    }

    /// Returns the fields for a key whose charge was settled, if they are known without a round
    /// trip. Of several limits only the standing of the tightest is: then the fields stay as they
    /// were when the request was admitted.
    fn settled_fields(&self, receipt: &Receipt) -> Option<Fields> {
        let Settings { policies, limiter, .. } = &self.settings;
        if !self.settings.sends_headers() || policies.are_several(&self.common.name, limiter) {
            return None;
        }
        policies.fields(&self.common.name, limiter, &limiter.standing(receipt)?, || None)
    }

    /// Calls a closure with the key of a request, which is extracted again if it has to be.
    fn with_key<T>(&self, call: &BackendCall<'_>, with: impl FnOnce(&RequestKey<'_>) -> T) -> T {
        match call.key {
            Some(key) => with(key),
            None => with(&self.common.key.extract(call.head).unwrap_or(RequestKey::SHARED)),
        }
    }

    fn emit(&self, call: &BackendCall<'_>, kind: EventKind<'_>) {
        let Some(observe) = &self.settings.observe else { return };
        self.with_key(call, |key| observe(&RateLimitEvent { head: call.head, key: Some(key), kind }));
    }
}

/// For a request that is not limited.
impl<L: Backend, R> Default for Admitted<L, R> {
    #[inline]
    fn default() -> Admitted<L, R> {
        Admitted(None)
    }
}

impl<L: Backend, R> Admitted<L, R> {
    /// Returns `true` if there is nothing to do when the response is ready.
    #[inline]
    pub(super) fn is_noop(&self) -> bool {
        self.0.is_none()
    }

    /// Ends the request. `response` is the head of its response, if there is one.
    #[inline]
    pub(super) fn end(&mut self, response: Option<(StatusCode, &HeaderMap)>) -> Ended<L, R> {
        match self.0.take().map(|to_do| *to_do) {
            None => Ended::Now(None),
            Some(OnResponse { fields, charge: None }) => Ended::Now(fields),
            Some(OnResponse { fields, charge: Some(charge) }) => charge.end(fields, response),
        }
    }
}

impl<L: Backend, R> OpenCharge<L, R> {
    fn end(mut self, fields: Option<Fields>, response: Option<(StatusCode, &HeaderMap)>) -> Ended<L, R> {
        let used = self.used(&match response {
            Some((status, headers)) => Completion::Response { status, headers },
            None => Completion::Failed,
        });
        let (limiter, shared) = (&self.shared.settings.limiter, &self.shared);
        // Taken only after the closure returned: if it panics, the charge stays.
        let Some(receipt) = self.receipt.take() else { return Ended::Now(fields) };
        let settled = match used {
            None => {
                limiter.discard_receipt(&receipt);
                return Ended::Now(fields);
            }
            Some(0) => limiter.cancel(&receipt, None),
            Some(used) => limiter.settle(&receipt, &[used], None),
        };
        match settled {
            Pending::Ready(settled) => {
                warn_unsettled(settled);
                Ended::Now(shared.settled_fields(&receipt).or(fields))
            }
            Pending::Later(settled) => {
                // Settling twice is harmless: a receipt is valid once.
                let used = used.unwrap_or(0);
                let shared = Arc::clone(shared);
                Ended::Later(Settling { shared, settled: Some(settled), used, receipt, fields })
            }
        }
    }

    /// Returns what the request used, if that differs from its charge.
    fn used(&self, outcome: &Completion<'_>) -> Option<u64> {
        self.shared.settings.after.as_ref().and_then(|after| after(outcome).used(self.cost))
    }
}

impl<L: Backend, R> Drop for OpenCharge<L, R> {
    fn drop(&mut self) {
        let Some(receipt) = self.receipt.take() else { return };
        let limiter = &self.shared.settings.limiter;
        // A closure that has just panicked is not called again.
        match if std::thread::panicking() { None } else { self.used(&Completion::Dropped) } {
            Some(used) => limiter.settle_detached(&receipt, used),
            None => limiter.discard_receipt(&receipt),
        }
    }
}

impl<L: Backend, R> Settling<L, R> {
    pub(super) fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(settled) = &mut self.settled {
            warn_unsettled(ready!(settled.as_mut().poll(context)));
            self.settled = None;
        }
        Poll::Ready(())
    }

    /// The fields to add to the response.
    pub(super) fn fields(mut self) -> Option<Fields> {
        self.shared.settled_fields(&self.receipt).or(self.fields.take())
    }
}

impl<L: Backend, R> Drop for Settling<L, R> {
    /// The request is dropped before its charge is settled.
    fn drop(&mut self) {
        if self.settled.is_some() {
            self.shared.settings.limiter.settle_detached(&self.receipt, self.used);
        }
    }
}

fn warn_unsettled(settled: Result<bool, BackendError>) {
    if let Err(error) = settled {
        tracing::warn!(%error, "could not settle a charge in the store; it stays");
    }
}
