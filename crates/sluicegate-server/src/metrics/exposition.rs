//! The counters of one moment in the `OpenMetrics` text format.
//!
//! Each family has one sentence of help; `docs/operating.md` says what to do about it. Only the
//! types that the older Prometheus text format also has are used (counter, gauge, histogram), so
//! that readers of either format understand it.

use super::latency::LatencyView;
use super::page::Page;
use super::panics::panics;
use super::process::Process;
use super::{ClientCounts, Metrics, since_epoch_us};
use crate::engine::{Engine, INLINE, LeaseStats, Rule, StoreView, TallyView};
use crate::net::ClosedFor;
use crate::protocol::ByProtocol;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use sluicegate::clock::{ClockSteps, SystemClock};
use sluicegate::{FullPool, StoreStats};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All counters at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    decisions: Vec<(String, TallyView)>,
    rules: usize,
    leases: Vec<(String, LeaseStats)>,
    leases_max: Option<usize>,
    no_lease_room: u64,
    stats: Option<StoreStats>,
    store: Option<StoreView>,
    protocols: ByProtocol<ProtocolView>,
    reloads_ok: u64,
    reloads_failed: u64,
    last_reload_ok: bool,
    last_reload_success_s: f64,
    started_s: f64,
    panics: u64,
    clock_steps: ClockSteps,
    process: Process,
}

#[derive(Debug)]
struct ProtocolView {
    latency: LatencyView,
    connections: u64,
    accepted: u64,
    rejected: u64,
    closed_unestablished: [(ClosedFor, u64); ClosedFor::ALL.len()],
    errors: u64,
    client_errors: u64,
    auth_failures: u64,
}

impl Snapshot {
    pub(super) fn take(metrics: &Metrics, engine: &Engine, process: Process) -> Snapshot {
        let rules = engine.rules();
        let mut decisions: Vec<_> = rules.iter().map(|rule| (rule.name().to_owned(), rule.tally())).collect();
        let rules = decisions.len();
        decisions.push((INLINE.to_owned(), engine.inline_tally()));
        let of_rule = |rule: &Arc<Rule>| Some((rule.name().to_owned(), rule.leases()?));
        let mut leases: Vec<_> = engine.rules().iter().filter_map(of_rule).collect();
        leases.push((INLINE.to_owned(), engine.inline_leases()));
        Snapshot {
            decisions,
            rules,
            leases,
            leases_max: (!engine.is_shared()).then_some(engine.settings().max_leases),
            no_lease_room: engine.no_lease_room().unwrap_or(0),
            stats: engine.stats(),
            store: engine.store(),
            protocols: ByProtocol::new(|protocol| ProtocolView::take(&metrics.clients[protocol])),
            reloads_ok: metrics.config.succeeded.load(Ordering::Relaxed),
            reloads_failed: metrics.config.failed.load(Ordering::Relaxed),
            last_reload_ok: metrics.config.last_succeeded.load(Ordering::Relaxed),
            last_reload_success_s: seconds(metrics.config.last_success_us.load(Ordering::Relaxed)),
            started_s: seconds(since_epoch_us(metrics.started)),
            panics: panics(),
            clock_steps: SystemClock::steps(),
            process,
        }
    }

    pub(super) fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut written = String::new();
        // Writing to a string cannot fail, and nothing below returns an error of its own.
        let _ = text::encode(&mut written, &registry);
        written
    }
}

impl ProtocolView {
    fn take(counts: &ClientCounts) -> ProtocolView {
        let closed = counts.closed.load(Ordering::Relaxed);
        let accepted = counts.accepted.load(Ordering::Relaxed);
        ProtocolView {
            latency: counts.latency.view(),
            // Saturating, as the two are read at different moments.
            connections: accepted.saturating_sub(closed),
            accepted,
            rejected: counts.rejected.load(Ordering::Relaxed),
            closed_unestablished: ClosedFor::ALL
                .map(|reason| (reason, counts.closed_unestablished[reason as usize].load(Ordering::Relaxed))),
            errors: counts.errors.load(Ordering::Relaxed),
            client_errors: counts.client_errors.load(Ordering::Relaxed),
            auth_failures: counts.auth_failures.load(Ordering::Relaxed),
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.decisions(&mut page)?;
        self.leases(&mut page)?;
        self.clients(&mut page)?;
        if let Some(stats) = &self.stats {
            keys(stats, self.no_lease_room, &mut page)?;
        }
        if let Some(store) = &self.store {
            shared_store(store, &mut page)?;
        }
        self.config(&mut page)?;
        self.process(&mut page)
    }
}

impl Snapshot {
    fn decisions(&self, page: &mut Page<'_>) -> fmt::Result {
        let outcomes = self.decisions.iter().flat_map(|(rule, tally)| {
            [("allowed", tally.allowed), ("denied", tally.denied), ("shadow_denied", tally.shadow_denied)]
                .map(|(outcome, count)| ([("rule", rule.as_str()), ("outcome", outcome)], count))
        });
        page.counters(
            "sluice_decisions",
            "Calls decided by rule and outcome; shadow_denied counts calls that the limits denied and a shadow rule allowed.",
            outcomes,
        )
    }

