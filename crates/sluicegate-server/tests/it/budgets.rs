//! Budgets over RESP and HTTP: reservations with options, of several calls, extended and settled.

use crate::http_client::{Serving, posted};
use crate::resp_client::{Client, TestServer, array};
use crate::running::{config, rule};
use serde_json::{Value, json};
use sluicegate::Time;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate_server::engine::{KeySpec, RuleSpec};
use sluicegate_server::server::Config;

fn rules() -> Vec<RuleSpec> {
    vec![
        rule("tokens", &["token-bucket 1/s burst=10"]),
        rule("daily", &["fixed-window 20/day"]),
        rule("both", &["token-bucket 1/s burst=10", "fixed-window 4/day"]),
        rule("paced", &["pacer 1/s queue=5"]),
        rule("counted", &["sliding-log 5/60s count=all"]),
        RuleSpec { shadow: true, ..rule("trial", &["fixed-window 2/day"]) },
        RuleSpec {
            keys: vec![
                (b"free".to_vec(), KeySpec::Unlimited),
                (b"bad".to_vec(), KeySpec::Blocked),
                (b"partner".to_vec(), KeySpec::Limits(vec!["fixed-window 500/day".parse().unwrap()])),
            ],
            ..rule("api", &["fixed-window 5/day"])
        },
    ]
}

fn server() -> (TestServer, ManualClock) {
    let clock = ManualClock::default();
    (TestServer::start_at(Config { rules: rules(), ..config() }, &clock), clock)
}

fn advance_ms(clock: &ManualClock, ms: u64) {
    clock.set(Time::from_micros(clock.now().as_micros() + ms * 1_000).unwrap());
}

/// Sends a command whose reply has a receipt, and returns the reply without it, and the receipt.
fn reserve(client: &mut Client, line: &str) -> (String, String) {
    let reply = client.ask(line);
    let receipt = reply.split('|').find(|item| item.starts_with("m1.") || item.starts_with("m2."));
    let receipt = receipt.unwrap_or_else(|| panic!("{line}: {reply}")).to_owned();
    (reply.replace(&format!("${}|{receipt}", receipt.len()), "RECEIPT"), receipt)
}

#[test]
fn at_least_grants_what_remains() {
    let (server, _) = server();
    let mut client = server.client();
    client.ask("RL.CHECK tokens user:1 COST 7");
    let (reply, receipt) = reserve(&mut client, "RL.RESERVE tokens user:1 ATLEAST 2 COST 30");
    assert_eq!(reply, "*9|:1|:10|:0|:-1|:10000|:0|$-1|RECEIPT|:3|");
    assert_eq!(
        client.ask("RL.RESERVE tokens user:1 COST 30 ATLEAST 2"),
        "*9|:0|:10|:0|:2000|:10000|:0|$25|token-bucket 1/s burst=10|$-1|:0|"
    );
    assert_eq!(client.ask(&format!("RL.SETTLE {receipt} 1")), ":1|");
    assert!(client.ask("RL.PEEK tokens user:1").starts_with("*7|:1|:10|:2|"));
}

/// The charge of a client that died comes back when its receipt expires, for any later call.
#[test]
fn a_receipt_expires_after_its_ttl() {
    let (server, clock) = server();
    let mut client = server.client();
    let remaining =
        |client: &mut Client| client.ask("RL.PEEK daily user:1").split('|').nth(3).unwrap().to_owned();
    let (_, lost) = reserve(&mut client, "RL.RESERVE daily user:1 COST 5 TTL 1000 THEN cancel");
    let (_, kept) = reserve(&mut client, "RL.RESERVE daily user:1 THEN keep COST 3 TTL 1000");
    advance_ms(&clock, 999);
    assert_eq!(remaining(&mut client), ":12");
    advance_ms(&clock, 1);
    assert_eq!(remaining(&mut client), ":17", "the charge of one came back, that of the other stays");
    for receipt in [lost, kept] {
        assert_eq!(client.ask(&format!("RL.SETTLE {receipt} 1")), ":0|");
        assert!(client.ask(&format!("RL.EXTEND {receipt} 1")).starts_with("-ERR the receipt is not open: "));
    }
    assert_eq!(remaining(&mut client), ":17");
}

