//! Leases over RESP: replies, waiting, and clients that disconnect.

use crate::leasing::{LONG_MS, hold, is_free, lease_in, release, wait_for_waiters};
use crate::resp_client::{Client, TestServer, array, words};
use crate::resp_clients::run;
use crate::running::{config, rule};
use sluicegate::clock::ManualClock;
use sluicegate_server::auth::Password;
use sluicegate_server::connection_limits::ConnectionLimits;
use sluicegate_server::engine::RuleSpec;
use sluicegate_server::server::Config;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn rules() -> Vec<RuleSpec> {
    vec![rule("exports", &["concurrency 1 ttl=60s"]), rule("reply", &["sliding-log 5/60s"])]
}

fn server() -> TestServer {
    TestServer::start(Config { rules: rules(), ..config() })
}

#[test]
fn replies() {
    let clock = ManualClock::default();
    let rules = vec![rule("exports", &["concurrency 2 ttl=30s"])];
    let server = TestServer::start_at(Config { rules, ..config() }, &clock);
    let mut client = server.client();
    let reply = client.ask("RL.ACQUIRE exports acme COST 2");
    let lease = lease_in(&reply).unwrap();
    assert_eq!(reply, format!("*8|:1|:2|:0|:-1|:30000|:0|$-1|$51|{lease}|"));
    let denied = "*8|:0|:2|:0|:30000|:30000|:0|$21|concurrency 2 ttl=30s|$-1|";
    assert_eq!(client.ask("rl.acquire exports acme maxwait 0"), denied);
    assert_eq!(client.ask("RL.ACQUIRE exports acme COST 0"), "*8|:1|:2|:0|:-1|:30000|:0|$-1|$-1|");
    assert_eq!(
        client.ask("RL.ACQUIRE exports acme COST 3"),
        "*8|:0|:2|:0|:-2|:30000|:0|$21|concurrency 2 ttl=30s|$-1|"
    );
    assert_eq!(client.ask("RL.PEEK exports acme"), "*7|:0|:2|:0|:30000|:30000|:0|$21|concurrency 2 ttl=30s|");
    clock.advance(Duration::from_secs(10));
    assert_eq!(client.ask(&format!("RL.RENEW exports acme {lease}")), ":1|");
    assert_eq!(client.ask("RL.PEEK exports acme COST 0"), "*7|:1|:2|:0|:-1|:30000|:0|$-1|");
    assert_eq!(client.ask(&format!("RL.RELEASE exports other {lease}")), ":0|");
    release(&mut client, "acme", &lease);
    assert_eq!(client.ask(&format!("RL.RENEW exports acme {lease}")), ":0|");
    assert_eq!(client.ask("HELLO 3").chars().next(), Some('%'));
    assert!(client.ask("RL.ACQUIRE exports acme").starts_with("*8|:1|:2|:1|:-1|:30000|:0|_|$51|"));
    assert_eq!(client.ask("RL.RESET exports acme"), "+OK|");
    assert_eq!(client.ask("RL.PEEK exports acme"), "*7|:1|:2|:2|:-1|:0|:0|_|");
}

