//! Bytes in, bytes out: every command in both versions of the protocol.

use crate::resp_client::{Client, TestServer, array, shown};
use crate::running::{config, rule};
use sluicegate::Time;
use sluicegate::clock::ManualClock;
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_server::auth::Password;
use sluicegate_server::engine::KeySpec;
use sluicegate_server::server::Config;
use std::time::Duration;

/// A command, its reply in RESP2, and where it differs in RESP3. `|` is a line end.
type Row<'a> = (&'a str, &'a str, Option<&'a str>);

/// 2023-11-14T22:13:20Z and half a millisecond: what is rounded up shows.
fn clock() -> ManualClock {
    ManualClock::at(Time::from_micros(1_700_000_000_000_500).unwrap())
}

fn rules() -> Config {
    let mut exceptions = rule("api", &["token-bucket 10/s burst=50", "fixed-window 1000/d"]);
    exceptions.shadow = true;
    exceptions.keys = vec![(b"vip".to_vec(), KeySpec::Unlimited), (b"bad".to_vec(), KeySpec::Blocked)];
    Config {
        rules: vec![
            rule("reply", &["sliding-log 5/60s"]),
            exceptions,
            rule("third", &["token-bucket 3/s burst=1"]),
            rule("queue", &["pacer 10/s queue=2"]),
            rule("window", &["fixed-window 5/60s"]),
        ],
        ..config()
    }
}