#[test]
fn an_extension_adds_to_the_receipt_and_restarts_its_ttl() {
    let (server, clock) = server();
    let mut client = server.client();
    let (_, receipt) = reserve(&mut client, "RL.RESERVE daily user:1 COST 5 TTL 1000 THEN cancel");
    advance_ms(&clock, 900);
    let allowed = client.ask(&format!("RL.EXTEND {receipt} 4"));
    assert!(allowed.starts_with("*9|:1|:20|:11|:-1|") && allowed.ends_with("|:0|$-1|$-1|$-1|"), "{allowed}");
    advance_ms(&clock, 900);
    let denied = client.ask(&format!("RL.EXTEND {receipt} 12 TTL 9000"));
    assert!(denied.starts_with("*9|:0|:20|:11|:"), "{denied}");
    assert!(denied.ends_with("|:0|$17|fixed-window 20/d|$5|daily|:0|"), "{denied}");
    // A denial restarts nothing; an extension by 0 only the TTL.
    assert!(client.ask(&format!("RL.EXTEND {receipt} 0 TTL 5000")).starts_with("*9|:1|:20|:11|"));
    advance_ms(&clock, 4_999);
    assert_eq!(client.ask(&format!("RL.SETTLE {receipt} 1")), ":1|");
    assert!(client.ask("RL.PEEK daily user:1").starts_with("*7|:1|:20|:19|"));
}

#[test]
fn several_calls_have_one_receipt() {
    let (server, clock) = server();
    let mut client = server.client();
    let all = "RL.RESERVEALL tokens user:1 4 api free 9 daily site 5 tokens user:1 2 TTL 60000 THEN cancel";
    let (reply, receipt) = reserve(&mut client, all);
    assert_eq!(reply, "*10|:1|:10|:4|:-1|:6000|:0|$-1|$-1|$-1|RECEIPT|");
    assert_eq!(
        client.ask("RL.RESERVEALL daily site 1 tokens user:1 5 MAXWAIT 999"),
        "*10|:0|:10|:4|:1|:6000|:0|$25|token-bucket 1/s burst=10|$6|tokens|:1|$-1|"
    );
    let (reply, waiting) = reserve(&mut client, "RL.RESERVEALL daily site 1 tokens user:1 5 MAXWAIT 1000");
    assert_eq!(reply, "*10|:1|:10|:0|:-1|:11000|:1000|$-1|$-1|$-1|RECEIPT|");
    assert_eq!(client.ask(&format!("RL.CANCEL {waiting}")), ":1|");
    for numbers in ["1 2", "1 2 3", "1 2 3 4 5"] {
        let count = numbers.split(' ').count();
        let error = format!(
            "-ERR {count} numbers for a receipt of 4 calls; pass one for all of them, or one for each|"
        );
        assert_eq!(client.ask(&format!("RL.SETTLE {receipt} {numbers}")), error);
        assert_eq!(client.ask(&format!("RL.EXTEND {receipt} {numbers}")), error);
    }
    let denied = client.ask(&format!("RL.EXTEND {receipt} 0 0 16 0"));
    assert!(denied.ends_with("|$17|fixed-window 20/d|$5|daily|:2|"), "{denied}");
    assert!(client.ask(&format!("RL.EXTEND {receipt} 0 1 1 0")).starts_with("*9|:1|:10|:4|"));
    advance_ms(&clock, 59_999);
    assert_eq!(client.ask(&format!("RL.SETTLE {receipt} 1 9 2 1")), ":1|");
    assert_eq!(client.ask(&format!("RL.SETTLE {receipt} 1 9 2 1")), ":0|");
    assert!(client.ask("RL.PEEK daily site").starts_with("*7|:1|:20|:18|"));
}