#[test]
fn errors_say_what_to_write() {
    let server = server();
    let mut client = server.client();
    let use_acquire = "-ERR a concurrency limit grants leases, which a check cannot release; use RL.ACQUIRE or POST /v1/acquire|";
    for (command, reply) in [
        ("RL.CHECK exports acme", use_acquire),
        ("RL.CHECK exports acme MAXWAIT 5", use_acquire),
        ("RL.CHECK \"concurrency 3 ttl=1s\" acme", use_acquire),
        ("RL.TAKE exports acme 1", use_acquire),
        ("RL.RESERVE exports acme", use_acquire),
        ("RL.REFUND exports acme", use_acquire),
        ("RL.NEXT exports acme", use_acquire),
        ("RL.CHECKALL reply acme 1 exports acme 1", use_acquire),
        (
            "RL.ACQUIRE reply acme",
            "-ERR only a concurrency limit grants leases; use RL.CHECK or POST /v1/check|",
        ),
        (
            "RL.ACQUIRE exports acme MAXWAIT 60001",
            "-ERR a wait of 60001 ms is too long; use at most 60000 ms (lease_wait_max) and retry|",
        ),
        (
            "RL.ACQUIRE exports acme MAXWAIT soon",
            "-ERR MAXWAIT \"soon\" is not a whole number; use digits only|",
        ),
        ("RL.ACQUIRE exports", "-ERR wrong number of arguments for 'rl.acquire' command|"),
        ("RL.RENEW exports acme", "-ERR wrong number of arguments for 'rl.renew' command|"),
        ("RL.RELEASE exports acme lease", "-ERR not a lease id; pass the text from the acquire unchanged|"),
    ] {
        assert_eq!(client.ask_words(command), reply, "{command}");
        // Also in a batch, where calls are made ahead.
        let words = words(command);
        let bytes = array(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
        client.send([bytes, array(&[b"PING"])].concat());
        assert_eq!((client.shown().as_str(), client.shown().as_str()), (reply, "+PONG|"), "{command}");
    }
}

#[test]
fn lease_wait_max() {
    let within = |lease_wait_max| {
        let limits = ConnectionLimits { lease_wait_max, ..ConnectionLimits::default() };
        TestServer::start(Config { limits, rules: rules(), ..config() })
    };
    let server = within(Some(Duration::from_millis(30)));
    let mut client = server.client();
    hold(&mut client, "acme");
    assert!(client.ask("RL.ACQUIRE exports acme MAXWAIT 30").starts_with("*8|:0|"));
    assert!(client.ask("RL.ACQUIRE exports acme MAXWAIT 31").contains("use at most 30 ms (lease_wait_max)"));
    let server = within(None);
    assert_eq!(
        server.client().ask("RL.ACQUIRE exports acme MAXWAIT 1"),
        "-ERR waiting for leases is disabled (lease_wait_max = \"off\"); retry after retry_after|"
    );
}

#[test]
fn a_waiter_is_denied_when_its_time_is_over() {
    let server = server();
    let mut client = server.client();
    hold(&mut client, "acme");
    let began = Instant::now();
    assert!(client.ask("RL.ACQUIRE exports acme MAXWAIT 50").starts_with("*8|:0|:1|:0|"));
    assert!(began.elapsed() >= Duration::from_millis(50), "{:?}", began.elapsed());
}

#[test]
fn waiters_are_first_in_first_out() {
    let server = server();
    let mut holder = server.client();
    let mut lease = hold(&mut holder, "acme");
    let mut line: Vec<Client> = Vec::new();
    for place_in_line in 0..5 {
        let mut client = server.client();
        client.send(format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\n"));
        wait_for_waiters(&server.engine, place_in_line + 1);
        line.push(client);
    }
    for mut client in line {
        release(&mut holder, "acme", &lease);
        lease = lease_in(&client.shown()).unwrap();
        assert!(!is_free(&mut holder, "acme"));
    }
    release(&mut holder, "acme", &lease);
    assert!(is_free(&mut holder, "acme"));
}

#[test]
fn commands_around_a_wait_keep_their_order() {
    let server = server();
    let mut holder = server.client();
    let lease = hold(&mut holder, "acme");
    let mut client = server.client();
    client.send(format!("PING\r\nRL.CHECK reply user:42\r\nRL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\nECHO behind\r\nRL.ACQUIRE"));
    assert_eq!(client.shown(), "+PONG|");
    assert!(client.shown().starts_with("*7|:1|"));
    wait_for_waiters(&server.engine, 1);
    // The rest arrives in pieces while the call waits.
    client.send(format!(" exports acme MAXWAIT {LONG_MS}\r\n"));
    client.send("ECHO last\r\n");
    release(&mut holder, "acme", &lease);
    let lease = lease_in(&client.shown()).unwrap();
    assert_eq!(client.shown(), "$6|behind|");
    wait_for_waiters(&server.engine, 1);
    release(&mut holder, "acme", &lease);
    assert!(lease_in(&client.shown()).is_some());
    assert_eq!(client.shown(), "$4|last|");
}

#[test]
fn a_waiter_that_disconnects_leaves_the_queue() {
    let server = server();
    let mut holder = server.client();
    let lease = hold(&mut holder, "acme");
    // The last is more than the read-ahead of a waiting client, and less than the system buffers
    // besides.
    for sent in ["", "PING\r\n", &"ECHO x\r\n".repeat(2_000), &"ECHO x\r\n".repeat(10_000)] {
        let mut client = server.client();
        client.send(format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\n"));
        wait_for_waiters(&server.engine, 1);
        client.send(sent);
        drop(client);
        wait_for_waiters(&server.engine, 0);
    }
    release(&mut holder, "acme", &lease);
    assert!(is_free(&mut holder, "acme"));
}

/// Many clients disconnect behind more input than is read ahead, about when their lease is granted:
/// no lease is lost.
#[test]
fn a_disconnect_behind_unread_input_is_detected() {
    let server = server();
    let mut holder = server.client();
    for _ in 0..20 {
        let lease = hold(&mut holder, "acme");
        let mut client = server.client();
        client.send(format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\n"));
        client.send("ECHO x\r\n".repeat(10_000));
        wait_for_waiters(&server.engine, 1);
        drop(client);
        release(&mut holder, "acme", &lease);
        let reply = holder.ask(&format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}"));
        release(&mut holder, "acme", &lease_in(&reply).unwrap());
    }
}

#[test]
fn a_waiter_gets_a_permit_that_a_reload_adds() {
    let server = server();
    let mut holder = server.client();
    hold(&mut holder, "acme");
    let mut client = server.client();
    client.send(format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\n"));
    wait_for_waiters(&server.engine, 1);
    server.engine.load(vec![rule("exports", &["concurrency 2 ttl=60s"])]).unwrap();
    assert!(!is_free(&mut holder, "acme"), "one permit more, and a waiter for it");
    assert!(lease_in(&client.shown()).is_some());
    wait_for_waiters(&server.engine, 0);
}

#[test]
fn a_stopping_server_answers_waiters() {
    let server = server();
    let mut holder = server.client();
    hold(&mut holder, "acme");
    let mut client = server.client();
    client.send(format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\nECHO behind\r\n"));
    wait_for_waiters(&server.engine, 1);
    let began = Instant::now();
    let stopping = thread::spawn(move || server.stop());
    assert!(client.shown().starts_with("*8|:0|:1|:0|"));
    assert_eq!(client.shown(), "$6|behind|");
    assert_eq!(client.rest(), "");
    drop(holder);
    stopping.join().unwrap();
    assert!(began.elapsed() < Duration::from_millis(LONG_MS), "{:?}", began.elapsed());
}

#[test]
fn an_unauthenticated_client_does_not_wait() {
    let password = Some(Password::new(b"sesame").unwrap());
    let server = TestServer::start(Config { password, rules: rules(), ..config() });
    let mut client = server.client();
    assert!(client.ask(&format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}")).starts_with("-NOAUTH"));
}

#[test]
fn beyond_max_leases_calls_are_denied() {
    let settings = sluicegate_server::engine::Settings { max_leases: 3, max_keys: 100, ..Default::default() };
    let server = TestServer::start(Config { settings, rules: rules(), ..config() });
    let mut client = server.client();
    hold(&mut client, "a");
    let lease = hold(&mut client, "b");
    let reply = client.ask("RL.ACQUIRE exports c");
    assert!(reply.starts_with("*8|:0|:1|:0|:") && !reply.contains("concurrency"), "{reply}");
    release(&mut client, "b", &lease);
    hold(&mut client, "c");
}

#[test]
fn redis_cli_and_the_redis_crate_acquire_leases() {
    type Leased = (bool, i64, i64, i64, i64, i64, Option<String>, Option<String>);
    let server = server();
    let taken = run("redis-cli", &server, &["RL.ACQUIRE", "exports", "acme"]);
    let lease = taken.lines().last().unwrap();
    assert_eq!(lease.len(), 51, "{taken}");
    let client = redis::Client::open(format!("redis://{}/?protocol=resp3", server.address)).unwrap();
    let mut connection = client.get_connection().unwrap();
    let acquire = |connection: &mut redis::Connection, max_wait: u64| -> Leased {
        redis::cmd("RL.ACQUIRE")
            .arg("exports")
            .arg("acme")
            .arg("MAXWAIT")
            .arg(max_wait)
            .query(connection)
            .unwrap()
    };
    let (allowed, .., denied_by, none) = acquire(&mut connection, 0);
    assert_eq!((allowed, denied_by.as_deref(), none), (false, Some("concurrency 1 ttl=1min"), None));
    let waits = thread::spawn(move || acquire(&mut connection, LONG_MS));
    wait_for_waiters(&server.engine, 1);
    assert_eq!(run("redis-cli", &server, &["RL.RELEASE", "exports", "acme", lease]), "1\n");
    let (allowed, .., lease) = waits.join().unwrap();
    assert!(allowed && lease.is_some());
    assert!(run("redis-cli", &server, &["COMMAND", "DOCS", "rl.acquire"]).contains("Acquires a lease"));
}

/// Many clients wait, acquire, release and disconnect at random: the limit is never exceeded, and
/// in the end no permit is missing.
#[test]
fn churning_clients_never_exceed_the_limit() {
    const CLIENTS: u64 = 12;
    let rules = vec![rule("exports", &["concurrency 3 ttl=1h"])];
    let server = TestServer::start(Config { rules, ..config() });
    let (at_work, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, at_work, taken) = (&server, &at_work, &taken);
            scope.spawn(move || {
                let mut client = server.client();
                for round in 0..50 {
                    let max_wait = (number * 7 + round * 13) % 20;
                    let reply = client.ask(&format!("RL.ACQUIRE exports acme MAXWAIT {max_wait}"));
                    let Some(lease) = lease_in(&reply) else { continue };
                    let now = at_work.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= 3, "{now} at once");
                    taken.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    release(&mut client, "acme", &lease);
                }
            });
        }
    });
    assert!(taken.load(Ordering::SeqCst) > 100, "{taken:?}");
    assert_eq!(server.client().ask("RL.PEEK exports acme COST 3"), "*7|:1|:3|:3|:-1|:0|:0|$-1|");
}

/// Half of a queue disconnects while a lease is passed on. All others get it.
#[test]
fn waiters_that_disconnect_take_no_permit() {
    let server = server();
    let mut holder = server.client();
    let lease = hold(&mut holder, "acme");
    let mut line: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for (before, client) in line.iter_mut().enumerate() {
        client.send(format!("RL.ACQUIRE exports acme MAXWAIT {LONG_MS}\r\n"));
        wait_for_waiters(&server.engine, before + 1);
    }
    let mut stay: Vec<Client> = line.into_iter().step_by(2).collect();
    wait_for_waiters(&server.engine, 10);
    release(&mut holder, "acme", &lease);
    for client in &mut stay {
        let lease = lease_in(&client.shown()).unwrap();
        release(client, "acme", &lease);
    }
    assert!(is_free(&mut holder, "acme"));
}
