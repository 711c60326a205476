//! One server: scripts, logins, TLS, refusals.

use super::*;
use redis_testkit::{Options, Replicated};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_answered_one_by_one_and_together() {
    let server = Server::start(&Options::redis());
    let link = link(&format!("{}/3", server.url())).await;
    assert!(!link.is_cluster());
    assert_eq!(link.add("k").await, Ok(Value::Int(1)));
    let calls = [add("k", 2), echo("k", "hello"), add("k", 4)];
    assert_eq!(link.each(&calls).await, [Ok(Value::Int(3)), said("hello"), Ok(Value::Int(7))]);
    assert_eq!(link.each(&[]).await, []);
    assert!(server.info("db3").contains("keys=1,expires=1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_were_flushed_are_loaded_again() {
    let server = Server::start(&Options::redis());
    let link = link(&server.url()).await;
    for wanted in 1..=3 {
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(link.add("k").await, Ok(Value::Int(wanted)));
        assert_eq!(loads(&server), u32::try_from(wanted).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_script_that_a_pipeline_misses_is_loaded_once_and_nothing_runs_twice() {
    let server = Server::start(&Options::redis());
    let link = link(&server.url()).await;
    let calls: Vec<ScriptCall> =
        (0..100).map(|n| if n % 2 == 0 { add("k", 1) } else { echo("k", &n.to_string()) }).collect();
    let wanted: Vec<_> =
        (0..100).map(|n| if n % 2 == 0 { Ok(Value::Int(n / 2 + 1)) } else { said(&n.to_string()) }).collect();
    assert_eq!(link.each(&calls).await, wanted);
    assert_eq!(loads(&server), 2);
    // Only one of the two is missing now, and only its calls are sent again.
    server.cli(&["SCRIPT", "FLUSH"]);
    server.cli(&["DEL", "k"]);
    assert_eq!(link.one(&echo("k", "x"), Instant::now() + GENEROUS).await, said("x"));
    assert_eq!(link.each(&calls).await, wanted);
    assert_eq!(loads(&server), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_scripts_are_flushed_all_the_time() {
    let server = Server::start(&Options::redis());
    let link = link(&server.url()).await;
    let mut flusher = server.client().unwrap();
    for wanted in 1..=500 {
        flusher.ask(&["SCRIPT", "FLUSH"]).unwrap();
        let answers = link.each(&[add("k", 1), add("l", 1)]).await;
        assert_eq!(answers, [Ok(Value::Int(wanted)), Ok(Value::Int(wanted))]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_opens_the_door_and_is_never_shown() {
    let server = Server::start(&Options::redis().password("geheim"));
    assert_eq!(link(&server.url()).await.add("k").await, Ok(Value::Int(1)));
    for wrong in ["redis://:falsch@", "redis://nobody:falsch@", "redis://"] {
        let url = format!("{wrong}127.0.0.1:{}", server.port());
        let error = denial(&url).await;
        assert!(matches!(error, ConnectError::Unfit(_)), "{error}");
        assert!(!error.to_string().contains("falsch"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_few_rights() {
    let rights = "~mine:* +evalsha +script|load +info +ping +select +incrby +pexpire";
    let server = Server::start(&Options::redis().user("app", "geheim", rights));
    let link = link(&server.url()).await;
    assert_eq!(link.add("mine:k").await, Ok(Value::Int(1)));
    let refused = link.add("theirs:k").await;
    assert!(matches!(&refused, Err(StoreFailure::Rejected(why)) if why.contains("NOPERM")), "{refused:?}");
    // A denial with a reason says nothing against the server.
    assert_eq!(link.health()[0].failures, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_must_not_load_scripts_is_told_so() {
    let server = Server::start(&Options::redis().user("app", "geheim", "~* +evalsha +info +ping +incrby"));
    let refused = link(&server.url()).await.add("k").await;
    assert!(
        matches!(&refused, Err(StoreFailure::Rejected(why)) if why.contains("script|load")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_spoken_with_those_who_are_trusted() {
    let server = Server::start(&Options::redis().tls());
    let trusting =
        Settings { tls_ca: Some(server.certificate().into_bytes()), ..settings(&server.url(), GENEROUS) };
    let link = Link::connect(&trusting).await.expect("a store that is trusted");
    assert_eq!(link.add("k").await, Ok(Value::Int(1)));
    let error = denial(&server.url()).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let garbage = Settings { tls_ca: Some(b"garbage".to_vec()), ..settings(&server.url(), GENEROUS) };
    let error = Link::connect(&garbage).await.err().expect("no certificate at all");
    assert!(error.to_string().contains("PEM"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_is_a_way_too() {
    let server = Server::start(&Options::redis().with("unixsocket redis.sock"));
    let folder = server.cli(&["CONFIG", "GET", "dir"]);
    let folder = folder.lines().last().expect("a folder");
    assert_eq!(link(&format!("redis+unix://{folder}/redis.sock")).await.add("k").await, Ok(Value::Int(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_in_its_own_words_before_the_script_runs() {
    let server = Server::start(&Options::redis());
    let link = link(&server.url()).await;
    assert_eq!(link.add("k").await, Ok(Value::Int(1)));
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = link.add("k").await;
    assert!(matches!(&refused, Err(StoreFailure::Rejected(why)) if why.contains("OOM")), "{refused:?}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(link.add("k").await, Ok(Value::Int(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_no_store_and_a_master_that_becomes_one_is_left() {
    let both = Replicated::start(&Options::redis());
    let error = denial(&both.replica().url()).await;
    assert!(matches!(&error, ConnectError::Unfit(why) if why.contains("replica")), "{error}");
    let link = link(&both.master().url()).await;
    assert_eq!(link.add("k").await, Ok(Value::Int(1)));
    both.promote();
    let refused = link.add("k").await;
    assert!(matches!(&refused, Err(StoreFailure::Rejected(why)) if why.contains("READONLY")), "{refused:?}");
    let why = away(&link).await;
    assert!(why.contains("replica"), "{why}");
    assert_free_of_cost(&link);
    both.master().cli(&["REPLICAOF", "NO", "ONE"]);
    back(&link).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_stay_with_their_calls_when_calls_are_dropped() {
    let server = Server::start(&Options::redis());
    let link = std::sync::Arc::new(link(&server.url()).await);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let link = std::sync::Arc::clone(&link);
            tokio::spawn(async move {
                let mut dropped = 0;
                for n in 0..2000 {
                    let what = format!("{task}-{n}");
                    let calls = [echo("k", &what), echo("k", &format!("{what}-second"))];
                    let until = Instant::now() + GENEROUS;
                    // Some are dropped before they are sent, some while they are under way.
                    let patience = Duration::from_micros(fastrand::u64(0..400));
                    let one = tokio::time::timeout(patience, link.one(&calls[0], until)).await;
                    let two = tokio::time::timeout(patience, link.send(&calls, until)).await;
                    match one {
                        Ok(answer) => assert_eq!(answer, said(&what)),
                        Err(_) => dropped += 1,
                    }
                    match two {
                        Ok(answers) => assert_eq!(answers, [said(&what), said(&format!("{what}-second"))]),
                        Err(_) => dropped += 1,
                    }
                }
                dropped
            })
        })
        .collect();
    let mut dropped = 0;
    for task in tasks {
        dropped += task.await.unwrap();
    }
    assert!(dropped > 0, "no call was dropped, so nothing was shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_is_as_good() {
    let Some(options) = Options::valkey() else { return };
    let server = Server::start(&options);
    let link = link(&server.url()).await;
    assert_eq!(link.each(&[add("k", 1), echo("k", "x")]).await, [Ok(Value::Int(1)), said("x")]);
}