/// A shadow rule never denies, and a key without limits is charged nothing.
#[test]
fn unlimited_keys_and_shadow_rules_grant_the_cost() {
    let (server, _) = server();
    let mut client = server.client();
    let unlimited = "*9|:1|:1000000000000|:1000000000000|:-1|:0|:0|$-1|$-1|:7|";
    assert_eq!(client.ask("RL.RESERVE api free COST 7 TTL 5"), unlimited);
    assert_eq!(client.ask("RL.RESERVE api free COST 7 ATLEAST 3"), unlimited);
    assert_eq!(client.ask("RL.RESERVE api bad COST 7"), "*9|:0|:0|:0|:-2|:0|:0|$7|blocked|$-1|:0|");
    let shadow = client.ask("RL.RESERVE trial user:1 COST 7");
    assert!(
        shadow.starts_with("*9|:1|:2|:2|:-2|") && shadow.ends_with("|$16|fixed-window 2/d|$-1|:7|"),
        "{shadow}"
    );
    let nothing = client.ask("RL.RESERVEALL api free 7 api free 2");
    assert_eq!(nothing, "*10|:1|:1000000000000|:1000000000000|:-1|:0|:0|$-1|$-1|$-1|$-1|");
    let blocked = client.ask("RL.RESERVEALL daily site 1 api bad 2");
    assert_eq!(blocked, "*10|:0|:0|:0|:-2|:0|:0|$7|blocked|$3|api|:1|$-1|");

    // Its call is left out of the receipt, but keeps its number.
    let (_, receipt) = reserve(&mut client, "RL.RESERVEALL trial user:2 3 daily site 5");
    assert_eq!(client.ask(&format!("RL.SETTLE {receipt} 3 1")), ":1|");
    assert!(client.ask("RL.PEEK trial user:2").starts_with("*7|:1|:2|:2|"));
    assert!(client.ask("RL.PEEK daily site").starts_with("*7|:1|:20|:19|"));

    // An extension that only a shadow rule denies is made without its call.
    let (_, receipt) = reserve(&mut client, "RL.RESERVEALL trial user:3 1 daily site 5");
    let extended = client.ask(&format!("RL.EXTEND {receipt} 2"));
    assert!(extended.starts_with("*9|:1|") && extended.ends_with("|:0|$-1|$-1|$-1|"), "{extended}");
    assert!(client.ask("RL.PEEK trial user:3").starts_with("*7|:1|:2|:1|"));
    assert!(client.ask("RL.PEEK daily site").starts_with("*7|:1|:20|:12|"));
    let (_, receipt) = reserve(&mut client, "RL.RESERVE trial user:4");
    let extended = client.ask(&format!("RL.EXTEND {receipt} 2"));
    assert!(
        extended.starts_with("*9|:1|:2|:1|:") && extended.ends_with("|$16|fixed-window 2/d|$-1|$-1|"),
        "{extended}"
    );
    assert_eq!(client.ask(&format!("RL.CANCEL {receipt}")), ":1|");
    let tally = server.engine.find("trial").unwrap().tally();
    assert_eq!((tally.allowed, tally.denied, tally.shadow_denied), (2, 0, 4));
}

#[test]
fn an_extension_follows_a_reload() {
    let (server, _) = server();
    let mut client = server.client();
    let (_, receipt) = reserve(&mut client, "RL.RESERVE daily user:1 COST 20");
    assert!(client.ask(&format!("RL.EXTEND {receipt} 5")).starts_with("*9|:0|:20|:0|"));
    server.engine.load(vec![rule("daily", &["fixed-window 30/day"])]).unwrap();
    assert!(client.ask(&format!("RL.EXTEND {receipt} 5")).starts_with("*9|:1|:30|:5|"));
    server.engine.load(Vec::new()).unwrap();
    assert!(client.ask(&format!("RL.EXTEND {receipt} 5")).starts_with("-ERR the receipt is not open: "));
    assert_eq!(client.ask(&format!("RL.CANCEL {receipt}")), ":1|");
}

