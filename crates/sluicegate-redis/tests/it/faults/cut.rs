//! Connections that break in the middle of a reply, and replies that never come.

use crate::support::{
    LONG, PATIENCE, by, connect, connect_by_default, limiter, panics, until_answered, watch_for_panics,
};
use redis_testkit::{Options, Proxy, Server};
use sluicegate::Time;
use sluicegate::backend::StoreFailure;
use sluicegate_redis::{DEADLINE_DEFAULT, RedisStore, check_each};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A time of our own: replies tell it, and those of the store's time have not all the same length.
fn now() -> Time {
    Time::from_micros(1_763_290_000_000_000).unwrap()
}

fn behind_a_proxy() -> (Server, Proxy) {
    watch_for_panics();
    let server = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

#[tokio::test]
async fn a_reply_cut_at_any_byte_is_a_lost_call_that_was_charged_once() {
    let (_server, proxy) = behind_a_proxy();
    let store = connect(&proxy.url()).await;
    for limit in ["token-bucket", "fixed-window", "sliding-log", "sliding-window"] {
        let limiter = limiter(&store, &format!("{limit} 100/{LONG}"));
        assert!(limiter.check_at("first of all", 1, now()).await.unwrap().allowed());
        let before = proxy.reply_bytes();
        assert!(limiter.check_at("a key", 1, now()).await.unwrap().allowed());
        let length = proxy.reply_bytes() - before;
        for byte in 0..length {
            let key = format!("cut after {byte}");
            proxy.cut_after(byte);
            let failure = limiter.check_at(&key, 1, now()).await.expect_err("no whole reply");
            assert!(matches!(failure, StoreFailure::Disconnected(_)), "{limit}, byte {byte}: {failure:?}");
            until_answered(&limiter).await;
            let answer = limiter.peek_at(&key, 1, now()).await.unwrap();
            assert_eq!(answer.remaining(), 99, "{limit}, byte {byte}");
        }
        assert_eq!(panics(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn of_calls_made_together_those_whose_reply_was_cut_fail_and_the_others_do_not() {
    let (_server, proxy) = behind_a_proxy();
    let store = connect(&proxy.url()).await;
    let limiter = limiter(&store, &format!("token-bucket 100/{LONG}"));
    let three = |byte: u64| ["one", "two", "three"].map(|name| format!("{name} {byte}"));
    // The script is there already when bytes are counted.
    assert!(limiter.check_at("first of all", 1, now()).await.unwrap().allowed());
    let whole = three(u64::MAX);
    let calls: Vec<_> = whole.iter().map(|key| limiter.call(key.as_bytes(), 1).at(now())).collect();
    let before = proxy.reply_bytes();
    assert!(check_each(&calls).await.iter().all(Result::is_ok));
    let length = proxy.reply_bytes() - before;
    for byte in 0..length {
        let keys = three(byte);
        let calls: Vec<_> = keys.iter().map(|key| limiter.call(key.as_bytes(), 1).at(now())).collect();
        proxy.cut_after(byte);
        let answers = check_each(&calls).await;
        until_answered(&limiter).await;
        assert!(answers[2].is_err(), "byte {byte}");
        for (key, answer) in keys.iter().zip(&answers) {
            let used = 100 - limiter.peek_at(key, 1, now()).await.unwrap().remaining();
            match answer {
                Ok(answer) => assert!(answer.allowed() && used == 1, "{key}: {used} used, {answer:?}"),
                Err(failure) => {
                    assert!(failure.may_have_charged() && used <= 1, "{key}: {used} used, {failure}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_connection_cut_while_it_is_made_is_an_error_or_made_again() {
    let (_server, proxy) = behind_a_proxy();
    drop(connect(&proxy.url()).await);
    let length = proxy.reply_bytes();
    assert!(length > 0);
    // What a server says of itself is long; of its many bytes some are enough.
    let step = usize::try_from(length / 100).unwrap().max(1);
    for byte in (0..length).step_by(step) {
        proxy.cut_after(byte);
        let store = timeout(PATIENCE, RedisStore::connect(&proxy.url())).await;
        if let Ok(store) = store.unwrap_or_else(|_| panic!("byte {byte}: it hangs")) {
            until_answered(&limiter(&store, "token-bucket 1/s")).await;
        }
    }
    assert_eq!(panics(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_not_waited_for_when_connecting() {
    let (_server, proxy) = behind_a_proxy();
    proxy.hold(true);
    let began = Instant::now();
    assert!(RedisStore::connect(&proxy.url()).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_call_whose_reply_is_lost_was_charged_at_most_once() {
    let (server, proxy) = behind_a_proxy();
    let limit = format!("sliding-log 100/{LONG}");
    let limiter_by = |store| limiter(&store, &limit);
    let limiter = limiter_by(connect_by_default(&proxy.url()).await);
    let patient = limiter_by(connect(&server.url()).await);
    let mut may_have_charged = 0;
    for round in 0..20 {
        until_answered(&limiter).await;
        proxy.lose_replies(true);
        let mut failures = Vec::new();
        for call in 0..5 {
            let key = format!("{round} {call}");
            let (answer, in_time) = by(DEADLINE_DEFAULT, limiter.check(&key)).await;
            assert!(in_time);
            failures.push((key, answer.expect_err("the reply is lost")));
        }
        proxy.lose_replies(false);
        until_answered(&limiter).await;
        for (key, failure) in failures {
            let used = 100 - patient.peek(&key, 1).await.unwrap().remaining();
            let most = u64::from(failure.may_have_charged());
            assert!(used <= most, "{key}: {used} used, {failure}");
            may_have_charged += most;
        }
    }
    assert!(may_have_charged >= 20, "at least the first call of each round has reached the store");
}