/// Sends all commands in RESP2, as lines, and to another server in RESP3, as arrays.
fn check(rows: &[Row<'_>]) {
    let server = TestServer::start_at(rules(), &clock());
    let mut client = server.client();
    for (line, expected, _) in rows {
        assert_eq!(client.ask(line), *expected, "RESP2 {line}");
    }
    let server = TestServer::start_at(rules(), &clock());
    let mut client = server.client();
    client.ask("HELLO 3");
    for (line, resp2, resp3) in rows {
        assert_eq!(client.ask_words(line), resp3.unwrap_or(resp2), "RESP3 {line}");
    }
}

#[test]
fn checks_and_peeks() {
    check(&[
        ("RL.CHECK reply user:42", "*7|:1|:5|:4|:-1|:60000|:0|$-1|", Some("*7|:1|:5|:4|:-1|:60000|:0|_|")),
        (
            "rl.check reply user:42 cost 4",
            "*7|:1|:5|:0|:-1|:60000|:0|$-1|",
            Some("*7|:1|:5|:0|:-1|:60000|:0|_|"),
        ),
        ("RL.CHECK reply user:42", "*7|:0|:5|:0|:60000|:60000|:0|$17|sliding-log 5/min|", None),
        ("RL.PEEK reply user:42", "*7|:0|:5|:0|:60000|:60000|:0|$17|sliding-log 5/min|", None),
        ("RL.CHECK reply user:42 COST 6", "*7|:0|:5|:0|:-2|:60000|:0|$17|sliding-log 5/min|", None),
        ("RL.PEEK reply user:7 COST 5", "*7|:1|:5|:5|:-1|:0|:0|$-1|", Some("*7|:1|:5|:5|:-1|:0|:0|_|")),
        (
            "RL.CHECK \"sliding-log 5/60s\" user:42 COST 0",
            "*7|:1|:5|:5|:-1|:0|:0|$-1|",
            Some("*7|:1|:5|:5|:-1|:0|:0|_|"),
        ),
        ("RL.CHECK third x", "*7|:1|:1|:0|:-1|:334|:0|$-1|", Some("*7|:1|:1|:0|:-1|:334|:0|_|")),
        ("RL.CHECK third x", "*7|:0|:1|:0|:334|:334|:0|$24|token-bucket 3/s burst=1|", None),
        ("RL.CHECK queue x", "*7|:1|:3|:2|:-1|:100|:0|$-1|", Some("*7|:1|:3|:2|:-1|:100|:0|_|")),
        ("RL.CHECK queue x", "*7|:1|:3|:1|:-1|:200|:100|$-1|", Some("*7|:1|:3|:1|:-1|:200|:100|_|")),
    ]);
}

#[test]
fn a_check_may_be_delayed() {
    check(&[
        ("RL.CHECK third x", "*7|:1|:1|:0|:-1|:334|:0|$-1|", Some("*7|:1|:1|:0|:-1|:334|:0|_|")),
        ("RL.CHECK third x MAXWAIT 333", "*7|:0|:1|:0|:1|:334|:0|$24|token-bucket 3/s burst=1|", None),
        (
            "RL.CHECK third x maxwait 334 cost 1",
            "*7|:1|:1|:0|:-1|:667|:334|$-1|",
            Some("*7|:1|:1|:0|:-1|:667|:334|_|"),
        ),
        // A pacer assigns a time slot in any case, unless it is too late.
        ("RL.CHECK queue x", "*7|:1|:3|:2|:-1|:100|:0|$-1|", Some("*7|:1|:3|:2|:-1|:100|:0|_|")),
        ("RL.CHECK queue x MAXWAIT 0", "*7|:0|:3|:2|:100|:100|:0|$18|pacer 10/s queue=2|", None),
        ("RL.CHECK third x MAXWAIT", "-ERR MAXWAIT has no value; write it as in MAXWAIT 1|", None),
        (
            "RL.CHECK \"sliding-log 5/min count=all\" x MAXWAIT 1",
            "-ERR count=all does not support a maximum wait, since denied calls count too; use check without one|",
            None,
        ),
    ]);
}

#[test]
fn smooth_makes_the_next_caller_wait() {
    check(&[
        (
            "RL.CHECK \"smooth 10/s\" x COST 25",
            "*7|:1|:10|:0|:-1|:3500|:0|$-1|",
            Some("*7|:1|:10|:0|:-1|:3500|:0|_|"),
        ),
        (
            "RL.CHECK \"smooth 10/s\" x MAXWAIT 2500",
            "*7|:1|:10|:0|:-1|:3600|:2500|$-1|",
            Some("*7|:1|:10|:0|:-1|:3600|:2500|_|"),
        ),
        (
            "RL.REFUND \"smooth 10/s\" x COST 4",
            "*7|:1|:10|:4|:-1|:3200|:0|$-1|",
            Some("*7|:1|:10|:4|:-1|:3200|:0|_|"),
        ),
        (
            "RL.CHECK \"smooth 10/s warmup=4s\" x",
            "*7|:1|:40|:39|:-1|:395|:0|$-1|",
            Some("*7|:1|:40|:39|:-1|:395|:0|_|"),
        ),
        (
            "RL.TAKE \"smooth 10/s\" x 1",
            "-ERR smooth does not support take, since any cost is allowed once its time has come; use check|",
            None,
        ),
        (
            "RL.CHECKALL \"smooth 10/s\" x 1 reply x 1",
            "-ERR smooth 10/s: smooth does not go with other calls; check it alone|",
            None,
        ),
    ]);
}

#[test]
fn exceptions_and_shadow_rules() {
    check(&[
        (
            "RL.CHECK api vip COST 1000",
            "*7|:1|:1000000000000|:1000000000000|:-1|:0|:0|$-1|",
            Some("*7|:1|:1000000000000|:1000000000000|:-1|:0|:0|_|"),
        ),
        (
            "RL.CHECK api user:42 COST 50",
            "*7|:1|:50|:0|:-1|:5000|:0|$-1|",
            Some("*7|:1|:50|:0|:-1|:5000|:0|_|"),
        ),
        // A shadow rule allows, and reports the denial.
        ("RL.CHECK api user:42", "*7|:1|:50|:0|:100|:5000|:0|$26|token-bucket 10/s burst=50|", None),
        ("RL.CHECK api bad", "*7|:1|:0|:0|:-2|:0|:0|$7|blocked|", None),
    ]);
}

#[test]
fn other_verbs() {
    check(&[
        (
            "RL.TAKE reply user:42 3",
            "*8|:1|:5|:2|:-1|:60000|:0|$-1|:3|",
            Some("*8|:1|:5|:2|:-1|:60000|:0|_|:3|"),
        ),
        (
            "RL.TAKE reply user:42 3",
            "*8|:1|:5|:0|:-1|:60000|:0|$-1|:2|",
            Some("*8|:1|:5|:0|:-1|:60000|:0|_|:2|"),
        ),
        ("RL.TAKE reply user:42 3", "*8|:0|:5|:0|:60000|:60000|:0|$17|sliding-log 5/min|:0|", None),
        (
            "RL.REFUND reply user:42 COST 2",
            "*7|:1|:5|:2|:-1|:60000|:0|$-1|",
            Some("*7|:1|:5|:2|:-1|:60000|:0|_|"),
        ),
        ("RL.REFUND reply user:42", "*7|:1|:5|:3|:-1|:60000|:0|$-1|", Some("*7|:1|:5|:3|:-1|:60000|:0|_|")),
        ("RL.NEXT reply user:42", ":1700000060001|", None),
        ("RL.RESET reply user:42", "+OK|", None),
        ("RL.PEEK reply user:42", "*7|:1|:5|:5|:-1|:0|:0|$-1|", Some("*7|:1|:5|:5|:-1|:0|:0|_|")),
        ("RL.NEXT reply user:42", ":1700000000001|", None),
        ("RL.NEXT window user:42", ":1700000040000|", None),
    ]);
}

#[test]
fn usage_of_every_limit() {
    let unlimited = format!("*1|*7|$9|unlimited|:{COUNT_MAX}|:0|:{COUNT_MAX}|:0|$-1|$-1|");
    check(&[
        (
            "RL.CHECK api user:42 COST 12",
            "*7|:1|:50|:38|:-1|:1200|:0|$-1|",
            Some("*7|:1|:50|:38|:-1|:1200|:0|_|"),
        ),
        (
            "RL.USAGE api user:42",
            "*2|*7|$26|token-bucket 10/s burst=50|:50|:12|:38|:1200|$-1|$-1|*7|$19|fixed-window 1000/d|:1000|:12|:988|:6400000|:1699920000000|:1700006400000|",
            Some(
                "*2|*7|$26|token-bucket 10/s burst=50|:50|:12|:38|:1200|_|_|*7|$19|fixed-window 1000/d|:1000|:12|:988|:6400000|:1699920000000|:1700006400000|",
            ),
        ),
        ("RL.USAGE api vip", &unlimited, Some(&unlimited.replace("$-1", "_"))),
        (
            "RL.USAGE api bad",
            "*1|*7|$7|blocked|:0|:0|:0|:0|$-1|$-1|",
            Some("*1|*7|$7|blocked|:0|:0|:0|:0|_|_|"),
        ),
        (
            "RL.USAGE window user:42",
            "*1|*7|$18|fixed-window 5/min|:5|:0|:5|:0|:1699999980000|:1700000040000|",
            None,
        ),
        ("RL.USAGE api", "-ERR wrong number of arguments for 'rl.usage' command|", None),
        ("RL.USAGE api user:42 1", "-ERR wrong number of arguments for 'rl.usage' command|", None),
    ]);
}

#[test]
fn a_receipt_is_valid_once() {
    for hello in ["HELLO 2", "HELLO 3"] {
        let server = TestServer::start_at(rules(), &clock());
        let mut client = server.client();
        client.ask(hello);
        let nil = if hello == "HELLO 2" { "$-1|" } else { "_|" };
        let receipt_of = |reply: &str, before: &str| {
            let receipt = reply.strip_prefix(before).unwrap_or_else(|| panic!("{reply}"));
            let (len, receipt) = receipt.split_once('|').unwrap();
            let receipt = receipt.strip_suffix("|:1|").unwrap();
            assert_eq!(len, format!("${}", receipt.len()));
            receipt.to_owned()
        };
        let first = client.ask("RL.RESERVE third user:42");
        let first = receipt_of(&first, &format!("*9|:1|:1|:0|:-1|:334|:0|{nil}"));
        let second = client.ask("rl.reserve third user:42 maxwait 334 cost 1");
        let second = receipt_of(&second, &format!("*9|:1|:1|:0|:-1|:667|:334|{nil}"));
        assert_eq!(
            client.ask("RL.RESERVE third user:42 MAXWAIT 334"),
            format!("*9|:0|:1|:0|:333|:667|:0|$24|token-bucket 3/s burst=1|{nil}:0|")
        );
        assert_eq!(client.ask(&format!("RL.CANCEL {second}")), ":1|");
        assert_eq!(client.ask(&format!("RL.CANCEL {second}")), ":0|");
        assert_eq!(client.ask(&format!("RL.SETTLE {first} 1")), ":1|");
        assert_eq!(client.ask(&format!("RL.SETTLE {first} 1")), ":0|");
        assert!(client.ask("RL.CANCEL nonsense").starts_with("-ERR "));
        assert!(client.ask("RL.SETTLE nonsense 3").starts_with("-ERR "));
    }
}

#[test]
fn a_receipt_of_an_inline_limit_is_valid() {
    let server = TestServer::start_at(rules(), &clock());
    let mut client = server.client();
    let reserved = client.ask("RL.RESERVE \"token-bucket 1/s burst=5\" user:42 COST 5");
    let receipt = reserved.split('|').nth(9).unwrap();
    assert_eq!(client.ask(&format!("RL.SETTLE {receipt} 2")), ":1|", "{reserved}");
    assert!(client.ask("RL.PEEK \"token-bucket 1/s burst=5\" user:42").starts_with("*7|:1|:5|:3|"));
}

#[test]
fn all_or_nothing() {
    check(&[
        (
            "RL.CHECKALL reply user:42 4 window user:42 5",
            "*9|:1|:5|:0|:-1|:40000|:0|$-1|$-1|$-1|",
            Some("*9|:1|:5|:0|:-1|:40000|:0|_|_|_|"),
        ),
        (
            "RL.CHECKALL reply user:42 1 window user:42 1",
            "*9|:0|:5|:0|:40000|:40000|:0|$18|fixed-window 5/min|$6|window|:1|",
            None,
        ),
        (
            "RL.CHECKALL reply user:42 1",
            "*9|:1|:5|:0|:-1|:60000|:0|$-1|$-1|$-1|",
            Some("*9|:1|:5|:0|:-1|:60000|:0|_|_|_|"),
        ),
        (
            "RL.CHECKALL api vip 1 api vip 1 window user:42 1",
            "*9|:0|:5|:0|:40000|:40000|:0|$18|fixed-window 5/min|$6|window|:2|",
            None,
        ),
        (
            "RL.CHECKALL \"fixed-window 2/1000h + token-bucket 1/s\" k 3",
            "*9|:0|:2|:2|:-2|:0|:0|$20|fixed-window 2/1000h|$39|fixed-window 2/1000h + token-bucket 1/s|:0|",
            None,
        ),
        ("RL.CHECKALL reply user:42", "-ERR wrong number of arguments for 'rl.checkall' command|", None),
        (
            "RL.CHECKALL reply user:42 1 reply",
            "-ERR wrong number of arguments for 'rl.checkall' command|",
            None,
        ),
        ("RL.CHECKALL reply user:42 -1", "-ERR cost \"-1\" is not a whole number; use digits only|", None),
    ]);
}

#[test]
fn the_rules_are_listed() {
    let server = TestServer::start_at(rules(), &clock());
    let mut client = server.client();
    let reply = "$4|name|$5|reply|$6|limits|*1|$17|sliding-log 5/min|$6|shadow|:0|$10|exceptions|:0|";
    let api = "$4|name|$3|api|$6|limits|*2|$26|token-bucket 10/s burst=50|$19|fixed-window 1000/d|$6|shadow|:1|$10|exceptions|:2|";
    for (hello, pairs) in [("HELLO 2", "*8|"), ("HELLO 3", "%4|")] {
        client.ask(hello);
        let rules = client.ask("RL.RULES");
        assert!(rules.starts_with(&format!("*5|{pairs}{reply}{pairs}{api}")), "{rules}");
    }
}

#[test]
fn cl_throttle() {
    check(&[
        ("CL.THROTTLE user 15 30 60", "*5|:0|:16|:15|:-1|:2|", None),
        ("cl.throttle user 15 30 60 15", "*5|:0|:16|:0|:-1|:32|", None),
        ("CL.THROTTLE user 15 30 60 1", "*5|:1|:16|:0|:2|:32|", None),
        ("CL.THROTTLE user 15 30 60 0", "*5|:0|:16|:0|:-1|:32|", None),
        ("CL.THROTTLE user 15 30 60 -2", "*5|:0|:16|:2|:-1|:28|", None),
        ("CL.THROTTLE user 15 30 60 17", "*5|:1|:16|:2|:-1|:28|", None),
    ]);
}

#[test]
fn connection_commands() {
    check(&[
        ("PING", "+PONG|", None),
        ("ping hi", "$2|hi|", None),
        ("ECHO \"a b\"", "$3|a b|", None),
        ("SELECT 0", "+OK|", None),
        ("SELECT 1", "-ERR DB index is out of range; the only database is 0|", None),
        ("SELECT x", "-ERR value is not an integer or out of range|", None),
        ("CLIENT GETNAME", "$-1|", Some("_|")),
        ("CLIENT SETNAME me", "+OK|", None),
        ("client getname", "$2|me|", None),
        (
            "CLIENT SETNAME \"a b\"",
            "-ERR Client names cannot contain spaces, newlines or special characters: \"a b\" (3 bytes); use at most 128 visible ASCII characters|",
            None,
        ),
        ("client SETINFO LIB-NAME redis-py", "+OK|", None),
        ("CLIENT SETINFO lib-ver 8.1.0", "+OK|", None),
        ("CLIENT SETINFO LIB-X 1", "-ERR Unrecognized option 'LIB-X'; use LIB-NAME or LIB-VER|", None),
        ("CLIENT SETINFO", "-ERR wrong number of arguments for 'client|setinfo' command|", None),
        ("CLIENT NO-EVICT ON", "+OK|", None),
        ("CLIENT REPLY ON", "+OK|", None),
        ("CLIENT REPLY OFF", "-ERR CLIENT REPLY OFF is not supported|", None),
        ("CLIENT TRACKING OFF", "+OK|", None),
        (
            "CLIENT MAINT_NOTIFICATIONS ON",
            "-ERR unknown subcommand 'MAINT_NOTIFICATIONS' of CLIENT; use one of ID INFO LIST GETNAME SETNAME SETINFO REPLY NO-EVICT NO-TOUCH TRACKING|",
            None,
        ),
        ("CONFIG GET save", "*2|$4|save|$0||", Some("%1|$4|save|$0||")),
        ("config get appendonly", "*2|$10|appendonly|$2|no|", Some("%1|$10|appendonly|$2|no|")),
        ("CONFIG GET nothing", "*0|", Some("%0|")),
        ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command|", None),
        (
            "CONFIG SET save 1",
            "-ERR CONFIG SET is not supported; settings are in the configuration file|",
            None,
        ),
        ("COMMAND COUNT", ":32|", None),
        (
            "COMMAND INFO rl.check no.such",
            "*2|*10|$8|rl.check|:-3|*3|+write|+denyoom|+fast|:2|:2|:1|*0|*0|*0|*0|$-1|",
            Some("*2|*10|$8|rl.check|:-3|*3|+write|+denyoom|+fast|:2|:2|:1|*0|*0|*0|*0|_|"),
        ),
        (
            "COMMAND DOCS echo",
            "*2|$4|echo|*6|$7|summary|$20|Returns the message.|$5|since|$5|0.1.0|$5|group|$10|connection|",
            Some(
                "%1|$4|echo|%3|$7|summary|$20|Returns the message.|$5|since|$5|0.1.0|$5|group|$10|connection|",
            ),
        ),
        (
            "COMMAND GETKEYS x",
            "-ERR unknown subcommand 'GETKEYS' of COMMAND; use COUNT, LIST, INFO or DOCS|",
            None,
        ),
        ("INFO replication", "$48|# Replication|role:master|connected_slaves:0||", None),
        ("INFO nothing", "$0||", None),
        (
            "AUTH x",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?|",
            None,
        ),
        ("AUTH default x", "+OK|", None),
        ("AUTH other x", "-WRONGPASS invalid username-password pair or user is disabled.|", None),
        ("HELLO 4", "-NOPROTO unsupported protocol version; use 2 or 3|", None),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range|", None),
        ("HELLO 3 NONSENSE", "-ERR Syntax error in HELLO option 'NONSENSE'|", None),
        ("HELLO 3 AUTH default", "-ERR Syntax error in HELLO option 'AUTH'|", None),
        ("RESET", "+RESET|", None),
        ("CLIENT GETNAME", "$-1|", None),
        ("QUIT", "+OK|", None),
    ]);
}

#[test]
fn every_error_is_one_helpful_line() {
    check(&[
        ("NOPE", "-ERR unknown command 'NOPE'; COMMAND LIST lists all commands|", None),
        ("RL.CHECK reply", "-ERR wrong number of arguments for 'rl.check' command|", None),
        ("RL.PEEK reply k COST 1 x", "-ERR wrong number of arguments for 'rl.peek' command|", None),
        (
            "RL.CHECK reply k COST 1 MAXWAIT 1 x",
            "-ERR wrong number of arguments for 'rl.check' command|",
            None,
        ),
        ("RL.CHECK reply k COST", "-ERR COST has no value; write it as in COST 1|", None),
        ("RL.CHECK reply k PRICE 2", "-ERR unknown option \"PRICE\"; use COST or MAXWAIT|", None),
        ("RL.CHECK reply k COST -1", "-ERR cost \"-1\" is not a whole number; use digits only|", None),
        ("RL.CHECK reply k COST 1.5", "-ERR cost \"1.5\" is not a whole number; use digits only|", None),
        (
            "RL.CHECK reply k COST 99999999999999999999",
            "-ERR cost \"99999999999999999999\" is too large; use a smaller number|",
            None,
        ),
        (
            "RL.CHECK reply k COST 1000000000001",
            "-ERR cost 1000000000001 is too large; use at most 1000000000000|",
            None,
        ),
        (
            "RL.CHECK replies k",
            "-ERR no rule is called \"replies\"; RL.RULES and GET /v1/rules list the rules, and a limit is written like \"sliding-log 5/60s\"|",
            None,
        ),
        (
            "RL.CHECK \"sliding-log 5/60x\" k",
            "-ERR sliding-log 5/60x: unknown unit \"x\"; use us ms s min h d (or second minute hour day, and for fixed-window also week month year)|",
            None,
        ),
        ("RL.RESERVE reply k MAXWAIT 1 MAXWAIT 2", "-ERR MAXWAIT is given twice; keep one of them|", None),
        (
            "RL.RESERVE reply k MAXWAIT soon",
            "-ERR MAXWAIT \"soon\" is not a whole number; use digits only|",
            None,
        ),
        ("RL.TAKE reply k many", "-ERR cost \"many\" is not a whole number; use digits only|", None),
        ("CL.THROTTLE k 1 2", "-ERR wrong number of arguments for 'cl.throttle' command|", None),
        (
            "CL.THROTTLE k a 2 3",
            "-ERR max_burst \"a\" is not a 64-bit whole number; use digits, such as 15 or -1|",
            None,
        ),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command|", None),
        (
            "RL.CHECK reply still-usable",
            "*7|:1|:5|:4|:-1|:60000|:0|$-1|",
            Some("*7|:1|:5|:4|:-1|:60000|:0|_|"),
        ),
    ]);
}

#[test]
fn client_text_is_escaped_in_errors() {
    let server = TestServer::start(rules());
    let mut client = server.client();
    for (arguments, expected) in [
        (
            vec![&b"a\r\n+OK\r\n"[..]],
            "-ERR unknown command 'a\\r\\n+OK\\r\\n'; COMMAND LIST lists all commands|",
        ),
        (vec![b"RL.CHECK", b"\xff\r\n", b"k"], "-ERR rule \"\\xff\\r\\n\" is not UTF-8; encode it in UTF-8|"),
        (
            vec![b"RL.CHECK", b"reply", b"k", b"\r\n", b"1"],
            "-ERR unknown option \"\\r\\n\"; use COST or MAXWAIT|",
        ),
        (
            vec![b"CLIENT", b"\r\n"],
            "-ERR unknown subcommand '\\r\\n' of CLIENT; use one of ID INFO LIST GETNAME SETNAME SETINFO REPLY NO-EVICT NO-TOUCH TRACKING|",
        ),
        (vec![b"HELLO", b"3", b"\r\n"], "-ERR Syntax error in HELLO option '\\r\\n'|"),
        (vec![b"CONFIG", b"\n"], "-ERR CONFIG \\n is not supported; settings are in the configuration file|"),
    ] {
        client.send(array(&arguments));
        assert_eq!(client.shown(), expected);
    }
    for rule in ["no\r\n+OK such", "no\nrule", "sliding-log 5/6\r\n", "\u{85} \u{2028}"] {
        client.send(array(&[b"RL.CHECK", rule.as_bytes(), b"k"]));
        client.send(array(&[b"RL.CANCEL", rule.as_bytes()]));
        assert!(shown(&client.reply()).starts_with("-ERR "), "{rule:?}");
        assert!(shown(&client.reply()).starts_with("-ERR "), "{rule:?}");
    }
    let long = vec![b'x'; 60_000];
    for arguments in
        [vec![&long[..]], vec![b"RL.CHECK", &long, b"k"], vec![b"RL.CHECK", b"reply", b"k", b"COST", &long]]
    {
        client.send(array(&arguments));
        let reply = client.reply();
        assert!(reply.starts_with(b"-ERR ") && reply.len() < 600, "{}", reply.len());
    }
    assert_eq!(client.ask("PING"), "+PONG|");
}

#[test]
fn hello_describes_the_server() {
    let server = TestServer::start(config());
    let mut client = server.client();
    let id = client.ask("CLIENT ID");
    let fields = |head: &str, version| {
        format!(
            "{head}$6|server|$10|sluicegate|$7|version|$5|0.1.0|$5|proto|:{version}|$2|id|{id}$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0|"
        )
    };
    assert_eq!(client.ask("HELLO"), fields("*14|", 2));
    assert_eq!(client.ask("hello 3 setname me"), fields("%7|", 3));
    assert_eq!(client.ask("CLIENT GETNAME"), "$2|me|");
    let info = client.ask("CLIENT INFO");
    assert!(info.contains("name=me ") && info.contains("resp=3 "), "{info}");
    assert_eq!(client.ask("CLIENT LIST"), info);
    assert_eq!(client.ask("HELLO 2"), fields("*14|", 2));
    assert_ne!(server.client().ask("CLIENT ID"), id);
}

#[test]
fn info_has_what_clients_parse() {
    let server = TestServer::start(rules());
    let mut client = server.client();
    client.ask("RL.CHECK reply user:42");
    client.ask("RL.CHECK \"sliding-log 1/60s\" user:42");
    client.ask("RL.CHECK \"sliding-log 1/60s\" user:42");
    let info = client.ask("info");
    for field in [
        "redis_version:7.0.0|",
        "sluicegate_version:0.1.0|",
        "redis_mode:standalone|",
        "role:master|",
        "loading:0|",
        "cluster_enabled:0|",
        "rules:5|",
        "allowed:2|",
        "denied:1|",
    ] {
        assert!(info.contains(field), "{field} is not in {info}");
    }
    let server = client.ask("INFO server");
    assert!(server.contains("redis_version:7.0.0|") && !server.contains("role:"), "{server}");
}

/// One packet each, as captured.
#[test]
fn the_handshakes_of_real_clients_are_answered() {
    let greetings: [&[&[&str]]; 6] = [
        // redis-py, node-redis, go-redis
        &[
            &["HELLO", "3"],
            &["CLIENT", "SETINFO", "LIB-NAME", "redis-py"],
            &["CLIENT", "SETINFO", "LIB-VER", "8.1.0"],
            &["CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "internal-ip"],
        ],
        // ioredis
        &[
            &["hello", "3"],
            &["client", "SETINFO", "LIB-NAME", "ioredis"],
            &["client", "SETINFO", "LIB-VER", "6.0.0"],
            &["info"],
        ],
        // valkey-glide
        &[&["HELLO", "3"], &["CLIENT", "SETINFO", "LIB-NAME", "GlideRust"], &["INFO", "REPLICATION"]],
        // fred
        &[&["PING"], &["CLIENT", "ID"], &["INFO", "server"]],
        // redis-cli
        &[&["COMMAND", "DOCS"], &["COMMAND"]],
        // redis-benchmark
        &[&["CONFIG", "GET", "save"], &["CONFIG", "GET", "appendonly"]],
    ];
    let server = TestServer::start(config());
    for greeting in greetings {
        let mut client = server.client();
        let packet =
            |command: &&[&str]| array(&command.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        client.send(greeting.iter().flat_map(packet).collect::<Vec<_>>());
        for command in greeting {
            let reply = client.shown();
            assert_eq!(
                reply.starts_with('-'),
                command[1..].contains(&"MAINT_NOTIFICATIONS"),
                "{command:?} {reply}"
            );
        }
        assert_eq!(client.ask("PING"), "+PONG|");
    }
}

fn guarded() -> Config {
    Config { password: Some(Password::new(b"sesame").unwrap()), ..rules() }
}

const NO_AUTH: &str = "-NOAUTH Authentication required.|";
const WRONG_PASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.|";

#[test]
fn nothing_is_answered_before_authentication() {
    let server = TestServer::start(guarded());
    let mut client = server.client();
    for line in [
        "PING",
        "RL.CHECK reply user:42",
        "CL.THROTTLE k 1 1 1",
        "INFO",
        "NOPE",
        "RL.CHECK",
        "COMMAND",
        "RL.RULES",
    ] {
        assert_eq!(client.ask(line), NO_AUTH, "{line}");
    }
    assert!(
        client
            .ask("HELLO 3")
            .starts_with("-NOAUTH HELLO must be called with the client already authenticated")
    );
    assert_eq!(client.ask("AUTH wrong"), WRONG_PASS);
    assert_eq!(client.ask("AUTH default wrong"), WRONG_PASS);
    assert_eq!(client.ask("AUTH someone sesame"), WRONG_PASS);
    assert_eq!(client.ask("HELLO 3 AUTH default wrong SETNAME x"), WRONG_PASS);
    assert_eq!(client.ask("AUTH"), "-NOAUTH Authentication required.|");
    assert_eq!(client.ask("PING"), NO_AUTH);
    assert_eq!(client.ask("AUTH sesame"), "+OK|");
    assert_eq!(client.ask("PING"), "+PONG|");
    // A wrong password later changes nothing.
    assert_eq!(client.ask("AUTH wrong"), WRONG_PASS);
    assert_eq!(client.ask("PING"), "+PONG|");
    assert_eq!(client.ask("RESET"), "+RESET|");
    assert_eq!(client.ask("PING"), NO_AUTH);
    assert_eq!(client.ask("AUTH default sesame"), "+OK|");
    assert_eq!(client.ask("CLIENT GETNAME"), "$-1|");
    assert_eq!(server.engine.inline_tally(), sluicegate_server::engine::TallyView::default());
}

#[test]
fn auth_may_share_a_packet_with_commands() {
    let server = TestServer::start(guarded());
    for greeting in ["AUTH sesame", "HELLO 3 AUTH default sesame SETNAME me"] {
        let mut client = server.client();
        client.send(format!("PING\r\n{greeting}\r\nPING\r\nRL.CHECK reply {}\r\n", greeting.len()));
        assert_eq!(client.shown(), NO_AUTH);
        assert!(!client.shown().starts_with('-'));
        assert_eq!(client.shown(), "+PONG|");
        assert!(client.shown().starts_with("*7|:1|:5|:4|"));
    }
    let mut client = server.client();
    assert_eq!(client.ask("QUIT"), "+OK|");
    assert_eq!(client.rest(), "");
}

#[test]
fn reset_clears_the_names() {
    let server = TestServer::start(rules());
    let mut client = server.client();
    let names = |line: String| line.split_once(" name=").map(|(_, names)| names.to_owned());
    let as_new = names(client.ask("CLIENT INFO")).unwrap();
    for line in ["HELLO 3 SETNAME me", "CLIENT SETINFO LIB-NAME redis-py", "CLIENT SETINFO LIB-VER 8.1.0"] {
        assert!(!client.ask(line).starts_with('-'), "{line}");
    }
    assert!(
        client
            .ask("CLIENT INFO")
            .contains(" name=me db=0 user=default resp=3 lib-name=redis-py lib-ver=8.1.0")
    );
    assert_eq!(client.ask("RESET"), "+RESET|");
    assert_eq!(names(client.ask("CLIENT INFO")).unwrap(), as_new);
}

#[test]
fn client_names_are_bounded() {
    let server = TestServer::start(rules());
    let mut client = server.client();
    let (longest, longer) = ("n".repeat(128), "n".repeat(129));
    for command in ["CLIENT SETNAME", "CLIENT SETINFO LIB-NAME", "CLIENT SETINFO LIB-VER", "HELLO 2 SETNAME"]
    {
        assert!(!client.ask(&format!("{command} {longest}")).starts_with('-'), "{command}");
        let refused = client.ask(&format!("{command} {longer}"));
        assert!(
            refused.contains("(129 bytes); use at most 128 visible ASCII characters"),
            "{command}: {refused}"
        );
    }
    assert_eq!(client.ask("CLIENT GETNAME"), format!("$128|{longest}|"));
}

#[test]
fn quit_is_answered_and_closes() {
    let server = TestServer::start(rules());
    let mut client = server.client();
    client.send("RL.CHECK reply user:42\r\nQUIT\r\nRL.CHECK reply user:42\r\n");
    assert!(client.shown().starts_with("*7|:1|"));
    assert_eq!(client.rest(), "+OK|");
    assert!(
        server.client().ask("RL.PEEK reply user:42").starts_with("*7|:1|:5|:4|"),
        "what came after QUIT was done"
    );
}

#[test]
fn a_protocol_error_closes_the_connection() {
    let server = TestServer::start(rules());
    for (bytes, expected) in [
        ("*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        ("*1\r\n$-1\r\n", "invalid bulk length; an argument has at most 131072 bytes"),
        ("*x\r\n", "invalid multibulk length; write the number of arguments, as in *1"),
        ("*1\r\n$4\r\nPINGPONG\r\n", "invalid bulk end; expected CRLF after the announced length"),
        (
            "ECHO \"x\r\n",
            "unbalanced quotes in request; close each quote, and put a space or nothing after it",
        ),
        ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "this port speaks RESP, not HTTP"),
        ("GET / HTTP/1.1\r\n", "this port speaks RESP, not HTTP"),
        ("host: x\r\n", "this port speaks RESP, not HTTP"),
        (
            "\u{16}\u{3}\u{1}hello\r\n",
            "expected '*' or a line of text; if this is TLS, note that the server runs without it",
        ),
    ] {
        let mut client = server.client();
        client.send(format!("PING\r\n{bytes}RL.CHECK reply user:42\r\n"));
        assert_eq!(client.rest(), format!("+PONG|-ERR Protocol error: {expected}|"), "{bytes:?}");
    }
    assert!(
        server.client().ask("RL.PEEK reply user:42").starts_with("*7|:1|:5|:5|"),
        "a command after the protocol error was executed"
    );
}

#[test]
fn a_stopping_server_answers_what_has_arrived() {
    let server = TestServer::start(rules());
    let mut silent = server.client();
    assert_eq!(silent.ask("PING"), "+PONG|");
    let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("PING"), "+PONG|", "it is connected");
        client.send("PING\r\n".repeat(2_000) + "RL.CHECK reply");
    }
    server.stop();
    for client in &mut clients {
        let rest = client.rest();
        assert!(rest == "+PONG|".repeat(2_000), "{} bytes, {:?}", rest.len(), rest.get(..100));
    }
    assert_eq!(silent.rest(), "");
}

#[test]
fn commands_of_a_batch_see_each_other() {
    let clock = clock();
    let server = TestServer::start_at(rules(), &clock);
    let mut client = server.client();
    client.send("RL.CHECK reply k\r\nRL.CHECK reply k COST 4\r\nRL.CHECK reply k\r\nRL.RESET reply k\r\nRL.CHECK reply k\r\nRL.REFUND reply k\r\nRL.PEEK reply k\r\n");
    let remaining: Vec<String> =
        (0..7).map(|_| client.shown().split('|').nth(3).unwrap_or("reset").to_owned()).collect();
    assert_eq!(remaining, [":4", ":0", ":0", "reset", ":4", ":5", ":5"]);
    clock.advance(Duration::from_secs(60));
    assert!(client.ask("RL.CHECK reply k COST 5").starts_with("*7|:1|"));
}