#[test]
fn transactions_reserve_at_exec() {
    let (server, _) = server();
    let mut client = server.client();
    let (_, receipt) = reserve(&mut client, "RL.RESERVE daily user:1 COST 5");
    assert_eq!(client.ask("MULTI"), "+OK|");
    for line in [
        "RL.RESERVE tokens user:1 COST 20 ATLEAST 1 TTL 1000 THEN cancel",
        "RL.RESERVEALL tokens user:2 1 daily user:1 1 TTL 5",
        &format!("RL.EXTEND {receipt} 2"),
        &format!("RL.SETTLE {receipt} 6"),
        &format!("RL.EXTEND {receipt} 1"),
    ] {
        assert_eq!(client.ask(line), "+QUEUED|");
    }
    assert!(server.client().ask("RL.PEEK daily user:1").starts_with("*7|:1|:20|:15|"));
    let replies = client.ask("EXEC");
    assert!(replies.starts_with("*5|*9|:1|:10|:0|"), "{replies}");
    assert!(replies.contains("|*10|:1|:10|:9|") && replies.contains("|*9|:1|:20|:12|"), "{replies}");
    assert!(replies.contains("|:1|-ERR the receipt is not open"), "{replies}");
    assert!(client.ask("RL.PEEK daily user:1").starts_with("*7|:1|:20|:13|"));
}

/// Each is rejected with a line that says what to do, and charges nothing.
#[test]
fn invalid_commands_charge_nothing() {
    let (server, _) = server();
    let mut client = server.client();
    let (_, receipt) = reserve(&mut client, "RL.RESERVE tokens user:1 COST 4");
    let many = format!("RL.RESERVEALL{}", " tokens user:1 1".repeat(65));
    let numbers = format!("RL.SETTLE {receipt}{}", " 1".repeat(65));
    let bounds = "is out of bounds; use 1 ms to 10 years";
    let at_least = |least: u64| {
        format!("at least {least} of a cost of 3 cannot be reserved; use 1 to the cost, or leave it out")
    };
    let unused = "wrong number of arguments for 'rl.reserveall' command";
    for (line, error) in [
        ("RL.RESERVE tokens user:1 THEN cancel", "THEN is given without TTL; write TTL ms THEN cancel".to_owned()),
        ("RL.RESERVE tokens user:1 TTL 5 THEN refund", "unknown THEN \"refund\"; use keep or cancel".to_owned()),
        ("RL.RESERVE tokens user:1 TTL 0", format!("a TTL of 0us {bounds}")),
        ("RL.RESERVE tokens user:1 TTL 315360000001", format!("a TTL of 315360000001000us {bounds}")),
        ("RL.RESERVE tokens user:1 TTL soon", "TTL \"soon\" is not a whole number; use digits only".to_owned()),
        ("RL.RESERVE tokens user:1 TTL", "TTL has no value; write it as in TTL 1".to_owned()),
        ("RL.RESERVE tokens user:1 TTL 1 COST 1 TTL 2", "TTL is given twice; keep one of them".to_owned()),
        ("RL.RESERVE tokens user:1 COST 3 ATLEAST 0", at_least(0)),
        ("RL.RESERVE tokens user:1 COST 3 ATLEAST 4", at_least(4)),
        ("RL.RESERVE api free COST 3 ATLEAST 4", at_least(4)),
        (
            "RL.RESERVE tokens user:1 ATLEAST 1 MAXWAIT 0",
            "ATLEAST and MAXWAIT are both given; leave out one: a partial grant never waits".to_owned(),
        ),
        (
            "RL.RESERVE paced user:1 ATLEAST 1",
            "pacer does not support at_least, since its calls wait for their time slots; reserve the whole cost"
                .to_owned(),
        ),
        (
            "RL.RESERVE tokens user:1 PLAN x",
            "unknown option \"PLAN\"; use COST or ATLEAST or MAXWAIT or TTL or THEN".to_owned(),
        ),
        ("RL.RESERVEALL MAXWAIT 5 TTL 5", unused.to_owned()),
        ("RL.RESERVEALL tokens user:1", "wrong number of arguments for 'rl.reserveall' command".to_owned()),
        ("RL.RESERVEALL tokens user:1 1 tokens", unused.to_owned()),
        ("RL.RESERVEALL tokens user:1 1 TTL 0", format!("a TTL of 0us {bounds}")),
        ("RL.RESERVEALL tokens user:1 1 ttl 5 then", "THEN has no value; write it as in THEN 1".to_owned()),
        ("RL.RESERVEALL tokens user:1 1 MAXWAIT 5 ATLEAST 1", "unknown option \"ATLEAST\"; use MAXWAIT or TTL or THEN".to_owned()),
        ("RL.RESERVEALL tokens user:1 1 nope x 1", "no rule is called \"nope\"; RL.RULES and GET /v1/rules list the rules, and a limit is written like \"sliding-log 5/60s\"".to_owned()),
        ("RL.RESERVEALL tokens user:1 1 tokens user:2 -1", "cost \"-1\" is not a whole number; use digits only".to_owned()),
        (
            "RL.RESERVEALL tokens user:1 1 counted x 1",
            "sliding-log 5/min count=all: count=all does not go with other calls; leave count=all out, or check it alone".to_owned(),
        ),
        (&many, "65 calls in one request are too many; send at most 64".to_owned()),
        (&numbers, "65 numbers are too many; send one for all calls of the receipt, or one for each".to_owned()),
        ("RL.EXTEND RECEIPT TTL 5", "wrong number of arguments for 'rl.extend' command".to_owned()),
        ("RL.EXTEND RECEIPT 1 TTL 0", format!("a TTL of 0us {bounds}")),
        ("RL.EXTEND RECEIPT 1 TTL 5 THEN keep", "unknown option \"THEN\"; use TTL".to_owned()),
        ("RL.EXTEND RECEIPT 1 1000000000001", "cost 1000000000001 is too large; use at most 1000000000000".to_owned()),
        ("RL.EXTEND nonsense 1", "not a receipt; pass the text from the reservation unchanged".to_owned()),
        ("RL.SETTLE RECEIPT 1 2", "2 numbers for a receipt of 1 call; pass one".to_owned()),
        ("RL.SETTLE RECEIPT one", "cost \"one\" is not a whole number; use digits only".to_owned()),
    ] {
        let line = line.replace("RECEIPT", &receipt);
        assert_eq!(client.ask(&line), format!("-ERR {error}|"), "{line}");
        assert!(client.ask("RL.PEEK tokens user:1").starts_with("*7|:1|:10|:6|"), "{line}");
    }
    // The receipt is still open.
    assert_eq!(client.ask(&format!("RL.SETTLE {receipt} 0")), ":1|");
}

