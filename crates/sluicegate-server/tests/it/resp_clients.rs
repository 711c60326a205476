//! Real clients: the redis crate, `redis-cli` and `redis-benchmark`.

use crate::resp_client::TestServer;
use crate::running::{config, rule};
use sluicegate::clock::ManualClock;
use sluicegate_server::auth::Password;
use sluicegate_server::server::Config;
use std::process::{Command, Output};

fn rules() -> Config {
    Config { rules: vec![rule("reply", &["sliding-log 5/60s"])], ..config() }
}

type Decision = (bool, i64, i64, i64, i64, i64, Option<String>);

fn check(key: &str) -> redis::Cmd {
    let mut command = redis::cmd("RL.CHECK");
    command.arg("reply").arg(key);
    command
}

#[test]
fn the_redis_crate_works_with_both_protocol_versions() {
    for (query, password) in [("", false), ("?protocol=resp3", false), ("", true), ("?protocol=resp3", true)]
    {
        let clock = ManualClock::default();
        let password = password.then(|| Password::new(b"sesame").unwrap());
        let user = if password.is_some() { ":sesame@" } else { "" };
        let server = TestServer::start_at(Config { password, ..rules() }, &clock);
        let url = format!("redis://{user}{}/{query}", server.address);
        let mut client = redis::Client::open(url).unwrap().get_connection().unwrap();
        let decision: Decision = check("user:42").query(&mut client).unwrap();
        assert_eq!(decision, (true, 5, 4, -1, 60_000, 0, None), "{query}");
        let throttled: (i64, i64, i64, i64, i64) =
            redis::cmd("CL.THROTTLE").arg("k").arg(15).arg(30).arg(60).query(&mut client).unwrap();
        assert_eq!(throttled, (0, 16, 15, -1, 2));
        let mut pipeline = redis::pipe();
        for _ in 0..6 {
            pipeline.add_command(check("user:7"));
        }
        let decisions: Vec<Decision> = pipeline.query(&mut client).unwrap();
        assert_eq!(decisions.iter().map(|decision| decision.2).collect::<Vec<_>>(), [4, 3, 2, 1, 0, 0]);
        assert_eq!(decisions[5], (false, 5, 0, 60_000, 60_000, 0, Some(String::from("sliding-log 5/min"))));
        let error = redis::cmd("RL.CHECK").arg("nope").arg("k").query::<Decision>(&mut client).unwrap_err();
        assert!(error.to_string().contains("no rule is called \"nope\""), "{error}");
        assert_eq!(redis::cmd("PING").query::<String>(&mut client).unwrap(), "PONG");
    }
}

#[test]
fn a_wrong_password_is_reported() {
    let server = TestServer::start(Config { password: Some(Password::new(b"sesame").unwrap()), ..rules() });
    let connect = |query: &str| {
        let url = format!("redis://:wrong@{}/{query}", server.address);
        redis::Client::open(url).unwrap().get_connection().err().unwrap()
    };
    assert_eq!(connect("").kind(), redis::ErrorKind::AuthenticationFailed);
    assert_eq!(connect("?protocol=resp3").code(), Some("WRONGPASS"));
}

#[test]
fn many_tasks_share_one_redis_crate_connection() {
    let server = TestServer::start(rules());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let allowed = runtime.block_on(async {
        let client = redis::Client::open(format!("redis://{}/?protocol=resp3", server.address)).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let mut connection = connection.clone();
            tasks.spawn(
                async move { check("user:42").query_async::<Decision>(&mut connection).await.unwrap().0 },
            );
        }
        tasks.join_all().await.into_iter().filter(|allowed| *allowed).count()
    });
    assert_eq!(allowed, 5, "five of two hundred at once");
}

/// Runs a tool that comes with Redis.
pub(crate) fn run(tool: &str, server: &TestServer, arguments: &[&str]) -> String {
    let port = server.address.port().to_string();
    let Output { status, stdout, stderr } =
        Command::new(tool).args(["-h", "127.0.0.1", "-p", &port]).args(arguments).output().unwrap_or_else(
            |error| {
                panic!("{tool}: {error}; this test needs it (Debian and Ubuntu: apt install redis-tools)")
            },
        );
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{tool} {arguments:?}: {stdout}{stderr}");
    stdout
}

#[test]
fn redis_cli() {
    let server = TestServer::start_at(rules(), &ManualClock::default());
    assert_eq!(run("redis-cli", &server, &["RL.CHECK", "reply", "user:42"]), "1\n5\n4\n-1\n60000\n0\n\n");
    assert_eq!(
        run(
            "redis-cli",
            &server,
            &["-3", "--no-raw", "RL.CHECK", "sliding-log 5/60s", "user:42", "COST", "6"]
        ),
        "1) (integer) 0\n2) (integer) 5\n3) (integer) 5\n4) (integer) -2\n5) (integer) 0\n6) (integer) 0\n7) \"sliding-log 5/min\"\n"
    );
    assert_eq!(run("redis-cli", &server, &["CL.THROTTLE", "user", "15", "30", "60"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(
        run("redis-cli", &server, &["INFO", "replication"]),
        "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"
    );
    assert!(run("redis-cli", &server, &["COMMAND", "DOCS", "rl.check"]).contains("Decides a call"));
    let server = TestServer::start(Config { password: Some(Password::new(b"sesame").unwrap()), ..rules() });
    assert_eq!(run("redis-cli", &server, &["PING"]), "NOAUTH Authentication required.\n\n");
    let said = run("redis-cli", &server, &["-a", "sesame", "--no-auth-warning", "-3", "PING"]);
    assert_eq!(said, "PONG\n");
}

#[test]
fn redis_benchmark() {
    let server = TestServer::start(rules());
    let said = run(
        "redis-benchmark",
        &server,
        &["-n", "2000", "-c", "4", "-P", "16", "-q", "RL.CHECK", "reply", "user:42"],
    );
    assert!(said.contains("requests per second"), "{said}");
    let tally = server.engine.rules().find("reply").unwrap().tally();
    assert_eq!((tally.allowed, tally.denied), (5, 1_995));
}
