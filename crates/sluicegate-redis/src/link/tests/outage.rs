//! Servers that die, freeze, start late or lose their replies.

use super::*;
use crate::link::CONNECT_WAIT;
use redis_testkit::{Options, Proxy};

/// How late a timer may fire.
const TIMER_STEP: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_costs_nothing_and_is_used_again_after_restart() {
    let server = Server::start(&Options::redis());
    let link = link_with(&server.url(), SHORT).await;
    assert!(link.health()[0].connected && !link.health()[0].breaker_open);
    for _ in 0..3 {
        link.add("k").await.unwrap();
        server.kill();
        down(&link).await;
        assert_free_of_cost(&link);
        eventually("its health says so", async || {
            let health = link.health().remove(0);
            !health.connected && health.breaker_open
        })
        .await;
        assert_eq!(link.health()[0].address, format!("127.0.0.1:{}", server.port()));
        server.restart();
        back(&link).await;
    }
}

#[tokio::test]
async fn a_frozen_server_is_noticed_and_no_call_exceeds_its_deadline() {
    let server = Server::start(&Options::redis());
    let link = link_with(&server.url(), SHORT).await;
    link.add("k").await.unwrap();
    server.stop();
    // Nothing from outside is waited for, so time can be paused and is exact.
    tokio::time::pause();
    let mut timed_out = 0;
    for _ in 0..10 {
        let began = Instant::now();
        match link.add_soon("k").await {
            Err(StoreFailure::TimedOut { deadline }) => {
                assert_eq!(deadline, SHORT);
                timed_out += 1;
            }
            Err(StoreFailure::Unavailable(_)) => {}
            other => panic!("{other:?} from a frozen server"),
        }
        assert!(began.elapsed() <= SHORT + TIMER_STEP, "{:?}", began.elapsed());
    }
    assert_eq!(timed_out, 5, "the breaker opens after five failures");
    assert_free_of_cost(&link);
    // The probe fails too, and the connection is dropped.
    eventually("the connection is dropped", async || !link.health()[0].connected).await;
    tokio::time::resume();
    server.cont();
    back(&link).await;
    let Ok(Value::Int(count)) = link.add("k").await else { panic!("no answer") };
    // The first call, the last, and those sent before the server froze, each at most once.
    assert!((2..=7).contains(&count), "charged {count} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_fails_no_later_call() {
    let server = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    let link = link(&proxy.url()).await;
    for count in 1..=20 {
        assert_eq!(link.add("k").await, Ok(Value::Int(count)));
        let before = proxy.accepted();
        proxy.cut();
        // Until then a call could be sent over the old connection and be lost.
        eventually("there is a new connection", async || proxy.accepted() > before).await;
    }
    assert_eq!(link.health()[0].failures, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_reply_is_lost_is_charged_once() {
    let server = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    let link = link_with(&proxy.url(), SHORT).await;
    link.add("other").await.unwrap();
    proxy.lose_replies(true);
    let late = link.add_soon("k").await;
    assert_eq!(late, Err(StoreFailure::TimedOut { deadline: SHORT }));
    eventually("the call has arrived", async || server.cli(&["GET", "k"]) == "1").await;
    proxy.lose_replies(false);
    proxy.cut();
    back(&link).await;
    assert_eq!(server.cli(&["GET", "k"]), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_byte_of_a_reply_loses_that_call_only() {
    let server = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    let link = link(&proxy.url()).await;
    link.one(&echo("k", "0123456789"), Instant::now() + GENEROUS).await.unwrap();
    for bytes in 0..17 {
        proxy.cut_after(bytes);
        let failed = link.one(&echo("k", "0123456789"), Instant::now() + GENEROUS).await;
        // "$10\r\n0123456789\r\n" has 17 bytes.
        assert!(matches!(failed, Err(StoreFailure::Disconnected(_))), "cut after {bytes}: {failed:?}");
        eventually("the connection is back", async || {
            link.one(&echo("k", "x"), Instant::now() + GENEROUS).await == text("x")
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_counts_as_failing_until_it_is_done() {
    let server = Server::start(&Options::redis().with("busy-reply-threshold 10"));
    let link = link_with(&server.url(), SHORT).await;
    link.add("k").await.unwrap();
    let mut busy = server.client().unwrap();
    let busy = std::thread::spawn(move || busy.ask(&["EVAL", "while true do end", "0"]));
    down(&link).await;
    assert_free_of_cost(&link);
    eventually("the script is killed", async || server.cli(&["SCRIPT", "KILL"]) == "OK").await;
    busy.join().unwrap().unwrap();
    back(&link).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_may_start_before_its_server() {
    let server = Server::start(&Options::redis());
    server.kill();
    let later = StoreSettings { connect_later: true, ..settings(&server.url(), SHORT) };
    let link = Link::connect(&later).await.expect("a link that connects later");
    down(&link).await;
    assert_free_of_cost(&link);
    server.restart();
    back(&link).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_but_never_replies_opens_the_breaker() {
    let server = Server::start(&Options::redis());
    server.stop();
    let later = StoreSettings { connect_later: true, ..settings(&server.url(), SHORT) };
    let link = Link::connect(&later).await.expect("a link that connects later");
    // Nothing was sent, so nothing can have been charged; but five callers wait for the connection.
    for _ in 0..5 {
        let began = Instant::now();
        assert!(matches!(link.add_soon("k").await, Err(StoreFailure::Unavailable(_))));
        assert!(began.elapsed() <= SHORT + TIMER_STEP, "{:?}", began.elapsed());
    }
    assert_free_of_cost(&link);
    tokio::time::resume();
    server.cont();
    back(&link).await;
}

#[tokio::test(start_paused = true)]
async fn connecting_to_a_closed_port_fails() {
    let server = Server::start(&Options::redis());
    server.kill();
    let began = Instant::now();
    let error = rejected(&server.url().replace("redis://", "redis://:secret@")).await;
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error}");
    assert!(error.to_string().contains(&server.port().to_string()) && !error.to_string().contains("secret"));
    assert!(began.elapsed() <= CONNECT_WAIT + TIMER_STEP, "{:?}", began.elapsed());
}
