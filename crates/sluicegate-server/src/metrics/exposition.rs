//! The counts of one moment, written in the text format of `OpenMetrics`.
//!
//! Each family has a line of help for a person on call; `docs/operating.md` says what to do about each. Only types that
//! the older text format of Prometheus has as well are used (a counter, a gauge, a histogram), so that readers of either
//! understand it.

use super::latency::LatencyView;
use super::page::Page;
use super::process::Process;
use super::{Counts, Metrics, since_epoch_us};
use crate::engine::{Engine, INLINE, LeasesView, Rule, StoreView, TallyView};
use crate::protocol::ByProtocol;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use sluicegate::StoreStats;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All counts of one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    decisions: Vec<(String, TallyView)>,
    rules: usize,
    leases: Vec<(String, LeasesView)>,
    leases_max: Option<usize>,
    stats: Option<StoreStats>,
    store: Option<StoreView>,
    protocols: ByProtocol<ProtocolView>,
    reloads_ok: u64,
    reloads_failed: u64,
    last_reload_ok: bool,
    last_reload_success_s: f64,
    started_s: f64,
    process: Process,
}

#[derive(Debug)]
struct ProtocolView {
    latency: LatencyView,
    connections: u64,
    accepted: u64,
    refused: u64,
    errors: u64,
    mistakes: u64,
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
            stats: engine.stats(),
            store: engine.store(),
            protocols: ByProtocol::new(|protocol| ProtocolView::take(&metrics.clients[protocol])),
            reloads_ok: metrics.config.succeeded.load(Ordering::Relaxed),
            reloads_failed: metrics.config.failed.load(Ordering::Relaxed),
            last_reload_ok: metrics.config.last_succeeded.load(Ordering::Relaxed),
            last_reload_success_s: seconds(metrics.config.last_success_us.load(Ordering::Relaxed)),
            started_s: seconds(since_epoch_us(metrics.started)),
            process,
        }
    }

    pub(super) fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut written = String::new();
        // Writing to a string cannot fail, and nothing below makes an error of its own.
        let _ = text::encode(&mut written, &registry);
        written
    }
}

impl ProtocolView {
    fn take(counts: &Counts) -> ProtocolView {
        let closed = counts.closed.load(Ordering::Relaxed);
        let accepted = counts.accepted.load(Ordering::Relaxed);
        ProtocolView {
            latency: counts.latency.view(),
            // The two are read at different moments.
            connections: accepted.saturating_sub(closed),
            accepted,
            refused: counts.refused.load(Ordering::Relaxed),
            errors: counts.errors.load(Ordering::Relaxed),
            mistakes: counts.mistakes.load(Ordering::Relaxed),
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
            keys(stats, &mut page)?;
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
            "Calls decided, by rule and outcome. shadow_denied: a shadow rule let pass what its limits deny. \
             The rule inline: limits that callers brought, CL.THROTTLE included.",
            outcomes,
        )
    }

    fn leases(&self, page: &mut Page<'_>) -> fmt::Result {
        if let Some(most) = self.leases_max {
            page.gauges(
                "sluice_leases",
                "Leases of concurrency limits that are out now, by rule; those that have lapsed and were not seen since included.",
                self.leases
                    .iter()
                    .filter_map(|(rule, view)| Some(([("rule", rule.as_str())], view.here?.held))),
            )?;
            page.gauge(
                "sluice_leases_max",
                "The most leases that may be out at once, in memory: max_leases of the configuration.",
                None,
                most,
            )?;
        }
        page.gauges(
            "sluice_lease_waiting",
            "Callers that wait in line for a lease now, by rule; those at this server if leases are in a shared store.",
            self.leases.iter().map(|(rule, view)| ([("rule", rule.as_str())], view.waiting)),
        )?;
        let events = self.leases.iter().flat_map(|(rule, view)| {
            let LeasesView { acquired, renewed, released, here, .. } = *view;
            let always = [("acquired", acquired), ("renewed", renewed), ("released", released)];
            let lapsed = here.map(|here| ("lapsed", here.lapsed));
            let labelled = |(event, count)| ([("rule", rule.as_str()), ("event", event)], count);
            always.into_iter().chain(lapsed).map(labelled)
        });
        page.counters(
            "sluice_lease_events",
            "What became of leases, by rule. acquired, renewed, released: at this server. lapsed: neither returned nor renewed \
             in time, by clients that crashed, hang or forgot; only the store knows it of leases in a shared one.",
            events,
        )
    }

    fn clients(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut latency = page.family(
            "sluice_answer_duration",
            "Time from having read a question to having the bytes of its answer, by protocol: every question, those answered by an error included; the network is not in it.",
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
            "Clients connected now, by protocol.",
            self.by_protocol(|view| view.connections),
        )?;
        page.counters(
            "sluice_connections_accepted",
            "Clients that connected and were let in, by protocol.",
            self.by_protocol(|view| view.accepted),
        )?;
        page.counters(
            "sluice_connections_refused",
            "Clients turned away because connections_max were connected already, by protocol.",
            self.by_protocol(|view| view.refused),
        )?;
        page.counters(
            "sluice_mistakes",
            "Questions answered by an error, by protocol: an error reply of RESP, a status 4xx of HTTP but 429. Denials are not in it.",
            self.by_protocol(|view| view.mistakes),
        )?;
        page.counters(
            "sluice_protocol_errors",
            "Clients that sent what is not the protocol, or crossed a bound on clients, by protocol.",
            self.by_protocol(|view| view.errors),
        )
    }

