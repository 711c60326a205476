//! Derived keys, in memory and as bytes.

use sluicegate::clock::ManualClock;
use sluicegate::{Key, Limiter};
use std::borrow::Cow;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

#[derive(Key)]
struct UserId(u64);

#[derive(Key)]
#[key(tag = "team")]
struct TeamId(u64);

#[derive(Key)]
#[key(transparent)]
struct Token(String);

#[derive(Key)]
struct Site;

#[derive(Key)]
struct Reply<'a, T> {
    user: UserId,
    thread: &'a str,
    of: T,
}

#[derive(Key)]
#[key(tag = "caller")]
enum Caller<A> {
    User(UserId),
    Address {
        address: A,
        port: u16,
    },
    #[key(tag = "anonymous")]
    Anonymous,
    r#Type,
}

#[derive(Key)]
enum Never {}

/// The two keys are one: the same bytes, and in memory the same state.
fn same(one: impl Key, other: impl Key) {
    assert_eq!(one.to_bytes(), other.to_bytes());
    let limiter = Limiter::builder("fixed-window 2/h").clock(ManualClock::default()).build().unwrap();
    assert_eq!((limiter.check(&one).remaining(), limiter.check(&other).remaining()), (1, 0));
}

#[test]
fn a_struct_is_the_tuple_of_its_fields() {
    same(UserId(7), (7,));
    same(TeamId(7), ("team", 7));
    same(Token("t-1".into()), "t-1");
    same(Site, ());
    same(Reply { user: UserId(7), thread: "home", of: 3 }, ((7,), "home", 3));
    same(Arc::new(UserId(7)), Box::new(UserId(7)));
    same(Cow::Borrowed("user:42"), "user:42");
    assert_eq!(*Token("~x".into()).to_bytes(), *"~x".to_bytes());
}

#[test]
fn an_enum_is_its_variant_and_fields() {
    let address: IpAddr = Ipv4Addr::LOCALHOST.into();
    same(Caller::<IpAddr>::User(UserId(7)), ("caller", "User", (7,)));
    same(Caller::Address { address, port: 80 }, ("caller", "Address", address, 80));
    same(Caller::<IpAddr>::Anonymous, ("caller", "anonymous"));
    same(Caller::<IpAddr>::Type, ("caller", "Type"));
    let _: Option<Never> = None;
}

#[test]
fn no_two_values_are_one_key() {
    let mut keys = HashSet::new();
    let mut add = |key: &dyn Key| assert!(keys.insert(key.to_bytes().into_owned()));
    for n in 0..50 {
        add(&UserId(n));
        add(&TeamId(n));
        add(&Caller::<u64>::User(UserId(n)));
        for (thread, of) in [("", "ab"), ("a", "b"), ("ab", ""), ("b", "a")] {
            add(&Reply { user: UserId(n), thread, of });
        }
        for port in [0, 1, 256] {
            add(&Caller::Address { address: n, port });
        }
    }
    add(&Caller::<u64>::Anonymous);
    add(&Caller::<u64>::Type);
    add(&Site);
    add(&Token("anonymous".into()));
}