    fn leases(&self, page: &mut Page<'_>) -> fmt::Result {
        if let Some(most) = self.leases_max {
            page.gauges(
                "sluice_leases",
                "Leases held by rule, including expired ones that no call has observed yet.",
                self.leases
                    .iter()
                    .filter_map(|(rule, view)| Some(([("rule", rule.as_str())], view.in_memory?.held))),
            )?;
            page.gauge(
                "sluice_leases_max",
                "The max_leases setting: the most leases held or waited for at once.",
                None,
                most,
            )?;
        }
        page.gauges(
            "sluice_lease_waiters",
            "Calls waiting for a lease by rule; with a shared store, those at this server.",
            self.leases.iter().map(|(rule, view)| ([("rule", rule.as_str())], view.waiting)),
        )?;
        let events = self.leases.iter().flat_map(|(rule, view)| {
            let LeaseStats { acquired, renewed, released, in_memory, .. } = *view;
            let always = [("acquired", acquired), ("renewed", renewed), ("released", released)];
            let expired = in_memory.map(|held| ("expired", held.expired));
            let labelled = |(event, count)| ([("rule", rule.as_str()), ("event", event)], count);
            always.into_iter().chain(expired).map(labelled)
        });
        page.counters(
            "sluice_lease_events",
            "Leases acquired, renewed, released and expired by rule; with a shared store, expiry is not observed.",
            events,
        )
    }