    fn by_protocol(&self, count: fn(&ProtocolView) -> u64) -> impl Iterator<Item = ([Label<'_>; 1], u64)> {
        self.protocols
            .iter()
            .map(move |(protocol, view)| ([("protocol", protocol.description().id)], count(view)))
    }

    fn config(&self, page: &mut Page<'_>) -> fmt::Result {
        page.gauge("sluice_rules", "Rules in use.", None, self.rules)?;
        page.counters(
            "sluice_config_reloads",
            "Times the configuration was read anew, by outcome. failed: it was refused, and the rules before go on.",
            [("ok", self.reloads_ok), ("failed", self.reloads_failed)]
                .map(|(outcome, count)| ([("outcome", outcome)], count)),
        )?;
        page.gauge(
            "sluice_config_last_reload_successful",
            "1 if the configuration was taken up when it was last read, 0 if it was refused and an older one is in use.",
            None,
            u32::from(self.last_reload_ok),
        )?;
        page.gauge(
            "sluice_config_last_success_timestamp",
            "When the configuration in use was taken up, in Unix time.",
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
        page.gauges("sluice_build_info", "Always 1; the labels say what is running.", [(build, 1u32)])?;
        page.gauge(
            "process_start_time",
            "When the server started, in Unix time.",
            Some(&Unit::Seconds),
            self.started_s,
        )?;
        if let Some(seconds) = cpu_s {
            page.counter_in(
                "process_cpu",
                "Processor time used, all threads.",
                Some(&Unit::Seconds),
                seconds,
            )?;
        }
        if let Some(bytes) = resident_bytes {
            page.gauge(
                "process_resident_memory",
                "Memory that the process occupies.",
                Some(&Unit::Bytes),
                bytes,
            )?;
        }
        if let Some(open) = open_fds {
            page.gauge("process_open_fds", "Open file descriptors: each connection is one.", None, open)?;
        }
        if let Some(most) = max_fds {
            page.gauge(
                "process_max_fds",
                "The most file descriptors that the system lets us open.",
                None,
                most,
            )?;
        }
        Ok(())
    }
}

/// The store in memory.
fn keys(stats: &StoreStats, page: &mut Page<'_>) -> fmt::Result {
    let StoreStats { keys, max_keys, evicted, no_room, .. } = *stats;
    page.gauge(
        "sluice_keys",
        "Keys held in memory now; those that have recovered and not yet made room included.",
        None,
        keys,
    )?;
    page.gauge(
        "sluice_keys_max",
        "The most keys that memory may hold: max_keys of the configuration.",
        None,
        max_keys,
    )?;
    page.counter(
        "sluice_keys_evicted",
        "Keys forgotten before they had recovered, to make room for others. Each may call again as if new: if this grows, raise max_keys.",
        evicted,
    )?;
    page.counter(
        "sluice_no_room_denials",
        "Calls of new keys denied because memory is full and on_full says to deny. If this grows, raise max_keys.",
        no_room,
    )
}

/// A store that many servers share.
fn shared_store(store: &StoreView, page: &mut Page<'_>) -> fmt::Result {
    page.gauge(
        "sluice_store_up",
        "1 if every node of the shared store is reachable, 0 otherwise.",
        None,
        u32::from(store.is_up),
    )?;
    page.counters(
        "sluice_store_answers",
        "Calls answered, by who did. store: the shared store. remembered: a denial of a moment ago that still holds. local, allowed, denied: the store was away, and the rule says what to do then.",
        store.answers.iter().map(|(source, count)| ([("source", *source)], *count)),
    )?;
    page.counters(
        "sluice_store_failures",
        "Calls that got no answer, by what went wrong. away: the store was not asked. late: no answer within the deadline. lost: the connection broke. refused: the store said no. After late and lost a call may have been charged.",
        store.failures.iter().map(|(kind, count)| ([("kind", *kind)], *count)),
    )?;
    let mut latency = page.family(
        "sluice_store_answer_duration",
        "Time from asking the shared store to having its answer: the network and its own work are in it. Checks that were asked together count one by one.",
        Some(&Unit::Seconds),
        MetricType::Histogram,
    )?;
    let LatencyView { sum_s, count, buckets } = &store.latency;
    latency.encode_histogram::<NoLabelSet>(*sum_s, *count, buckets, None)
}

/// A label's name and its value.
type Label<'a> = (&'static str, &'a str);

#[allow(
    clippy::cast_precision_loss,
    reason = "floats are what the format has; microseconds of today are exact"
)]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
