//! Connections that the proxy breaks.

use redis_testkit::{Client, Options, Proxy, Server, until};
use std::thread;
use std::time::{Duration, Instant};

fn both() -> (Server, Proxy) {
    let server = Server::start(&Options::redis());
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

fn connect(proxy: &Proxy) -> Client {
    Client::connect(proxy.port()).expect("a connection")
}

#[test]
fn bytes_are_forwarded_and_counted() {
    let (_server, proxy) = both();
    let mut client = connect(&proxy);
    assert_eq!(client.ask(&["PING"]).expect("an answer").to_string(), "PONG");
    assert_eq!((proxy.request_bytes(), proxy.reply_bytes(), proxy.accepted()), (14, 7, 1));
}

#[test]
fn a_reply_can_be_cut_at_every_byte() {
    let (server, proxy) = both();
    for byte in 0..4 {
        let mut client = connect(&proxy);
        proxy.cut_after(byte);
        assert!(client.ask(&["INCR", "a"]).is_err());
        assert_eq!(proxy.cuts(), byte + 1);
        assert_eq!(server.cli(&["GET", "a"]), (byte + 1).to_string());
        assert!(connect(&proxy).ask(&["PING"]).is_ok());
    }
    // The reply `:5` with its line end is 4 bytes: it arrives, and the next one does not.
    let mut client = connect(&proxy);
    proxy.cut_after(4);
    assert!(client.ask(&["INCR", "a"]).is_ok());
    assert!(client.ask(&["INCR", "a"]).is_err());
}

#[test]
fn a_command_whose_reply_is_lost_has_run() {
    let (server, proxy) = both();
    let mut client = connect(&proxy);
    proxy.lose_replies(true);
    let asked = thread::spawn(move || client.ask(&["INCR", "a"]).is_ok());
    until("the server has done it", || server.cli(&["GET", "a"]) == "1");
    until("the reply is lost", || proxy.reply_bytes() == 4);
    assert!(!asked.is_finished());
    proxy.lose_replies(false);
    assert!(!asked.join().expect("no panic"));
}

#[test]
fn held_and_delayed_replies_arrive_later() {
    let (server, proxy) = both();
    let mut client = connect(&proxy);
    proxy.hold(true);
    let asked = thread::spawn(move || client.ask(&["INCR", "a"]).map(|_| client));
    let mut late = connect(&proxy);
    until("the new one is accepted", || proxy.accepted() == 2);
    assert_eq!(server.cli(&["GET", "a"]), "");
    proxy.hold(false);
    assert!(asked.join().expect("no panic").is_ok());
    proxy.delay(Duration::from_millis(50));
    let began = Instant::now();
    assert!(late.ask(&["PING"]).is_ok());
    assert!(began.elapsed() >= Duration::from_millis(50));
}

#[test]
fn new_connections_can_be_closed_or_redirected() {
    let (_server, proxy) = both();
    proxy.refuse(true);
    assert!(connect(&proxy).ask(&["PING"]).is_err());
    proxy.refuse(false);
    let other = Server::start(&Options::redis());
    assert_eq!(other.cli(&["SET", "a", "other"]), "OK");
    proxy.send_to(other.port());
    assert_eq!(connect(&proxy).ask(&["GET", "a"]).expect("an answer").to_string(), "other");
    let port = proxy.port();
    drop(proxy);
    until("the port is free", || Client::connect(port).is_err());
}
