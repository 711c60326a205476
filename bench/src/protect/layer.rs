//! Requests through a layer with permits, beside tower's own `ConcurrencyLimit`, in front of a
//! service that answers at once: what is measured is the layer and little else.
//!
//! The same work: one number of permits for all requests, held until the response is there, for any
//! service. `BulkheadLayer` does that. `GuardLayer` and `ConcurrencyLayer` are there to be seen:
//! they are for HTTP, judge and answer; the latter finds the permits of its key, here of
//! `everyone()`.

use super::queue::{PERMITS, TASKS, timed};
use super::{cpu_nanos, overheads, table};
use crate::measure::{Contender, interleaved};
use axum::body::Body;
use axum::http::{Request, Response};
use sluicegate::semaphore::Semaphore;
use sluicegate_guard::{Bulkhead, Guard};
use sluicegate_tower::{BulkheadLayer, ConcurrencyLayer, GuardLayer, HoldUntil, key};
use std::convert::Infallible;
use std::fmt::Debug;
use std::hint::black_box;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::{unconstrained, yield_now};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

const REQUESTS: u64 = 100_000;

const NONE: &str = "no layer";
const BULKHEAD: &str = "`BulkheadLayer`";
const GUARD: &str = "`GuardLayer` with a bulkhead";
const KEYED: &str = "`ConcurrencyLayer` with `everyone()`";
const TOWER: &str = "tower `ConcurrencyLimit`";

/// Longer than it takes for all.
const MINUTE: Duration = Duration::from_secs(60);

pub fn run(rounds: usize) {
    let at_once = || service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let text = format!("bulkhead {PERMITS} queue={TASKS} wait=1min");
    let bulkhead = || BulkheadLayer::new(Bulkhead::new(&*text).expect("a bulkhead"));
    let guard = || GuardLayer::new(Guard::builder("bench").bulkhead(&*text).build().expect("a guard"));
    let semaphore = || Semaphore::builder(format!("concurrency {PERMITS}")).max_queue(TASKS as usize).build();
    let keyed = || {
        ConcurrencyLayer::new(semaphore().expect("a semaphore"))
            .key(key::everyone())
            .hold_until(HoldUntil::ResponseHead)
    };
    let tower = || GlobalConcurrencyLimitLayer::new(PERMITS);

    let contenders: Vec<Contender<'_>> = vec![
        (NONE.to_owned(), Box::new(|| requests(at_once()))),
        (BULKHEAD.to_owned(), Box::new(|| requests(bulkhead().layer(at_once())))),
        (GUARD.to_owned(), Box::new(|| requests(guard().layer(at_once())))),
        (KEYED.to_owned(), Box::new(|| requests(keyed().layer(at_once())))),
        (TOWER.to_owned(), Box::new(|| requests(tower().layer(at_once())))),
    ];
    let figures = interleaved(contenders, rounds);
    table("A request that finds a free permit", &figures, &[BULKHEAD], &[TOWER]);
    overheads(&figures, NONE, &[BULKHEAD, GUARD, KEYED], TOWER);

    let steps_back = || {
        service_fn(async |_: Request<Body>| {
            yield_now().await;
            Ok::<_, Infallible>(Response::new(Body::empty()))
        })
    };
    let contenders: Vec<Contender<'_>> = vec![
        (NONE.to_owned(), Box::new(|| tasks(steps_back()))),
        (BULKHEAD.to_owned(), Box::new(|| tasks(bulkhead().layer(steps_back())))),
        (GUARD.to_owned(), Box::new(|| tasks(guard().layer(steps_back())))),
        (KEYED.to_owned(), Box::new(|| tasks(keyed().wait(MINUTE).layer(steps_back())))),
        (TOWER.to_owned(), Box::new(|| tasks(tower().layer(steps_back())))),
    ];
    let figures = interleaved(contenders, rounds);
    let what =
        format!("{TASKS} requests share {PERMITS} permits, per request including its wait and its task");
    table(&what, &figures, &[BULKHEAD], &[TOWER]);
    overheads(&figures, NONE, &[BULKHEAD, GUARD, KEYED], TOWER);
}

/// One request after another.
fn requests<S>(mut service: S) -> f64
where
    S: Service<Request<Body>>,
    S::Error: Debug,
{
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime of one thread");
    cpu_nanos(REQUESTS, || {
        runtime.block_on(unconstrained(async {
            for _ in 0..REQUESTS {
                let request = Request::new(Body::empty());
                let ready = service.ready().await.expect("it is ready");
                black_box(ready.call(black_box(request)).await.expect("there is a permit"));
            }
        }));
    })
}

/// Many requests at once, each in a task of its own.
fn tasks<S>(service: S) -> f64
where
    S: Service<Request<Body>> + Clone + Send + 'static,
    S::Error: Debug,
    S::Future: Send,
    S::Response: Send,
{
    timed(|tasks| {
        for _ in 0..TASKS {
            let service = service.clone();
            tasks.spawn(async move {
                black_box(service.oneshot(Request::new(Body::empty())).await.expect("there is a permit"));
            });
        }
    })
}
