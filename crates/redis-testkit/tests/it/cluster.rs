//! Clusters.

use redis_testkit::{Cluster, Options};

#[test]
fn a_slot_migrates_step_by_step() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    assert_eq!(cluster.masters().len(), 3);
    let slot = cluster.slot_of("a");
    let from = cluster.owner_of(slot);
    let to = (from + 1) % 3;
    let ask = |place: usize, key: &str| cluster.nodes()[place].cli(&["GET", key]);
    assert_eq!(cluster.nodes()[from].cli(&["SET", "a", "1"]), "OK");
    assert_eq!(ask(to, "a"), format!("MOVED {slot} 127.0.0.1:{}", cluster.nodes()[from].port()));

    cluster.begin_move(slot, from, to);
    assert_eq!(ask(from, "a"), "1");
    assert_eq!(ask(from, "b{a}"), format!("ASK {slot} 127.0.0.1:{}", cluster.nodes()[to].port()));
    cluster.move_keys(slot, from, to);
    assert!(ask(from, "a").starts_with("ASK"));
    cluster.end_move(slot, from, to);
    assert!(ask(from, "a").starts_with("MOVED"));
    assert_eq!(ask(to, "a"), "1");
    assert_eq!(cluster.owner_of(slot), to);

    cluster.move_slot(slot, to, from);
    assert_eq!(ask(from, "a"), "1");
}

#[test]
fn replicas_of_a_cluster_follow_their_masters() {
    let cluster = Cluster::start(&Options::redis(), 3, 1);
    assert_eq!(cluster.nodes().len(), 6);
    for replica in &cluster.nodes()[3..] {
        assert_eq!(replica.info("role"), "slave");
    }
    let [first, second, third] =
        [0, 1, 2].map(|place| format!("127.0.0.1:{}", cluster.nodes()[place].port()));
    assert_eq!(cluster.url(), format!("redis+cluster://{first},{second},{third}"));
}

#[test]
fn valkey_forms_a_cluster_too() {
    let Some(options) = Options::valkey() else { return };
    let cluster = Cluster::start(&options, 3, 0);
    let slot = cluster.slot_of("a");
    assert_eq!(cluster.nodes()[cluster.owner_of(slot)].cli(&["SET", "a", "1"]), "OK");
}
