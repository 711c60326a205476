//! A master with a replica, and both under Sentinel.

use redis_testkit::{Options, Replicated, Sentinels, until};

#[test]
fn a_replica_has_the_masters_data_and_can_be_promoted() {
    let both = Replicated::start(&Options::redis());
    assert_eq!(both.master().cli(&["SET", "a", "1"]), "OK");
    both.wait_for_sync();
    assert_eq!(both.replica().cli(&["GET", "a"]), "1");
    assert!(both.replica().cli(&["SET", "a", "2"]).starts_with("READONLY"));
    both.promote();
    assert_eq!(both.replica().cli(&["SET", "a", "2"]), "OK");
    assert!(both.master().cli(&["SET", "a", "3"]).starts_with("READONLY"));
}

#[test]
fn sentinels_promote_the_replica_of_a_dead_master() {
    let all = Sentinels::start(&Options::redis());
    assert_eq!(all.ports().len(), 3);
    assert_eq!(all.sentinels()[0].cli(&["PING"]), "PONG");
    assert_eq!(all.master_port(), all.servers().master().port());
    assert_eq!(all.servers().master().cli(&["SET", "a", "1"]), "OK");
    all.servers().wait_for_sync();
    all.failover();
    let replica = all.servers().replica();
    assert_eq!(all.master_port(), replica.port());
    until("the new master takes writes", || replica.cli(&["SET", "b", "1"]) == "OK");
    assert_eq!(replica.cli(&["GET", "a"]), "1");
}
