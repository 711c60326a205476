//! The layer in front of an axum router, beside tower_governor's: requests made in this process,
//! without sockets, so that what is measured is the router, the layer and nothing else.
//!
//! What counts is the overhead: what a request takes more than without a layer. Both layers limit
//! by the peer's address.

use crate::input::Random;
use crate::measure::{Contender, Rounds, head, interleaved, median, own_thread_cpu, row, verdict};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use sluicegate::Limiter;
use sluicegate_tower::RateLimitLayer;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use tower::Service as _;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

pub const ROUNDS: usize = 31;
/// Requests of a contender in a round.
const REQUESTS: u64 = 100_000;
const DENIED: usize = 10_000;
const ADDRESSES: u32 = 100_000;

const NONE: &str = "no layer";
const OURS: &str = "ours, without fields";
const OURS_FIELDS: &str = "ours, with `RateLimit` and `RateLimit-Policy`";
const OURS_DENIED: &str = "ours, denied";
const THEIRS: &str = "tower_governor, without fields";
const THEIRS_FIELDS: &str = "tower_governor, with `x-ratelimit-*`";
const THEIRS_DENIED: &str = "tower_governor, denied";

/// Enough for all requests, or for none but the first.
const PLENTY: &str = "token-bucket 1000000000/s";
const HARDLY: &str = "token-bucket 1/h";

pub fn run(rounds: usize) {
    let one = vec![Ipv4Addr::new(203, 0, 113, 9); REQUESTS as usize];
    let many =
        Random(1).order(ADDRESSES).into_iter().map(|number| Ipv4Addr::from(0x0a00_0000 + number)).collect();
    println!(
        "CPU time per request through an axum router in this process, in nanoseconds (median of {rounds} interleaved rounds of\n\
         {REQUESTS} requests, or {DENIED} denied ones). The overhead is the time beyond a request without a layer; its ratio is\n\
         that of the median overheads.\n"
    );
    let figures =
        [("One address", one), ("100,000 addresses in random order", many)].map(|(who, addresses)| {
            let figures = interleaved(contenders(&addresses), rounds);
            print(who, &figures);
            figures
        });
    bars(&figures);
}

fn print(who: &str, figures: &Rounds) {
    println!("{who}:\n");
    head(["", "median", "lowest to highest", "overhead", "ratio to tower_governor's"]);
    for name in figures.names() {
        let [median, spread] = figures.spread(name);
        let over = self::median(figures.beyond(name, NONE));
        let rival = rival(name);
        let ratio =
            if name == NONE { String::new() } else { format!("{:.2}", overhead(figures, name, rival)) };
        row([name.to_owned(), median, spread, format!("{over:.1}"), ratio]);
    }
    println!();
}

fn rival(name: &str) -> &'static str {
    match name {
        OURS_FIELDS | THEIRS_FIELDS => THEIRS_FIELDS,
        OURS_DENIED | THEIRS_DENIED => THEIRS_DENIED,
        _ => THEIRS,
    }
}

/// The overhead of one as a share of the other's: of their medians, as the difference of two
/// figures of one round is noise for the most part.
fn overhead(figures: &Rounds, name: &str, rival: &str) -> f64 {
    median(figures.beyond(name, NONE)) / median(figures.beyond(rival, NONE))
}

fn bars(figures: &[Rounds; 2]) {
    println!("Bars:\n");
    head(["what", "compared with", "ratio", "bar", ""]);
    for (figures, who) in figures.iter().zip(["one address", "100,000 addresses"]) {
        for (ours, theirs) in [(OURS, THEIRS), (OURS_FIELDS, THEIRS_FIELDS), (OURS_DENIED, THEIRS_DENIED)] {
            let ratio = overhead(figures, ours, theirs);
            row([
                format!("overhead of {ours}, {who}"),
                format!("overhead of {theirs}"),
                format!("{ratio:.2}"),
                "1.0".into(),
                verdict(ratio <= 1.0),
            ]);
        }
    }
}

fn app() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn contenders(addresses: &[Ipv4Addr]) -> Vec<Contender<'_>> {
    let limiter = |limit: &str| Limiter::new(limit).expect("a limit");
    let plenty = || {
        let mut config = GovernorConfigBuilder::default();
        config.per_nanosecond(1).burst_size(1_000_000_000);
        config
    };
    let mut hardly = GovernorConfigBuilder::default();
    hardly.per_second(3600).burst_size(1);
    let theirs = GovernorLayer::new(plenty().finish().expect("a quota"));
    let theirs_fields = GovernorLayer::new(plenty().use_headers().finish().expect("a quota"));
    let theirs_denied = GovernorLayer::new(hardly.finish().expect("a quota"));
    let yes = StatusCode::OK;
    vec![
        contender(NONE, app(), addresses, yes),
        contender(OURS, app().layer(RateLimitLayer::new(limiter(PLENTY)).headers(false)), addresses, yes),
        contender(THEIRS, app().layer(theirs), addresses, yes),
        contender(OURS_FIELDS, app().layer(RateLimitLayer::new(limiter(PLENTY))), addresses, yes),
        contender(THEIRS_FIELDS, app().layer(theirs_fields), addresses, yes),
        denied(OURS_DENIED, app().layer(RateLimitLayer::new(limiter(HARDLY))), addresses),
        denied(THEIRS_DENIED, app().layer(theirs_denied), addresses),
    ]
}

/// All but the first request of each address are denied. There are fewer of them, as tower_governor
/// takes its time for a denial: it calibrates a clock for each.
fn denied<'a>(name: &str, mut app: Router, addresses: &'a [Ipv4Addr]) -> Contender<'a> {
    let addresses = &addresses[..DENIED];
    requests(&mut app, addresses, None);
    contender(name, app, addresses, StatusCode::TOO_MANY_REQUESTS)
}

fn contender<'a>(
    name: &str,
    mut app: Router,
    addresses: &'a [Ipv4Addr],
    expected: StatusCode,
) -> Contender<'a> {
    (name.to_owned(), Box::new(move || requests(&mut app, addresses, Some(expected))))
}

/// One request after another, each from the next address; what each took in nanoseconds.
fn requests(app: &mut Router, addresses: &[Ipv4Addr], expected: Option<StatusCode>) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let began = own_thread_cpu();
        for address in addresses {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(ConnectInfo(SocketAddr::from((*address, 4711))));
            let response = black_box(app.call(request).await);
            let Ok(response) = response;
            assert!(expected.is_none_or(|expected| response.status() == expected), "{}", response.status());
        }
        (own_thread_cpu() - began).as_nanos() as f64 / addresses.len() as f64
    })
}