#[test]
fn no_rule_is_named_like_an_option() {
    let (server, _) = server();
    for name in ["MAXWAIT", "TTL", "maxwait", "Ttl"] {
        let error = server.engine.load(vec![rule(name, &["fixed-window 1/day"])]).unwrap_err();
        let expected =
            format!("rule name {name:?} is reserved: it begins the options of a command; choose another");
        assert_eq!(error.to_string(), expected);
    }
}

/// However the parts of a receipt are exchanged, it returns no charge of another receipt.
#[test]
fn forged_receipts_return_nothing() {
    let (server, _) = server();
    let mut client = server.client();
    let (_, one) = reserve(&mut client, "RL.RESERVE daily user:1 COST 5");
    let (_, all) = reserve(&mut client, "RL.RESERVEALL tokens user:1 4 daily user:2 5");
    let (_, trial) = reserve(&mut client, "RL.RESERVE trial user:1");
    let mut dice = fastrand::Rng::with_seed(5);
    let mut replies = 0;
    for _ in 0..4_000 {
        let mut bytes = [&one, &all][dice.usize(..2)].clone().into_bytes();
        match dice.u8(..4) {
            0 => bytes.truncate(dice.usize(..bytes.len())),
            1 => bytes.insert(dice.usize(..bytes.len()), dice.alphanumeric() as u8),
            _ => {
                let place = dice.usize(..bytes.len());
                let other = b"0123456789abcdef~.AQgw-_"[dice.usize(..24)];
                if bytes[place] == other {
                    continue;
                }
                bytes[place] = other;
            }
        }
        let text = String::from_utf8(bytes).unwrap();
        if text.split('~').next() == one.split('~').next() || text.split('~').next() == all.split('~').next()
        {
            continue;
        }
        for command in ["RL.CANCEL", "RL.SETTLE", "RL.EXTEND"] {
            let numbers = if command == "RL.CANCEL" { "" } else { " 0" };
            let reply = client.ask(&format!("{command} \"{text}\"{numbers}"));
            assert!(reply == ":0|" || reply.starts_with("-ERR "), "{command} {text}: {reply}");
            replies += 1;
        }
    }
    assert!(replies > 5_000, "{replies}");
    assert!(client.ask("RL.PEEK daily user:1").starts_with("*7|:1|:20|:15|"));
    assert!(client.ask("RL.PEEK tokens user:1").starts_with("*7|:1|:10|:6|"));
    // The rule and key of another call change the names in the reply, not the decision.
    let mixed = format!("{}~{}", one.split('~').next().unwrap(), trial.split('~').nth(1).unwrap());
    assert!(
        client.ask(&format!("RL.EXTEND {mixed} 16")).starts_with("*9|:1|:20|:15|"),
        "a shadow rule allows it, but the limits charge nothing"
    );
    assert!(client.ask("RL.PEEK daily user:1").starts_with("*7|:1|:20|:15|"));
    // Not even to be extended under the limits of another key of the rule.
    let (_, user) = reserve(&mut client, "RL.RESERVE api user:1");
    let (_, partner) = reserve(&mut client, "RL.RESERVE api partner");
    let mixed = format!("{}~{}", user.split('~').next().unwrap(), partner.split('~').nth(1).unwrap());
    assert!(client.ask(&format!("RL.EXTEND {partner} 100")).starts_with("*9|:1|:500|:399|"));
    assert!(client.ask(&format!("RL.EXTEND {mixed} 5")).starts_with("*9|:0|:5|:4|"));
    assert!(client.ask("RL.PEEK api user:1").starts_with("*7|:1|:5|:4|"));
}

