//! Exceeds every bound on clients, over a real socket.

use crate::resp_client::{Client, TestServer, array, shown};
use crate::running::{TEST_TIMEOUT, config, longest_list, rule};
use sluicegate_server::auth::{PASSWORD_LEN_MAX, Password};
use sluicegate_server::connection_limits::ConnectionLimits;
use sluicegate_server::server::Config;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);
/// Longer than a busy machine delays a client, and short enough to wait for.
const SHORT: Duration = Duration::from_millis(700);

fn with(limits: ConnectionLimits) -> TestServer {
    TestServer::start(Config { limits, rules: vec![rule("reply", &["sliding-log 5/60s"])], ..config() })
}

fn patient() -> ConnectionLimits {
    ConnectionLimits {
        idle_timeout: None,
        request_timeout: LONG,
        unread_timeout: LONG,
        ..ConnectionLimits::default()
    }
}

/// A command within the bound is answered; one just beyond it closes the connection with this
/// error.
fn crossed(server: &TestServer, within: &[u8], beyond: &[u8], error: &str) {
    let mut client = server.client();
    client.send(within);
    assert!(!client.shown().starts_with("-ERR Protocol error"), "{}", within.escape_ascii());
    client.send(beyond);
    assert_eq!(client.rest(), format!("-ERR Protocol error: {error}|"), "{}", beyond.escape_ascii());
}

#[test]
fn arguments_max() {
    let server = with(ConnectionLimits { arguments_max: 4, ..patient() });
    let error = "invalid multibulk length; a command has at most 4 arguments";
    crossed(&server, &array(&[&b"PING"[..]; 4]), b"*5\r\n", error);
    crossed(&server, b"a b c d\r\n", b"a b c d e\r\n", error);
}

#[test]
fn bulk_len_max() {
    let server = with(ConnectionLimits { bulk_len_max: 10, ..patient() });
    let error = "invalid bulk length; an argument has at most 10 bytes";
    crossed(&server, &array(&[b"PING", b"0123456789"]), b"*2\r\n$4\r\nPING\r\n$11\r\n", error);
    crossed(&server, b"PING 0123456789\r\n", b"PING 0123456789x\r\n", error);
    // Whatever length it announces.
    crossed(&server, b"PING\r\n", b"*1\r\n$99999999999999999999\r\n", error);
}

#[test]
fn the_length_of_an_inline_list() {
    let server = with(patient());
    let mut client = server.client();
    let mut check = |limits: &str| {
        client.send(array(&[b"RL.CHECK", limits.as_bytes(), b"user:42"]));
        client.shown()
    };
    let longest = longest_list();
    assert!(check(&longest).starts_with("*7|:1|:9|:8|"), "eight limits of 256 bytes");
    let too_long = check(&format!("{longest} "));
    assert!(
        too_long.ends_with(
            ": limits of 2070 bytes are above the maximum, 2069; shorten them, or leave some out|"
        ),
        "{too_long}"
    );
    let too_many = check(&["pacer 1/s"; 9].join(" + "));
    assert!(
        too_many.ends_with(": a list of 9 limits is above the maximum, 8; leave some out|"),
        "{too_many}"
    );
    let too_long = check(&format!("pacer 1/s + fixed-window {} 1/s", " ".repeat(240)));
    assert!(too_long.contains(": a limit of 257 bytes is above the maximum, 256;"), "{too_long}");
    assert!(check(&longest).starts_with("*7|:1|:9|:7|"), "the connection stays usable");
}

#[test]
fn command_len_max() {
    let server = with(ConnectionLimits { command_len_max: 60, bulk_len_max: 30, ..patient() });
    // *2 $4 PING $LL: 4 + 10 + 5 bytes before the message, 2 after it.
    let message = [b'x'; 30];
    let three = array(&[b"PING", &message, &message]);
    crossed(
        &server,
        &array(&[b"PING", &message]),
        &three[..60],
        "too big command; a command has at most 60 bytes",
    );
    let line = |len: usize| [&b"PING"[..], &vec![b' '; len - 5], b"\r\n"].concat();
    crossed(&server, &line(60), &line(62), "too big inline request; a line has at most 60 bytes");
    // Rejected before the line ends.
    crossed(&server, b"PING\r\n", &[b'x'; 61], "too big inline request; a line has at most 60 bytes");
}