    fn clients(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut latency = page.family(
            "sluice_request_duration",
            "Time from reading a request to having its reply ready, by protocol, without the network.",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (protocol, view) in self.protocols.iter() {
            let LatencyView { sum_s, count, buckets } = &view.latency;
            let labels = [("protocol", protocol.description().id)];
            latency.encode_family(&labels)?.encode_histogram::<NoLabelSet>(*sum_s, *count, buckets, None)?;
        }
        page.gauges(
            "sluice_connections",
            "Open connections by protocol.",
            self.by_protocol(|view| view.connections),
        )?;
        page.counters(
            "sluice_connections_accepted",
            "Connections accepted by protocol.",
            self.by_protocol(|view| view.accepted),
        )?;
        page.counters(
            "sluice_connections_rejected",
            "Connections rejected because connections_max was reached, by protocol.",
            self.by_protocol(|view| view.rejected),
        )?;
        let closed = self.protocols.iter().flat_map(|(protocol, view)| {
            view.closed_unestablished.iter().map(move |(reason, count)| {
                ([("protocol", protocol.description().id), ("reason", reason.name())], *count)
            })
        });
        page.counters(
            "sluice_unestablished_closed",
            "Connections closed before their first authenticated request, by protocol and reason.",
            closed,
        )?;
        page.counters(
            "sluice_client_errors",
            "Requests answered with an error by protocol: a RESP error reply, or an HTTP status 4xx other than 429.",
            self.by_protocol(|view| view.client_errors),
        )?;
        page.counters(
            "sluice_auth_failures",
            "Wrong passwords by protocol, including those not compared after too many wrong ones.",
            self.by_protocol(|view| view.auth_failures),
        )?;
        page.counters(
            "sluice_protocol_errors",
            "Connections that broke the protocol or exceeded a limit on clients, by protocol.",
            self.by_protocol(|view| view.errors),
        )
    }

    fn by_protocol(&self, count: fn(&ProtocolView) -> u64) -> impl Iterator<Item = ([Label<'_>; 1], u64)> {
        self.protocols
            .iter()
            .map(move |(protocol, view)| ([("protocol", protocol.description().id)], count(view)))
    }

    fn config(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge("sluice_rules", "Rules in effect.", None, self.rules)?;
        page.counters(
            "sluice_config_reloads",
            "Configuration reloads by outcome; after a failure the previous configuration stays in effect.",
            [("success", self.reloads_ok), ("failure", self.reloads_failed)]
                .map(|(outcome, count)| ([("outcome", outcome)], count)),
        )?;
        page.gauge(
            "sluice_config_last_reload_successful",
            "1 if the last configuration reload succeeded, 0 if it failed.",
            None,
            u32::from(self.last_reload_ok),
        )?;
        page.gauge(
            "sluice_config_last_reload_success_timestamp",
            "Unix time of the last successful configuration load.",
            Some(&Unit::Seconds),
            self.last_reload_success_s,
        )
    }

    fn process(&self, page: &mut Page<'_>) -> fmt::Result {
        let Process { resident_bytes, open_fds, max_fds, cpu_s } = self.process;
        let build = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("os", std::env::consts::OS),
            ("arch", std::env::consts::ARCH),
        ];
        page.gauges(
            "sluice_build_info",
            "Always 1, with labels for version, operating system and architecture.",
            [(build, 1u32)],
        )?;
        page.counter("sluice_panics", "Panics: bugs, each of which ended a task.", self.panics)?;
        let ClockSteps { forward, back, .. } = self.clock_steps;
        page.counters(
            "sluice_clock_steps",
            "Steps of the system clock of more than 100 ms.",
            [([("direction", "forward")], forward), ([("direction", "back")], back)],
        )?;
        page.gauge(
            "process_start_time",
            "Start time of the process since the Unix epoch.",
            Some(&Unit::Seconds),
            self.started_s,
        )?;
        if let Some(seconds) = cpu_s {
            page.counter_in(
                "process_cpu",
                "Total user and system CPU time spent.",
                Some(&Unit::Seconds),
                seconds,
            )?;
        }
        if let Some(bytes) = resident_bytes {
            page.gauge("process_resident_memory", "Resident memory size.", Some(&Unit::Bytes), bytes)?;
        }
        if let Some(open) = open_fds {
            page.gauge("process_open_fds", "Number of open file descriptors.", None, open)?;
        }
        if let Some(most) = max_fds {
            page.gauge("process_max_fds", "Maximum number of open file descriptors.", None, most)?;
        }
        Ok(())
    }
}

/// The memory store.
fn keys(stats: &StoreStats, no_lease_room: u64, page: &mut Page<'_>) -> fmt::Result {
    let StoreStats { keys, max_keys, evicted, .. } = *stats;
    page.gauge(
        "sluice_keys",
        "Keys held in memory, including fully recovered ones that are not dropped yet.",
        None,
        keys,
    )?;
    page.gauge("sluice_keys_max", "The max_keys setting: the most keys held in memory.", None, max_keys)?;
    page.counter(
        "sluice_keys_evicted",
        "Keys evicted before they were fully recovered, so that each starts again with its whole limit; raise max_keys if this grows.",
        evicted,
    )?;
    page.gauge(
        "sluice_log_entries",
        "Log entries for which keys hold memory, 16 bytes each.",
        None,
        stats.log_entries,
    )?;
    page.gauge(
        "sluice_log_entries_max",
        "The max_log_entries setting: the most log entries held in memory.",
        None,
        stats.max_log_entries,
    )?;
    page.counter(
        "sluice_log_entries_evicted",
        "Log entries removed with the keys that were evicted to make room for others; raise max_log_entries if this grows.",
        stats.log_entries_evicted,
    )?;
    page.gauge("sluice_receipts", "Open receipts.", None, stats.receipts)?;
    page.gauge(
        "sluice_receipts_max",
        "The max_receipts setting: the most receipts that can be open.",
        None,
        stats.max_receipts,
    )?;
    page.counter(
        "sluice_receipts_evicted",
        "Receipts dropped before they expired, to make room for others; raise max_receipts if this grows.",
        stats.receipts_evicted,
    )?;
    page.gauge(
        "sluice_limits",
        "Different limits in memory, of rules and inline, CL.THROTTLE included.",
        None,
        stats.limits,
    )?;
    page.gauge("sluice_limits_max", "The most different limits in memory.", None, stats.max_limits)?;
    page.counter(
        "sluice_limits_evicted",
        "Inline limits evicted with their keys before these were fully recovered, to make room for others.",
        stats.limits_evicted,
    )?;
    let no_room = [
        (FullPool::Keys.as_str(), stats.no_room),
        (FullPool::LogEntries.as_str(), stats.no_log_room),
        (FullPool::Leases.as_str(), no_lease_room),
        ("receipts", stats.no_receipt_room),
        ("limits", stats.no_limit_room),
    ];
    page.counters(
        "sluice_denied_no_room",
        "Calls denied or rejected because a pool is full; raise its maximum if this grows.",
        no_room.map(|(pool, count)| ([("pool", pool)], count)),
    )
}

/// The shared store.
fn shared_store(store: &StoreView, page: &mut Page<'_>) -> fmt::Result {
    page.gauge(
        "sluice_store_up",
        "1 if every node of the shared store is reachable, 0 otherwise.",
        None,
        u32::from(store.is_up),
    )?;
    page.gauge(
        "sluice_store_writable",
        "1 if every node of the shared store is reachable and accepts writes, 0 otherwise.",
        None,
        u32::from(store.is_writable),
    )?;
    page.counter(
        "sluice_store_evicted_keys",
        "Keys that the shared store evicted for lack of memory, of all its users; an evicted limit starts again.",
        store.evicted_keys,
    )?;
    page.counters(
        "sluice_store_answers",
        "Calls answered by source: the store, the denial cache (remembered), or a fallback (local, allowed, denied).",
        store.answers.iter().map(|(source, count)| ([("source", *source)], *count)),
    )?;
    page.counters(
        "sluice_store_failures",
        "Calls that the shared store did not answer, by kind; after timeout and disconnected a call may have been charged.",
        store.failures.iter().map(|(kind, count)| ([("kind", *kind)], *count)),
    )?;
    let mut latency = page.family(
        "sluice_store_request_duration",
        "Time from sending a call to the shared store to receiving its reply, including the network.",
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    let LatencyView { sum_s, count, buckets } = &store.latency;
    latency.encode_histogram::<NoLabelSet>(*sum_s, *count, buckets, None)
}

/// The name and value of a label.
type Label<'a> = (&'static str, &'a str);

#[allow(
    clippy::cast_precision_loss,
    reason = "the format has only floats, and today's Unix time in microseconds is exact in one"
)]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