/// What `RL.PEEK` says of the keys that random commands charge.
fn standings(client: &mut Client) -> [String; 3] {
    ["tokens user:1", "daily user:1", "\"pacer 1/s queue=3\" user:1"]
        .map(|key| client.ask(&format!("RL.PEEK {key}")))
}

/// Words at random: each command is answered, and what is rejected charges nothing.
#[test]
fn random_commands_are_answered_and_rejected_ones_charge_nothing() {
    let (server, _) = server();
    let (mut client, mut watcher) = (server.client(), server.client());
    let mut dice = fastrand::Rng::with_seed(9);
    let mut receipts = vec![reserve(&mut client, "RL.RESERVE daily user:1").1];
    let (mut rejected, mut allowed) = (0, 0);
    for _ in 0..6_000 {
        let valid: &[&str] = [
            &["RL.RESERVE", "tokens", "user:1", "COST", "2", "ATLEAST", "1", "TTL", "9", "THEN", "cancel"][..],
            &["RL.RESERVE", "daily", "user:1", "MAXWAIT", "5", "COST", "1"],
            &[
                "RL.RESERVEALL",
                "tokens",
                "user:1",
                "1",
                "daily",
                "user:1",
                "1",
                "TTL",
                "9",
                "THEN",
                "keep",
                "MAXWAIT",
                "9",
            ],
            &["RL.EXTEND", "RECEIPT", "1", "TTL", "9000"],
            &["RL.SETTLE", "RECEIPT", "1", "1"],
            &["RL.CANCEL", "RECEIPT"],
        ][dice.usize(..6)];
        let mut words: Vec<Vec<u8>> = valid.iter().map(|word| word.as_bytes().to_vec()).collect();
        for _ in 0..dice.usize(..4) {
            let other: &[u8] = [
                &b"TTL"[..],
                b"THEN",
                b"cancel",
                b"MAXWAIT",
                b"ATLEAST",
                b"COST",
                b"0",
                b"1",
                b"-1",
                b"1000000000001",
                b"18446744073709551616",
                b"",
                b"\xff\0\r\n",
                b"pacer 1/s queue=3",
                b"user:1",
                b"RECEIPT",
                b"~",
            ][dice.usize(..17)];
            let place = dice.usize(1..=words.len());
            match dice.u8(..4) {
                0 => words.insert(place, other.to_vec()),
                1 if words.len() > 2 => drop(words.remove(place - 1)),
                _ => words[place - 1] = other.to_vec(),
            }
        }
        let receipt = &receipts[dice.usize(..receipts.len())];
        let words: Vec<&[u8]> =
            words.iter().map(|word| if word == b"RECEIPT" { receipt.as_bytes() } else { word }).collect();
        let before = standings(&mut watcher);
        client.send(array(&words));
        let reply = client.shown();
        if reply.starts_with('-') {
            let command: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
            assert_eq!(standings(&mut watcher), before, "{command:?}: {reply}");
            assert!(
                reply.starts_with("-ERR ") && reply.len() < 700 && reply.matches('|').count() == 1,
                "{reply}"
            );
            rejected += 1;
        } else {
            allowed += usize::from(reply.contains("|:1|"));
            let issued = reply.split('|').find(|item| item.starts_with('m') && item.contains('~'));
            receipts.extend(issued.map(str::to_owned));
            if receipts.len() > 8 {
                receipts.remove(0);
                client.ask("RL.RESET tokens user:1");
                client.ask("RL.RESET daily user:1");
            }
        }
    }
    assert!(rejected > 2_000 && allowed > 500, "{rejected} rejected, {allowed} allowed");
}