#[test]
fn nothing_is_nested() {
    let deep = b"*1\r\n".repeat(10_000);
    crossed(&with(patient()), b"PING\r\n", &deep, "expected '$', got '*'");
}

#[test]
fn idle_timeout() {
    let server = with(ConnectionLimits { idle_timeout: Some(SHORT), ..patient() });
    let began = Instant::now();
    let (mut silent, mut polite) = (server.client(), server.client());
    assert_eq!(polite.ask("PING"), "+PONG|");
    assert_eq!(silent.rest(), "");
    assert!(began.elapsed() >= SHORT, "closed after {:?}", began.elapsed());
    assert_eq!(polite.rest(), "");
}

#[test]
fn a_client_that_sends_in_time_is_not_idle() {
    let server = with(ConnectionLimits { idle_timeout: Some(Duration::from_secs(2)), ..patient() });
    let mut client = server.client();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        assert_eq!(client.ask("PING"), "+PONG|");
    }
}

#[test]
fn request_timeout() {
    let server = with(ConnectionLimits { request_timeout: SHORT, ..patient() });
    let mut client = server.client();
    client.send("PING\r\n*1\r\n$100\r\n");
    assert_eq!(client.shown(), "+PONG|");
    assert_eq!(client.rest(), "-ERR Protocol error: the rest of the command did not arrive in time|");
    // Bytes that trickle in do not buy more time.
    let mut client = server.client();
    client.send("*1\r\n$10000\r\n");
    let began = Instant::now();
    client.stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut closed = Vec::new();
    while began.elapsed() < LONG && closed.is_empty() {
        // May fail once the connection is closed; the read tells.
        let _ = client.stream.write_all(b"x");
        let mut some = [0; 256];
        if let Ok(read) = client.stream.read(&mut some) {
            closed.extend_from_slice(&some[..read]);
        }
    }
    assert_eq!(shown(&closed), "-ERR Protocol error: the rest of the command did not arrive in time|");
}

#[test]
fn each_command_has_its_own_request_timeout() {
    let server = with(ConnectionLimits { request_timeout: Duration::from_secs(2), ..patient() });
    let mut client = server.client();
    let began = Instant::now();
    // Always in the middle of a command, but never for long in the same one.
    client.send("PI");
    while began.elapsed() < Duration::from_millis(2_500) {
        client.send("NG\r\nPI");
        assert_eq!(client.shown(), "+PONG|");
    }
}

fn guarded(limits: ConnectionLimits) -> TestServer {
    TestServer::start(Config { limits, password: Some(Password::new(b"sesame").unwrap()), ..config() })
}

#[test]
fn handshake_timeout() {
    let server = guarded(ConnectionLimits { handshake_timeout: SHORT, ..patient() });
    let mut known = server.client();
    assert_eq!(known.ask("AUTH sesame"), "+OK|");
    let error = "-ERR Protocol error: the password did not arrive in time|";
    assert_eq!(server.client().rest(), error);
    // Sending commands does not help.
    let mut client = server.client();
    let began = Instant::now();
    let last = loop {
        client.send("PING\r\n");
        let reply = client.shown();
        assert!(began.elapsed() < LONG);
        if reply != "-NOAUTH Authentication required.|" {
            break reply;
        }
    };
    assert_eq!(last, error);
    assert_eq!(known.ask("PING"), "+PONG|");
    // After RESET the timeout starts again.
    assert_eq!(known.ask("RESET"), "+RESET|");
    assert_eq!(known.rest(), error);
}

