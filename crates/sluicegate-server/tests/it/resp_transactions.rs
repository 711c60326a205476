//! `MULTI`, `EXEC` and `DISCARD`: nothing is charged before `EXEC`.

use crate::redis_store::Redis;
use crate::resp_client::{Client, TestServer};
use crate::running::{config, rule};
use sluicegate::clock::ManualClock;
use sluicegate_server::auth::Password;
use sluicegate_server::connection_limits::ConnectionLimits;
use sluicegate_server::server::Config;

const ALLOWED: &str = "*7|:1|:5|:4|:-1|:60000|:0|$-1|";

fn server(config: Config) -> TestServer {
    let rules = vec![rule("reply", &["sliding-log 5/60s"]), rule("exports", &["concurrency 1 ttl=30s"])];
    TestServer::start_at(Config { rules, ..config }, &ManualClock::default())
}

fn ask(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(client.ask_words(line), *reply, "{line}");
    }
}

/// What a key has left, seen by another client.
fn remaining(server: &TestServer) -> String {
    server.client().ask_words("RL.PEEK reply user:42").split('|').nth(3).unwrap().to_owned()
}

#[test]
fn queued_commands_run_in_order_at_exec() {
    let server = server(config());
    let mut client = server.client();
    ask(&mut client, &[("MULTI", "+OK|"), ("RL.CHECK reply user:42", "+QUEUED|"), ("PING", "+QUEUED|")]);
    ask(&mut client, &[("RL.CHECK reply user:42 COST 2", "+QUEUED|")]);
    assert_eq!(remaining(&server), ":5");
    let second = ALLOWED.replace(":4", ":2");
    ask(&mut client, &[("EXEC", &format!("*3|{ALLOWED}+PONG|{second}")), ("PING", "+PONG|")]);
    assert_eq!(remaining(&server), ":2");
    ask(&mut client, &[("MULTI", "+OK|"), ("EXEC", "*0|")]);
}

#[test]
fn discard_reset_and_a_disconnect_drop_the_queue() {
    let server = server(config());
    let mut client = server.client();
    let begin = [("MULTI", "+OK|"), ("RL.CHECK reply user:42", "+QUEUED|")];
    ask(&mut client, &begin);
    ask(&mut client, &[("DISCARD", "+OK|"), ("EXEC", "-ERR EXEC without MULTI|")]);
    ask(&mut client, &begin);
    ask(&mut client, &[("RESET", "+RESET|"), ("DISCARD", "-ERR DISCARD without MULTI|")]);
    ask(&mut client, &begin);
    drop(client);
    let mut client = server.client();
    ask(&mut client, &begin);
    client.send("QUIT\r\nEXEC\r\n");
    assert_eq!(client.rest(), "+OK|");
    assert_eq!(remaining(&server), ":5");
}

