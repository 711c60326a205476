//! What callers see of each fault, under each `on_store_failure`.

use crate::support::{LONG, connect, connect_by_default, until_answered};
use redis_testkit::{Options, Proxy, Server};
use sluicegate::backend::Source;
use sluicegate_redis::{OnStoreFailure, RedisLimiter, RedisStore};
use std::collections::BTreeMap;

/// Eight calls under a limit of 10, of which this process may admit 3 locally.
const CALLS: usize = 8;

const GOLDEN: &str = "\
fault            error     allow          deny          local
none             8 store   8 store        8 store       8 store
killed           8 errors  8 yes allowed  8 no denied   3 yes 5 no local
frozen           8 errors  8 yes allowed  8 no denied   3 yes 5 no local
nothing arrives  8 errors  8 yes allowed  8 no denied   3 yes 5 no local
replies lost     8 errors  8 yes allowed  8 no denied   3 yes 5 no local
no memory        8 errors  8 yes allowed  8 no denied   3 yes 5 no local
a replica        8 errors  8 yes allowed  8 no denied   3 yes 5 no local
";

const FAULTS: [&str; 7] =
    ["none", "killed", "frozen", "nothing arrives", "replies lost", "no memory", "a replica"];

const POLICIES: [OnStoreFailure; 4] =
    [OnStoreFailure::Error, OnStoreFailure::Allow, OnStoreFailure::Deny, OnStoreFailure::Local];

#[tokio::test]
async fn each_fault_is_answered_by_the_limiters_policy() {
    let server = Server::start(&Options::redis());
    let other = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    // Each fault fails however long a call waits; without a fault no call may time out.
    let (hasty, patient) = (connect_by_default(&proxy.url()).await, connect(&proxy.url()).await);
    let mut table = format!("{:<17}{:<10}{:<15}{:<14}local\n", "fault", "error", "allow", "deny");
    for fault in FAULTS {
        let store = if fault == "none" { &patient } else { &hasty };
        let limiters = POLICIES.map(|policy| limiter(store, fault, policy));
        for limiter in &limiters {
            until_answered(limiter).await;
        }
        begin(fault, &server, &other, &proxy);
        let mut cells = Vec::new();
        for limiter in &limiters {
            cells.push(outcome(limiter).await);
        }
        end(fault, &server, &proxy);
        for limiter in &limiters {
            until_answered(limiter).await;
        }
        let [error, allow, deny, local] = cells.try_into().unwrap();
        table += &format!("{fault:<17}{error:<10}{allow:<15}{deny:<14}{local}\n");
    }
    assert_eq!(table, GOLDEN, "\n{table}");
}

fn limiter(store: &RedisStore, fault: &str, policy: OnStoreFailure) -> RedisLimiter {
    let builder = RedisLimiter::builder(format!("sliding-log 10/{LONG}"));
    let builder = builder.in_store(store, &format!("{fault} {policy:?}"));
    builder.on_store_failure(policy).local_share(30).build().unwrap()
}

async fn outcome(limiter: &RedisLimiter) -> String {
    let mut counts: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for _ in 0..CALLS {
        let kind = match limiter.check("key").await {
            Err(_) => ("errors", true),
            Ok(answer) => (answer.source().as_str(), answer.allowed()),
        };
        *counts.entry(kind).or_default() += 1;
    }
    let words = |source: &str| {
        let count = |allowed| counts.get(&(source, allowed)).copied().unwrap_or(0);
        match (count(true), count(false)) {
            (0, 0) => None,
            (yes, 0) if [Source::Store.as_str(), "errors"].contains(&source) => {
                Some(format!("{yes} {source}"))
            }
            (yes, 0) => Some(format!("{yes} yes {source}")),
            (0, no) => Some(format!("{no} no {source}")),
            (yes, no) => Some(format!("{yes} yes {no} no {source}")),
        }
    };
    let parts: Vec<String> = ["errors", "store", "allowed", "denied", "local", "remembered"]
        .into_iter()
        .filter_map(words)
        .collect();
    parts.join(" and ")
}

fn begin(fault: &str, server: &Server, other: &Server, proxy: &Proxy) {
    match fault {
        "killed" => server.kill(),
        "frozen" => server.stop(),
        "nothing arrives" => proxy.hold(true),
        "replies lost" => proxy.lose_replies(true),
        "no memory" => assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK"),
        "a replica" => assert_eq!(server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]), "OK"),
        _ => {}
    }
}

fn end(fault: &str, server: &Server, proxy: &Proxy) {
    match fault {
        "killed" => server.restart(),
        "frozen" => server.cont(),
        "nothing arrives" => proxy.hold(false),
        "replies lost" => proxy.lose_replies(false),
        "no memory" => assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK"),
        "a replica" => assert_eq!(server.cli(&["REPLICAOF", "NO", "ONE"]), "OK"),
        _ => {}
    }
}