#[test]
fn constant_traffic_does_not_extend_the_password_timeout() {
    let server = guarded(ConnectionLimits { handshake_timeout: SHORT, ..patient() });
    for bytes in [&b"PING\r\n"[..], b"\r\n", b"HELLO 3\r\n", b"RESET\r\n"] {
        let began = Instant::now();
        let mut client = server.client();
        // It does not wait for replies; another thread reads them.
        let mut stream = client.stream.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            while began.elapsed() < TEST_TIMEOUT {
                if stream.write_all(&bytes.repeat(100)).is_err() {
                    return true;
                }
            }
            false
        });
        let said = client.rest();
        let after = began.elapsed();
        let last = "-ERR Protocol error: the password did not arrive in time|";
        assert!(said.ends_with(last), "{:?}", said.get(said.len().saturating_sub(200)..));
        assert!(after >= SHORT, "closed after {after:?}");
        assert!(writer.join().unwrap(), "closed while it was talking");
    }
}

#[test]
fn too_many_wrong_passwords_close_the_connection() {
    let server = guarded(patient());
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.|";
    let mut client = server.client();
    for guess in ["AUTH a", "AUTH default b", "HELLO 3 AUTH default c", "AUTH d"] {
        assert_eq!(client.ask(guess), wrong);
        // This does not reset the count.
        assert_eq!(client.ask("RESET"), "+RESET|");
    }
    client.send("AUTH e\r\nAUTH sesame\r\n");
    let last = "-ERR Protocol error: too many wrong passwords; reconnect with the right one|";
    assert_eq!(client.rest(), format!("{wrong}{last}"));
    // The right one resets the count.
    let mut client = server.client();
    for _ in 0..2 {
        for _ in 0..4 {
            assert_eq!(client.ask("AUTH a"), wrong);
        }
        assert_eq!(client.ask("AUTH sesame"), "+OK|");
        assert_eq!(client.ask("RESET"), "+RESET|");
    }
}

#[test]
fn guessing_with_new_connections_is_limited() {
    let server = guarded(patient());
    let mut known = server.client();
    assert_eq!(known.ask("AUTH sesame"), "+OK|");
    for _ in 0..20 {
        assert!(server.client().ask("AUTH guess").starts_with("-WRONGPASS "));
    }
    // Neither a guess nor the right one is compared.
    for password in ["guess", "sesame"] {
        let mut client = server.client();
        client.send(format!("AUTH {password}\r\nPING\r\n"));
        let said = client.rest();
        assert!(said.starts_with("-ERR too many wrong passwords from this address; retry in "), "{said}");
        assert!(said.ends_with(" ms with the right one|"), "{said}");
    }
    assert_eq!(known.ask("PING"), "+PONG|");
}

#[test]
fn bounds_are_tight_before_authentication() {
    let server = guarded(patient());
    let long = vec![b'x'; 512];
    let longer = vec![b'x'; 513];
    crossed(
        &server,
        &array(&[&b"AUTH"[..]; 10]),
        b"*11\r\n",
        "invalid multibulk length; a command has at most 10 arguments",
    );
    let error = "invalid bulk length; an argument has at most 512 bytes";
    crossed(&server, &array(&[b"AUTH", &long]), &array(&[b"AUTH", &longer]), error);
    let error = "too big command; a command has at most 2048 bytes";
    let four = [&b"HELLO"[..], &long, &long, &long, &long];
    crossed(&server, &array(&four[..4]), &array(&four), error);
    let error = "too big inline request; a line has at most 2048 bytes";
    crossed(&server, b"PING\r\n", &[b' '; 2049], error);
    // Behind the password in one packet, the full bounds apply at once.
    let mut client = server.client();
    client.send([array(&[b"AUTH", b"sesame"]), array(&[b"ECHO", &longer])].concat());
    assert_eq!(client.shown(), "+OK|");
    assert!(client.shown().starts_with("$513|"));
}

#[test]
fn no_setting_prevents_the_longest_password() {
    let password = [b'x'; PASSWORD_LEN_MAX];
    let limits = ConnectionLimits { arguments_max: 2, bulk_len_max: 64, command_len_max: 128, ..patient() };
    let config = Config { limits, password: Some(Password::new(&password).unwrap()), ..config() };
    let server = TestServer::start(config);
    let mut client = server.client();
    client.send(array(&[b"HELLO", b"3", b"AUTH", b"default", &password, b"SETNAME", &[b'n'; 128]]));
    assert!(client.shown().starts_with("%7|"));
    // Later commands must keep to the settings.
    client.send(array(&[b"ECHO", &password]));
    assert_eq!(client.rest(), "-ERR Protocol error: invalid bulk length; an argument has at most 64 bytes|");
}

