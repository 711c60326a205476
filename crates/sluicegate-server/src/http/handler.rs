//! Which path leads where, and the pages that are only read.
//!
//! `guard.rs` says who may ask at all, `body.rs` reads a body, `verbs.rs` asks the engine, `problem.rs` is what is answered
//! when there is no decision or one that is to be enforced, `openapi.rs` has the same contract for machines.

mod body;
mod guard;
mod openapi;
mod problem;
mod verbs;

use self::problem::{Rejection, json, unavailable};
use self::verbs::Verb;
use super::Context;
use crate::engine::Engine;
use crate::metrics;
use crate::protocol::Protocol;
use axum::Router;
use axum::body::HttpBody as _;
use axum::extract::{Extension, Request};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use sluicegate::internal::grammar::quoted;
use std::sync::{Arc, LazyLock};

/// What is read by GET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Rules,
    Health,
    Readiness,
    Metrics,
    OpenApi,
}

impl Page {
    const ALL: [Page; 5] = [Page::Rules, Page::Health, Page::Readiness, Page::Metrics, Page::OpenApi];

    const fn path(self) -> &'static str {
        match self {
            Page::Rules => "/v1/rules",
            Page::Health => "/healthz",
            Page::Readiness => "/readyz",
            Page::Metrics => "/metrics",
            Page::OpenApi => "/openapi.json",
        }
    }

    fn answer(self, context: &Context) -> Response {
        let service = &context.service;
        match self {
            Page::Rules => json(StatusCode::OK, &Rules::of(&service.engine)),
            Page::Health => "ok\n".into_response(),
            Page::Readiness if service.is_stopping() => unavailable("the server is stopping"),
            Page::Readiness if !service.engine.is_ready() => {
                unavailable("the store is away, and not every rule says what to answer without it")
            }
            Page::Readiness => "ready\n".into_response(),
            Page::Metrics => {
                let text = service.metrics.render(&service.engine);
                ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
            }
            Page::OpenApi => ([(CONTENT_TYPE, "application/json")], openapi::DOCUMENT).into_response(),
        }
    }
}

/// Made once: making it takes longer than answering.
static ROUTES: LazyLock<TowerToHyperService<Router>> = LazyLock::new(|| {
    let mut router = Router::new();
    for verb in Verb::ALL {
        router = router.route(verb.path(), post(move |context, request| ask(verb, context, request)));
    }
    for page in Page::ALL {
        let answer = move |Extension(context): Extension<Arc<Context>>| async move { page.answer(&context) };
        router = router.route(page.path(), get(answer));
    }
    TowerToHyperService::new(router.fallback(no_such_path).method_not_allowed_fallback(other_method))
});

/// Answers one request.
pub(super) async fn respond(context: &Arc<Context>, mut request: Request<Incoming>) -> Response {
    if request.body().is_end_stream() {
        context.progress.has_asked();
    } else {
        context.progress.is_begun();
    }
    let metrics = &context.service.metrics;
    let mut response = if let Err(rejection) = guard::admit(&request, &context.service) {
        rejection.into_response()
    } else {
        request.extensions_mut().insert(Arc::clone(context));
        match ROUTES.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    if is_mistake(response.status()) {
        metrics.mistaken(Protocol::Http, 1);
    }
    if let Some(took) = context.progress.is_answered() {
        metrics.answered(Protocol::Http, 1, took);
    } else {
        // What is left of the body would be taken for the next request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn ask(verb: Verb, Extension(context): Extension<Arc<Context>>, request: Request) -> Response {
    let service = &context.service;
    let answer = async {
        let enforce = is_enforced(request.uri());
        let body = body::read(request.into_body(), service.limits.request_body_max).await?;
        context.progress.has_asked();
        verb.answer(&context, &body, enforce?).await
    };
    answer.await.unwrap_or_else(|rejection: Rejection| {
        if problem::is_of_protocol(rejection.status) {
            service.metrics.protocol_error(Protocol::Http);
        }
        rejection.into_response()
    })
}

/// Whether the question was wrong. A denial is an answer, and crossing a bound on clients is counted by itself.
fn is_mistake(status: StatusCode) -> bool {
    let is_other = status == StatusCode::TOO_MANY_REQUESTS || problem::is_of_protocol(status);
    status.is_client_error() && !is_other
}

/// Whether a denial is to have the status 429.
fn is_enforced(uri: &Uri) -> Result<bool, Rejection> {
    match uri.query() {
        None | Some("" | "enforce=false") => Ok(false),
        Some("enforce=true") => Ok(true),
        Some(query) => Err(Rejection::new(
            StatusCode::BAD_REQUEST,
            format!("unknown query {}; there is only ?enforce=true", quoted(query)),
        )),
    }
}

async fn no_such_path(uri: Uri) -> Rejection {
    let message = format!("there is no {}; GET /openapi.json says what there is", quoted(uri.path()));
    Rejection::new(StatusCode::NOT_FOUND, message)
}

async fn other_method(request: Request) -> Rejection {
    let (method, path) = (request.method(), request.uri().path());
    Rejection::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{path} does not take {method}; the header Allow says what it takes"),
    )
}

#[derive(Serialize)]
struct Rules {
    rules: Vec<OneRule>,
}

#[derive(Serialize)]
struct OneRule {
    name: String,
    limits: Vec<String>,
    shadow: bool,
}

impl Rules {
    fn of(engine: &Engine) -> Rules {
        let rules = engine.rules();
        let one = |spec: &crate::engine::RuleSpec| OneRule {
            name: spec.name.clone(),
            limits: spec.limits.iter().map(ToString::to_string).collect(),
            shadow: spec.shadow,
        };
        Rules { rules: rules.iter().map(|rule| one(rule.spec())).collect() }
    }
}
