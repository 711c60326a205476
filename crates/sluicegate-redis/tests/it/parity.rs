//! The shared store makes the model's decisions, in every field.

use crate::in_redis::Connected;
use redis_testkit::{Cluster, Options, Server};
use sluicegate::Limit;
use sluicegate_conformance::{Changes, Report, random_changes, random_traces, random_verbs, suite};

fn passes_the_suite(url: &str) {
    let connected = Connected::to(url);
    let report = suite(|limits, start| connected.subject(limits, start));
    let report = report.unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(report.checks > 30_000 && report.denied > 5_000, "{report:?}");
}

fn agrees_on_verbs(url: &str, seed: u64, operations: u64) -> Report {
    let connected = Connected::to(url);
    let mut report = Report::default();
    random_verbs(seed, operations, true, |limits, start| connected.subject(limits, start), &mut report)
        .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    report
}

#[test]
fn the_suite_passes_on_redis() {
    passes_the_suite(&Server::start(&Options::redis()).url());
}

#[test]
fn every_verb_agrees_with_the_model_on_redis() {
    let server = Server::start(&Options::redis());
    let report = agrees_on_verbs(&server.url(), 1, 15_000);
    assert!(report.returned > 50 && report.indebted > 20, "{report:?}");
}

/// As a reload of one server does: another limiter of the same scope.
fn agrees_while_limits_change(url: &str, seed: u64, operations: u64) -> Report {
    let connected = Connected::to(url);
    let make = |limits: &[Limit], start| connected.subject(limits, start);
    let mut report = Report::default();
    random_changes(seed, operations, true, Changes::InSharedStore, make, &mut report)
        .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    report
}

#[test]
fn every_verb_agrees_with_the_model_while_the_limits_change() {
    let server = Server::start(&Options::redis());
    let report = agrees_while_limits_change(&server.url(), 5, 10_000);
    assert!(report.changed > 300 && report.returned > 20, "{report:?}");
}

/// `cargo test --release -p sluicegate-redis --test it -- --ignored many_changes` takes minutes.
#[test]
#[ignore = "takes minutes; see its comment"]
fn many_changes_agree_with_the_model() {
    let server = Server::start(&Options::redis());
    let report = agrees_while_limits_change(&server.url(), 9, 300_000);
    assert!(report.changed > 10_000 && report.returned > 1_000, "{report:?}");
}

#[test]
fn the_suite_and_every_verb_pass_on_valkey() {
    let Some(options) = Options::valkey() else { return };
    let server = Server::start(&options);
    passes_the_suite(&server.url());
    agrees_on_verbs(&server.url(), 2, 5_000);
}

#[test]
fn the_suite_and_every_verb_pass_on_a_cluster() {
    let cluster = Cluster::start(&Options::redis(), 3, 0);
    passes_the_suite(&cluster.url());
    agrees_on_verbs(&cluster.url(), 3, 5_000);
}

/// `cargo test --release -p sluicegate-redis --test it -- --ignored a_million` takes some minutes.
#[test]
#[ignore = "takes minutes; see its comment"]
fn a_million_decisions_agree_with_the_model() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let mut report = Report::default();
    for algorithm in Limit::CHECKS.into_iter().map(Some).chain([None]) {
        let make = |limits: &[Limit], start| connected.subject(limits, start);
        random_traces(algorithm, 7, 100_000, make, &mut report)
            .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
    let verbs = agrees_on_verbs(&server.url(), 8, 250_000);
    assert!(report.checks + verbs.checks >= 1_000_000, "{report:?}, {verbs:?}");
}