/// A client that sends many long messages and does not read. Returns how many bytes it could send
/// at first, and then in total.
fn send_without_reading(client: &Client, total: usize) -> (Arc<AtomicUsize>, std::thread::JoinHandle<bool>) {
    let mut stream = client.stream.try_clone().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let echo = array(&[b"ECHO", &vec![b'x'; 60_000]]);
    let writer = std::thread::spawn(move || {
        stream.set_write_timeout(None).unwrap();
        (0..total).all(|_| {
            counter.fetch_add(1, Ordering::Relaxed);
            stream.write_all(&echo).is_ok()
        })
    });
    (sent, writer)
}

#[test]
fn unread_replies_max() {
    const TOTAL: usize = 1_000;
    let server = with(ConnectionLimits { unread_replies_max: 1_000, ..patient() });
    let mut client = server.client();
    let (sent, writer) = send_without_reading(&client, TOTAL);
    // Until nothing moves: the system's buffers are full, and the server has stopped reading.
    let mut before = usize::MAX;
    while before != sent.load(Ordering::Relaxed) {
        before = sent.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(before < TOTAL, "60 MB of replies wait for a client that does not read");
    assert_eq!(server.client().ask("PING"), "+PONG|");
    for _ in 0..TOTAL {
        assert_eq!(client.reply().len(), 60_010);
    }
    assert!(writer.join().unwrap());
    assert_eq!(client.ask("PING"), "+PONG|");
}

#[test]
fn unread_timeout() {
    let server = with(ConnectionLimits { unread_timeout: SHORT, ..patient() });
    let client = server.client();
    let (_, writer) = send_without_reading(&client, 100_000);
    assert!(!writer.join().unwrap(), "a client that never reads was served for ever");
    assert_eq!(server.client().ask("PING"), "+PONG|");
}

#[test]
fn bytes_that_arrive_one_by_one_form_commands() {
    let server = with(patient());
    let mut client = server.client();
    let bytes =
        [array(&[b"RL.CHECK", b"reply", b"user:42"]), b"RL.CHECK 'reply' \"user:42\"\r\n".to_vec()].concat();
    for byte in bytes {
        client.send([byte]);
    }
    assert!(client.shown().starts_with("*7|:1|:5|:4|"));
    assert!(client.shown().starts_with("*7|:1|:5|:3|"));
}

#[test]
fn many_commands_at_once_are_answered_in_order() {
    let server = with(patient());
    let mut client = server.client();
    let all: Vec<String> = (0..50_000).map(|number| format!("ECHO {number}\r\n")).collect();
    let mut writer = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || writer.write_all(all.concat().as_bytes()).unwrap());
    for number in 0..50_000 {
        let digits = number.to_string();
        assert_eq!(client.shown(), format!("${}|{digits}|", digits.len()));
    }
    writer.join().unwrap();
}

/// In one batch, also if its replies exceed the bound on unread replies midway.
#[test]
fn a_check_behind_auth_in_one_batch_is_answered() {
    for filler in [10, 65_520] {
        let server = guarded(ConnectionLimits::default());
        let mut client = server.client();
        assert_eq!(client.ask("AUTH sesame"), "+OK|");
        let filler = "x".repeat(filler);
        let check = "RL.CHECK \"sliding-log 5/60s\" user\r\n";
        client.send(format!("ECHO {filler}\r\nRESET\r\n{check}AUTH sesame\r\n{check}"));
        assert_eq!(client.reply().len(), filler.len() + format!("${}\r\n\r\n", filler.len()).len());
        assert_eq!(client.shown(), "+RESET|");
        assert_eq!(client.shown(), "-NOAUTH Authentication required.|");
        assert_eq!(client.shown(), "+OK|");
        assert!(client.shown().starts_with("*7|:1|:5|:4|"), "charged once");
    }
}
