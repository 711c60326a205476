//! Routes requests, and serves the pages that are only read.
//!
//! `guard.rs` admits requests, `body.rs` reads bodies, `verbs.rs` calls the engine, `problem.rs`
//! writes errors and enforced denials, `openapi.rs` describes all of it for machines.

mod body;
mod guard;
mod openapi;
mod problem;
mod verbs;

use self::guard::Authentication;
use self::problem::{Rejection, json, unavailable};
use self::verbs::VerbPath;
use super::Context;
use crate::engine::{Engine, Readiness};
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

/// A page for GET.
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
            Page::Readiness => match service.engine.readiness() {
                Readiness::Ready => "ready\n".into_response(),
                Readiness::Fallbacks(outage) => format!("ready, by fallbacks: {outage}\n").into_response(),
                Readiness::NotReady(outage) => unavailable(&format!("{outage}; some rules have no fallback")),
            },
            Page::Metrics => {
                let text = service.metrics.render(&service.engine);
                ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
            }
            Page::OpenApi => ([(CONTENT_TYPE, "application/json")], openapi::DOCUMENT).into_response(),
        }
    }
}

/// Built once, as that takes longer than answering a request.
static ROUTES: LazyLock<TowerToHyperService<Router>> = LazyLock::new(|| {
    let mut router = Router::new();
    for verb in VerbPath::ALL {
        router = router.route(verb.path(), post(move |context, request| call(verb, context, request)));
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
        context.progress.request_received();
    } else {
        context.progress.request_started();
    }
    let metrics = &context.service.metrics;
    let mut response = match guard::admit(&request, context) {
        Err(rejection) => rejection.into_response(),
        Ok(authentication) => {
            if authentication == Authentication::Authenticated && request.body().is_end_stream() {
                context.progress.establish();
            }
            request.extensions_mut().insert(Arc::clone(context));
            match ROUTES.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
    };
    if is_bad_request(response.status()) {
        metrics.client_errors(Protocol::Http, 1);
    }
    let took = context.progress.answered();
    if let Some(took) = took {
        metrics.answered(Protocol::Http, 1, took);
    }
    // The rest of the body would be read as the next request. And a client that never pauses is not
    // seen to be idle.
    let is_last = context.progress.client().is_in_reserve() || context.progress.is_handshake_over();
    if took.is_none() || is_last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn call(verb: VerbPath, Extension(context): Extension<Arc<Context>>, request: Request) -> Response {
    let service = &context.service;
    let answer = async {
        let enforce = is_enforced(request.uri());
        let body = body::read(request.into_body(), service.limits.request_body_max).await?;
        context.progress.request_received();
        // Only `/healthz` and `/readyz` are served without the password, and they are no verbs.
        context.progress.establish();
        verb.answer(&context, &body, enforce?).await
    };
    answer.await.unwrap_or_else(|rejection: Rejection| {
        if problem::is_protocol_error(rejection.status) {
            service.metrics.protocol_error(Protocol::Http);
        }
        rejection.into_response()
    })
}

/// Returns `true` for the status of an invalid request. A denial is a decision, and exceeding a
/// limit on connections is counted separately.
fn is_bad_request(status: StatusCode) -> bool {
    let is_other = status == StatusCode::TOO_MANY_REQUESTS || problem::is_protocol_error(status);
    status.is_client_error() && !is_other
}

/// Returns `true` if a denial is to have status 429.
fn is_enforced(uri: &Uri) -> Result<bool, Rejection> {
    match uri.query() {
        None | Some("" | "enforce=false") => Ok(false),
        Some("enforce=true") => Ok(true),
        Some(query) => Err(Rejection::new(
            StatusCode::BAD_REQUEST,
            format!("unknown query {}; the only one is ?enforce=true", quoted(query)),
        )),
    }
}

async fn no_such_path(uri: Uri) -> Rejection {
    let message = format!("there is no path {}; GET /openapi.json lists all paths", quoted(uri.path()));
    Rejection::new(StatusCode::NOT_FOUND, message)
}

async fn other_method(request: Request) -> Rejection {
    let (method, path) = (request.method(), request.uri().path());
    Rejection::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{path} does not support {method}; the Allow header lists what it supports"),
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
