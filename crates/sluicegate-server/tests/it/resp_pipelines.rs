//! Whatever is sent, each command has one reply, in order.

use crate::resp_client::{TestServer, array};
use crate::running::{config, rule};
use sluicegate_server::resp::usages;
use sluicegate_server::server::Config;

/// Pseudo-random numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn of<'a>(&mut self, choices: &[&'a [u8]]) -> &'a [u8] {
        choices[self.below(choices.len())]
    }
}

/// Valid and invalid arguments.
const ARGUMENTS: [&[u8]; 36] = [
    b"reply",
    b"exports",
    // A lease that does not exist.
    b"0123456789abcdef0123456789abcdef0123456789abcdef",
    b"list",
    b"sliding-log 5/60s",
    b"token-bucket 3/s",
    b"fixed-window 1/day tz=Asia/Shanghai",
    b"pacer 1/s",
    b"concurrency 3 ttl=1s",
    b"smooth 3/s",
    b"user:42",
    b"user:7",
    b"",
    b"\0",
    b"\xff\xfe",
    b"\r\n",
    b"+OK\r\n",
    b"-ERR x\r\n$5\r\n",
    b"0",
    b"1",
    b"-1",
    b"2",
    b"1000000000",
    b"1000000001",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"99999999999999999999",
    b"1.5",
    b"COST",
    b"MAXWAIT",
    b"AUTH",
    b"SETNAME",
    b"GET",
    b"DOCS",
    b"INFO",
];

#[test]
fn every_command_has_one_reply() {
    let rules = vec![
        rule("reply", &["sliding-log 5/60s"]),
        rule("list", &["token-bucket 10/s", "fixed-window 100/d"]),
        rule("exports", &["concurrency 2 ttl=1ms"]),
    ];
    let server = TestServer::start(Config { rules, ..config() });
    let names: Vec<&[u8]> = usages().map(|usage| usage.split(' ').next().unwrap().as_bytes()).collect();
    // After QUIT there are no more replies; it has its own test.
    let names: Vec<&[u8]> =
        names.into_iter().filter(|name| *name != b"QUIT").chain([&b"NOPE"[..], b"\r\n"]).collect();
    let mut random = Random(1);
    let (mut answered, mut rejected, mut queued) = (0, 0, 0);
    for round in 0..60 {
        let mut client = server.client();
        let mut bytes = Vec::new();
        for number in 0..200 {
            let mut command = vec![random.of(&names)];
            command.extend((0..random.below(8)).map(|_| random.of(&ARGUMENTS)));
            bytes.extend_from_slice(&array(&command));
            // A unique reply, so that a missing or extra one shows at once.
            bytes.extend_from_slice(&array(&[b"ECHO", format!("marker {round} {number}").as_bytes()]));
        }
        client.send(&bytes);
        for number in 0..200 {
            let reply = client.reply();
            answered += 1;
            rejected += u32::from(reply[0] == b'-');
            let marker = format!("marker {round} {number}");
            let (shown, expected) = (client.shown(), format!("${}|{marker}|", marker.len()));
            // A transaction queues the marker; a missing or extra reply then shows after it.
            assert!(shown == expected || shown == "+QUEUED|", "{shown} after {}", reply.escape_ascii());
            queued += u32::from(shown != expected);
        }
    }
    assert!(queued > 100 && queued < 6_000, "{queued} of {answered} markers were queued");
    assert!(
        answered == 12_000 && rejected > 3_000 && rejected < 11_900,
        "{rejected} of {answered} were rejected"
    );
}