#[test]
fn an_error_while_queueing_makes_exec_fail() {
    let server = server(config());
    let mut client = server.client();
    let aborted = ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|");
    for (bad, error) in [
        ("NOPE", "-ERR unknown command 'NOPE'; COMMAND LIST lists all commands|"),
        ("RL.CHECK reply", "-ERR wrong number of arguments for 'rl.check' command|"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command|"),
        (
            "WATCH k",
            "-ERR WATCH is not supported: keys are not watched; RL.CHECKALL charges several keys all or nothing|",
        ),
    ] {
        ask(&mut client, &[("MULTI", "+OK|"), ("RL.CHECK reply user:42", "+QUEUED|"), (bad, error)]);
        ask(&mut client, &[("RL.CHECK reply user:42", "+QUEUED|"), aborted]);
    }
    assert_eq!(remaining(&server), ":5");
    // A nested MULTI is an error that changes nothing, as in Redis.
    ask(&mut client, &[("MULTI", "+OK|"), ("MULTI", "-ERR MULTI calls can not be nested|")]);
    ask(&mut client, &[("PING", "+QUEUED|"), ("EXEC", "*1|+PONG|")]);
}

/// Every reply here is Redis's own, byte for byte. Other texts differ on purpose: ours say what to
/// do instead.
#[test]
fn replies_are_those_of_redis() {
    let (redis, ours) = (Redis::start(), server(config()));
    let mut differing = Vec::new();
    for lines in [
        "MULTI, PING, ECHO a, EXEC",
        "multi, ping, exec",
        "MULTI, EXEC",
        "EXEC",
        "DISCARD",
        "MULTI, PING, DISCARD, DISCARD",
        "MULTI, MULTI, PING, EXEC",
        "MULTI x",
        "EXEC x",
        "DISCARD x",
        "MULTI, PING, MULTI x, EXEC",
        "MULTI, PING, EXEC x, PING, EXEC",
        "MULTI, PING, DISCARD x, EXEC",
        "MULTI, ECHO, PING, EXEC x",
        "MULTI, ECHO, PING, EXEC, PING",
        "MULTI, ECHO, DISCARD",
        "MULTI, PING, RESET, EXEC",
        "MULTI, PING, RESET x, EXEC",
        "MULTI, SELECT 0, SELECT x, PING, EXEC",
        "MULTI, CLIENT SETNAME a, CLIENT GETNAME, EXEC, CLIENT GETNAME",
        "MULTI, AUTH x, AUTH default y, EXEC",
        "MULTI, HELLO x, PING, EXEC",
    ] {
        let bytes = lines.replace(", ", "\r\n") + "\r\nQUIT\r\n";
        let addresses = [format!("127.0.0.1:{}", redis.0.port()), ours.address.to_string()];
        let [theirs, ours] = addresses.map(|address| {
            let mut client = Client::connect(address);
            client.send(&bytes);
            client.rest()
        });
        if theirs != ours {
            differing.push(format!("{lines}\n  Redis {theirs}\n  ours  {ours}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn an_error_while_running_is_an_item_of_the_reply() {
    let server = server(config());
    let mut client = server.client();
    ask(&mut client, &[("MULTI", "+OK|"), ("RL.CHECK nope user:42", "+QUEUED|")]);
    ask(&mut client, &[("RL.CHECK reply user:42 COST many", "+QUEUED|")]);
    ask(&mut client, &[("RL.CHECK reply user:42", "+QUEUED|")]);
    let nope = "-ERR no rule is called \"nope\"; RL.RULES and GET /v1/rules list the rules, and a limit is \
                written like \"sliding-log 5/60s\"|";
    let many = "-ERR cost \"many\" is not a whole number; use digits only|";
    ask(&mut client, &[("EXEC", &format!("*3|{nope}{many}{ALLOWED}"))]);
}

#[test]
fn a_lease_is_not_waited_for() {
    let server = server(config());
    let mut client = server.client();
    ask(&mut client, &[("MULTI", "+OK|"), ("RL.ACQUIRE exports acme", "+QUEUED|")]);
    ask(&mut client, &[("RL.ACQUIRE exports acme MAXWAIT 60000", "+QUEUED|"), ("PING", "+QUEUED|")]);
    let replies = client.ask_words("EXEC");
    let denied = "*8|:0|:1|:0|:30000|:30000|:0|$21|concurrency 1 ttl=30s|$-1|+PONG|";
    assert!(replies.starts_with("*3|*8|:1|") && replies.ends_with(denied), "{replies}");
}

#[test]
fn the_queue_is_bounded() {
    let limits = ConnectionLimits { command_len_max: 1024, ..ConnectionLimits::default() };
    let server = server(Config { limits, ..config() });
    let mut client = server.client();
    let aborted = ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|");
    let full = "-ERR a transaction has at most 1024 bytes; send EXEC earlier, or the rest without MULTI|";
    let long = format!("ECHO {}", "x".repeat(500));
    ask(&mut client, &[("MULTI", "+OK|"), (&long, "+QUEUED|"), (&long, full), (&long, "+QUEUED|"), aborted]);

    let server = self::server(config());
    let mut client = server.client();
    client.send("MULTI\r\n".to_owned() + &"PING\r\n".repeat(1_025));
    assert_eq!(client.shown(), "+OK|");
    assert!((0..1_024).all(|_| client.shown() == "+QUEUED|"));
    let full = "-ERR a transaction has at most 1024 commands; send EXEC earlier, or the rest without MULTI|";
    assert_eq!(client.shown(), full);
    ask(&mut client, &[aborted]);
    client.send("MULTI\r\n".to_owned() + &"PING\r\n".repeat(1_024) + "EXEC\r\nECHO end\r\n");
    let queued = (0..1_025).map(|_| client.shown()).skip(1).all(|reply| reply == "+QUEUED|");
    assert!(queued && client.shown() == "*1024|".to_owned() + &"+PONG|".repeat(1_024));
    assert_eq!(client.shown(), "$3|end|");
}

/// Replies of a transaction are sent as they are written: a client that reads none of them does not
/// make the server hold them all.
#[test]
fn large_replies_arrive_whole() {
    let server = server(config());
    let mut client = server.client();
    let replies = {
        client.send("COMMAND DOCS\r\n");
        client.shown()
    };
    client.send("MULTI\r\n".to_owned() + &"COMMAND DOCS\r\n".repeat(100) + "EXEC\r\n");
    (0..101).for_each(|_| drop(client.reply()));
    assert_eq!(client.shown(), "*100|".to_owned() + &replies.repeat(100));
}

#[test]
fn a_transaction_needs_the_password_and_survives_hello() {
    let server = server(Config { password: Some(Password::new(b"sesame").unwrap()), ..config() });
    let mut client = server.client();
    let no_auth = "-NOAUTH Authentication required.|";
    ask(&mut client, &[("MULTI", no_auth), ("EXEC", no_auth), ("AUTH sesame", "+OK|")]);
    ask(&mut client, &[("MULTI", "+OK|"), ("HELLO 3", "+QUEUED|"), ("RL.CHECK reply user:42", "+QUEUED|")]);
    let replies = client.ask_words("EXEC");
    assert!(replies.starts_with("*2|%7|") && replies.ends_with("|*7|:1|:5|:4|:-1|:60000|:0|_|"), "{replies}");
}

#[test]
fn the_redis_crate_sends_atomic_pipelines() {
    type Decision = (bool, i64, i64, i64, i64, i64, Option<String>);
    let server = server(config());
    let client = redis::Client::open(format!("redis://{}/", server.address)).unwrap();
    let mut pipeline = redis::pipe();
    for _ in 0..2 {
        pipeline.atomic().cmd("RL.CHECK").arg("reply").arg("user:42");
    }
    let decisions: Vec<Decision> = pipeline.query(&mut client.get_connection().unwrap()).unwrap();
    assert_eq!(decisions.iter().map(|decision| decision.2).collect::<Vec<_>>(), [4, 3]);
}