/// Bodies with random bytes: never an answer for which the server is to blame.
#[test]
fn random_bodies_are_answered() {
    let serving = Serving::start(Config { rules: rules(), ..config() });
    let one = r#"{"rule":"tokens","key":"user:1","cost":2,"at_least":1,"ttl_ms":9,"then":"cancel"}"#;
    let receipt = serving.post("/v1/reserve", one).json()["receipt"].as_str().unwrap().to_owned();
    let all = r#"{"checks":[{"rule":"tokens","key":"user:1"},{"rule":"api","key":"free"}],"ttl_ms":9}"#;
    let settle = format!(r#"{{"receipt":"{receipt}","costs":[1]}}"#);
    let extend = format!(r#"{{"receipt":"{receipt}","cost":1,"ttl_ms":9}}"#);
    let mut dice = fastrand::Rng::with_seed(11);
    let mut statuses = std::collections::BTreeMap::new();
    let mut connection = serving.connect();
    for _ in 0..3_000 {
        let (path, body) = [
            ("/v1/reserve", one),
            ("/v1/reserve?enforce=true", all),
            ("/v1/settle", settle.as_str()),
            ("/v1/extend", extend.as_str()),
        ][dice.usize(..4)];
        let mut body = body.as_bytes().to_vec();
        for _ in 0..dice.usize(..4) {
            let place = dice.usize(..body.len());
            match dice.u8(..3) {
                0 => drop(body.remove(place)),
                1 => body.insert(place, b"{}[]\",:0123456789eE-.ntf"[dice.usize(..24)]),
                _ => body[place] = dice.u8(b' '..0x7f),
            }
        }
        connection.send(posted(path, std::str::from_utf8(&body).unwrap()));
        *statuses.entry(connection.answer().0).or_insert(0) += 1;
    }
    assert!(statuses.keys().all(|status| [200, 400, 404, 429].contains(status)), "{statuses:?}");
    assert!(statuses[&200] > 200 && statuses[&400] > 1_000, "{statuses:?}");
}

/// The longest receipt fits into an argument.
#[test]
fn a_receipt_of_long_keys_can_be_sent_back() {
    let (server, _) = server();
    let mut client = server.client();
    let key = "k".repeat(64 * 1024);
    let (_, receipt) = reserve(&mut client, &format!("RL.RESERVE daily {key}"));
    assert_eq!(client.ask(&format!("RL.CANCEL {receipt}")), ":1|");
    let shorter = "k".repeat(39 * 1024);
    let (_, receipt) = reserve(&mut client, &format!("RL.RESERVEALL daily {shorter} 1 api {shorter} 1"));
    assert_eq!(client.ask(&format!("RL.CANCEL {receipt}")), ":1|");
    assert_eq!(
        client.ask(&format!("RL.RESERVEALL daily {shorter} 1 api {key} 1")),
        "-ERR the rules and keys of a reservation have 105480 bytes; use at most 81920 in all, or hash the keys|"
    );
}

fn ok(serving: &Serving, path: &str, body: &Value) -> Value {
    let reply = serving.post(path, &body.to_string());
    assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
    reply.json()
}

#[test]
fn http_reserves_extends_and_settles() {
    let serving = Serving::start(Config { rules: rules(), ..config() });
    let one = json!({"rule": "tokens", "key": "user:1", "cost": 30, "at_least": 2, "ttl_ms": 1000, "then": "cancel"});
    let reserved = ok(&serving, "/v1/reserve", &one);
    assert_eq!((&reserved["allowed"], &reserved["granted"]), (&json!(true), &json!(10)));
    let denied = serving.post("/v1/reserve?enforce=true", &one.to_string());
    assert_eq!(
        (denied.status, &denied.json()["granted"], &denied.json()["receipt"]),
        (429, &json!(0), &Value::Null)
    );
    serving.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(ok(&serving, "/v1/peek", &json!({"rule": "tokens", "key": "user:1"}))["remaining"], 10);

    let checks = json!([{"rule": "tokens", "key": "user:1", "cost": 4}, {"rule": "both", "key": "user:1"}]);
    let reply =
        serving.post("/v1/reserve", &json!({"checks": checks, "max_wait_ms": 5, "ttl_ms": 5000}).to_string());
    let all = reply.json();
    assert_eq!((all["checks"].as_array().unwrap().len(), &all["granted"]), (2, &Value::Null));
    assert_eq!(reply.header("ratelimit"), Some(r#""tokens";r=6;t=4, "both#1";r=9;t=1, "both#2";r=3;t=6399"#));
    let extend = |numbers: Value| {
        let mut body = json!({"receipt": all["receipt"]});
        body.as_object_mut().unwrap().extend(numbers.as_object().unwrap().clone());
        serving.post("/v1/extend?enforce=true", &body.to_string())
    };
    let extended = extend(json!({"costs": [1, 2], "ttl_ms": 9000}));
    assert_eq!((extended.status, &extended.json()["remaining"]), (200, &json!(1)));
    assert_eq!(
        extended.header("ratelimit"),
        Some(r#""tokens";r=5;t=5, "both#1";r=7;t=3, "both#2";r=1;t=6399"#)
    );
    let denied = extend(json!({"cost": 2}));
    assert_eq!((denied.status, &denied.json()["violated-policies"]), (429, &json!(["both#2"])));
    assert_eq!(denied.json()["denied"], json!({"call": 1, "rule": "both", "limit": "fixed-window 4/d"}));
    for (numbers, error) in [
        (json!({}), "\"cost\" is missing; send the cost to add, or \"costs\" with one number for each call"),
        (json!({"cost": 1, "costs": [1]}), "\"cost\" and \"costs\" are both set; send one"),
        (
            json!({"costs": [1, 2, 3]}),
            "3 numbers for a receipt of 2 calls; pass one for all of them, or one for each",
        ),
        (json!({"cost": 0, "ttl_ms": 0}), "a TTL of 0us is out of bounds; use 1 ms to 10 years"),
    ] {
        let reply = extend(numbers);
        assert_eq!((reply.status, reply.error().as_str()), (400, error));
    }
    let settle = json!({"receipt": all["receipt"], "costs": [2, 1]});
    assert_eq!(ok(&serving, "/v1/settle", &settle), json!({"done": true}));
    assert_eq!(ok(&serving, "/v1/settle", &settle), json!({"done": false}));
    let closed = extend(json!({"cost": 1}));
    assert_eq!((closed.status, closed.error().starts_with("the receipt is not open: ")), (404, true));
    for (body, error) in [
        (
            json!({"rule": "tokens", "key": "k", "at_least": 1, "max_wait_ms": 0}),
            "\"at_least\" and \"max_wait_ms\" are both set; send one: a partial grant never waits",
        ),
        (
            json!({"rule": "tokens", "key": "k", "then": "keep"}),
            "\"then\" is set without \"ttl_ms\"; send both",
        ),
        (
            json!({"rule": "tokens", "key": "k", "ttl_ms": 1, "then": "x"}),
            "\"then\" is \"x\"; use \"keep\" or \"cancel\"",
        ),
        (
            json!({"checks": [], "at_least": 1}),
            "a request with \"checks\" does not take \"at_least\"; it takes checks, max_wait_ms, ttl_ms, then",
        ),
    ] {
        let reply = serving.post("/v1/reserve", &body.to_string());
        assert_eq!((reply.status, reply.error().as_str()), (400, error));
    }
    assert_eq!(ok(&serving, "/v1/peek", &json!({"rule": "tokens", "key": "user:1"}))["remaining"], 8);
}
