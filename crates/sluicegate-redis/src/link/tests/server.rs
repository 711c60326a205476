//! A single server: scripts, logins, TLS, rejections.

use super::*;
use redis_testkit::{Options, Replicated};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_answered_alone_and_in_batches() {
    let server = Server::start(&Options::redis());
    let link = link(&format!("{}/3", server.url())).await;
    assert!(!link.is_cluster());
    assert_eq!(link.add("k").await, Ok(Value::Int(1)));
    let calls = [add("k", 2), echo("k", "hello"), add("k", 4)];
    assert_eq!(link.each(&calls).await, [Ok(Value::Int(3)), text("hello"), Ok(Value::Int(7))]);
    assert_eq!(link.each(&[]).await, []);
    assert!(server.info("db3").contains("keys=1,expires=1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_loaded_again() {
    let server = Server::start(&Options::redis());
    let link = link(&server.url()).await;
    for wanted in 1..=3 {
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(link.add("k").await, Ok(Value::Int(wanted)));
        assert_eq!(loads(&server), u32::try_from(wanted).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_loads_each_missing_script_once() {
    let server = Server::start(&Options::redis());
    let link = link(&server.url()).await;
    let calls: Vec<ScriptCall> =
        (0..100).map(|n| if n % 2 == 0 { add("k", 1) } else { echo("k", &n.to_string()) }).collect();
    let wanted: Vec<_> =
        (0..100).map(|n| if n % 2 == 0 { Ok(Value::Int(n / 2 + 1)) } else { text(&n.to_string()) }).collect();
    assert_eq!(link.each(&calls).await, wanted);
    assert_eq!(loads(&server), 2);
    // Only one script is missing now, and only its calls are sent again.
    server.cli(&["SCRIPT", "FLUSH"]);
    server.cli(&["DEL", "k"]);
    assert_eq!(link.one(&echo("k", "x"), Instant::now() + GENEROUS).await, text("x"));
    assert_eq!(link.each(&calls).await, wanted);
    assert_eq!(loads(&server), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constant_script_flushes_fail_no_call() {
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
async fn a_password_logs_in_and_is_never_shown() {
    let server = Server::start(&Options::redis().password("secret"));
    assert_eq!(link(&server.url()).await.add("k").await, Ok(Value::Int(1)));
    for wrong in ["redis://:wrong-password@", "redis://unknown:wrong-password@", "redis://"] {
        let url = format!("{wrong}127.0.0.1:{}", server.port());
        let error = rejected(&url).await;
        assert!(matches!(error, ConnectError::Unfit(_)), "{error}");
        assert!(!error.to_string().contains("wrong-password"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_few_permissions() {
    let permissions = "~mine:* +evalsha +script|load +info +ping +select +incrby +pexpire";
    let server = Server::start(&Options::redis().user("app", "secret", permissions));
    let link = link(&server.url()).await;
    assert_eq!(link.add("mine:k").await, Ok(Value::Int(1)));
    let rejected = link.add("theirs:k").await;
    assert!(matches!(&rejected, Err(StoreFailure::Rejected(why)) if why.contains("NOPERM")), "{rejected:?}");
    // A rejection with a reason does not count as a failure.
    assert_eq!(link.health()[0].failures, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_script_load_gets_a_clear_error() {
    let server = Server::start(&Options::redis().user("app", "secret", "~* +evalsha +info +ping +incrby"));
    let rejected = link(&server.url()).await.add("k").await;
    assert!(
        matches!(&rejected, Err(StoreFailure::Rejected(why)) if why.contains("script|load")),
        "{rejected:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_connects_only_to_trusted_servers() {
    let server = Server::start(&Options::redis().tls());
    let trusting = StoreSettings {
        tls_ca: Some(server.certificate().into_bytes()),
        ..settings(&server.url(), GENEROUS)
    };
    let link = Link::connect(&trusting).await.expect("a trusted store");
    assert_eq!(link.add("k").await, Ok(Value::Int(1)));
    let error = rejected(&server.url()).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let garbage = StoreSettings { tls_ca: Some(b"garbage".to_vec()), ..settings(&server.url(), GENEROUS) };
    let error = Link::connect(&garbage).await.err().expect("an invalid certificate");
    assert!(error.to_string().contains("PEM"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_works() {
    let server = Server::start(&Options::redis().with("unixsocket redis.sock"));
    let folder = server.cli(&["CONFIG", "GET", "dir"]);
    let folder = folder.lines().last().expect("a folder");
    assert_eq!(link(&format!("redis+unix://{folder}/redis.sock")).await.add("k").await, Ok(Value::Int(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_rejects_a_call_before_its_script_runs() {
    let server = Server::start(&Options::redis());
    let link = link(&server.url()).await;
    assert_eq!(link.add("k").await, Ok(Value::Int(1)));
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let rejected = link.add("k").await;
    assert!(matches!(&rejected, Err(StoreFailure::Rejected(why)) if why.contains("OOM")), "{rejected:?}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(link.add("k").await, Ok(Value::Int(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_unusable_and_a_demoted_master_is_left() {
    let both = Replicated::start(&Options::redis());
    let error = rejected(&both.replica().url()).await;
    assert!(matches!(&error, ConnectError::Unfit(why) if why.contains("replica")), "{error}");
    let link = link(&both.master().url()).await;
    assert_eq!(link.add("k").await, Ok(Value::Int(1)));
    both.promote();
    let rejected = link.add("k").await;
    assert!(
        matches!(&rejected, Err(StoreFailure::Rejected(why)) if why.contains("READONLY")),
        "{rejected:?}"
    );
    let why = down(&link).await;
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
                    // Some calls are dropped before they are sent, some in flight.
                    let patience = Duration::from_micros(fastrand::u64(0..400));
                    let one = tokio::time::timeout(patience, link.one(&calls[0], until)).await;
                    let two = tokio::time::timeout(patience, link.send(&calls, until)).await;
                    match one {
                        Ok(answer) => assert_eq!(answer, text(&what)),
                        Err(_) => dropped += 1,
                    }
                    match two {
                        Ok(answers) => assert_eq!(answers, [text(&what), text(&format!("{what}-second"))]),
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
    assert!(dropped > 0, "no call was dropped, so the test proves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_works_too() {
    let Some(options) = Options::valkey() else { return };
    let server = Server::start(&options);
    let link = link(&server.url()).await;
    assert_eq!(link.each(&[add("k", 1), echo("k", "x")]).await, [Ok(Value::Int(1)), text("x")]);
}
