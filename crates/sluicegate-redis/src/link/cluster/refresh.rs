//! Keeps the slot table current.
//!
//! A dead node loses its slots to a replica. While a node is down, the table is fetched repeatedly,
//! with a growing wait, until the slots have a new owner or the node is back.

use super::{ClusterShared, Member, SlotMap, SlotTable};
use crate::link::address::Endpoint;
use crate::link::breaker::Backoff;
use crate::link::connection::{NodeError, in_time, rejection};
use crate::link::slot::SLOTS;
use crate::link::slot_table::{Range, read};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often the table is fetched while all nodes are up: nodes come and go.
const REFRESH_EVERY: Duration = Duration::from_secs(30);
/// The shortest wait between fetches: a burst of MOVED is one change.
const REFRESH_MIN: Duration = Duration::from_millis(20);
/// The longest wait between fetches while a node is down: a replica may take over at any moment.
const REFRESH_DEGRADED_MAX: Duration = Duration::from_millis(500);

/// Refreshes the slot table until the task is aborted.
pub(super) async fn run(shared: Arc<ClusterShared>) {
    let mut backoff = Backoff::new();
    let mut reported_down = false;
    loop {
        match shared.refresh().await {
            Ok(()) if reported_down => {
                reported_down = false;
                tracing::info!("cluster available again");
            }
            Ok(()) => {}
            Err(error) => {
                if !reported_down {
                    reported_down = true;
                    tracing::warn!(why = %error, "cluster unavailable");
                }
                // An old table is better than none: its nodes know themselves whether they are up.
                shared.map.send_if_modified(|map| {
                    let replace = !matches!(map, SlotMap::Known(_));
                    if replace {
                        *map = SlotMap::Failed(error);
                    }
                    replace
                });
            }
        }
        sleep(REFRESH_MIN).await;
        if shared.is_degraded() {
            sleep(backoff.wait().min(REFRESH_DEGRADED_MAX)).await;
        } else {
            backoff.reset();
            // Fetch the table either way: woken or timed out.
            let _ = timeout(REFRESH_EVERY, shared.stale.notified()).await;
        }
    }
}

impl ClusterShared {
    /// Fetches the table from the first node that answers. An unusable node (wrong password, no
    /// permission) does not stop the search.
    async fn refresh(&self) -> Result<(), NodeError> {
        let mut endpoints = match &*self.map.borrow() {
            SlotMap::Known(table) => table.endpoints.clone(),
            SlotMap::Unknown | SlotMap::Failed(_) => Vec::new(),
        };
        endpoints
            .extend(self.seeds.iter().filter(|seed| !endpoints.contains(seed)).cloned().collect::<Vec<_>>());
        fastrand::shuffle(&mut endpoints);
        // Nodes that are down come last.
        let is_down = |endpoint: &Endpoint| {
            self.nodes().get(endpoint).is_some_and(|member| member.node.error().is_some())
        };
        endpoints.sort_by_cached_key(is_down);
        let mut errors = Vec::new();
        for endpoint in &endpoints {
            match in_time(endpoint, self.fetch(endpoint)).await {
                Ok(ranges) => {
                    self.install(&ranges);
                    return Ok(());
                }
                Err(error) => errors.push(error),
            }
        }
        let message = errors.iter().map(NodeError::to_string).collect::<Vec<_>>().join("; ");
        let message = format!("no cluster node returned the slot table: {message}");
        let is_unfit = errors.iter().any(|error| matches!(error, NodeError::Unfit(_)));
        Err(if is_unfit { NodeError::Unfit(message) } else { NodeError::Unreachable(message) })
    }

    async fn fetch(&self, endpoint: &Endpoint) -> Result<Vec<Range>, NodeError> {
        let connection = self.dialer.dial(endpoint).await?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let reply = connection.connection.clone().send_packed_command(&command).await;
        match reply.map_err(|error| NodeError::Unreachable(format!("{endpoint}: {error}")))? {
            Value::ServerError(error) => Err(rejection(endpoint, &error)),
            reply => match read(&reply, endpoint) {
                Some(ranges) if !ranges.is_empty() => Ok(ranges),
                _ => Err(NodeError::Unreachable(format!("{endpoint}: its slot table is empty"))),
            },
        }
    }

    /// Installs a fetched table, and disconnects from nodes that are not in it.
    fn install(&self, ranges: &[Range]) {
        let mut owners = vec![0_u16; usize::from(SLOTS)].into_boxed_slice();
        let mut masters: Vec<Arc<Member>> = Vec::new();
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for range in ranges {
            let Some(member) = range.endpoints.first().and_then(|endpoint| self.member(endpoint)) else {
                continue;
            };
            let number =
                masters.iter().position(|known| known.endpoint == member.endpoint).unwrap_or_else(|| {
                    masters.push(member);
                    masters.len() - 1
                });
            // It fits: there are fewer than NODES_MAX.
            let number = u16::try_from(number + 1).unwrap_or(0);
            owners[usize::from(range.first)..=usize::from(range.last)].fill(number);
            endpoints.extend(
                range
                    .endpoints
                    .iter()
                    .filter(|endpoint| !endpoints.contains(endpoint))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
        }
        self.nodes().retain(|endpoint, _| masters.iter().any(|master| master.endpoint == *endpoint));
        self.map.send_replace(SlotMap::Known(Arc::new(SlotTable { owners, masters, endpoints })));
    }

    /// Returns `true` if a node of the table is down, so that ownership may be about to change.
    fn is_degraded(&self) -> bool {
        match &*self.map.borrow() {
            SlotMap::Known(table) => table.masters.iter().any(|member| member.node.error().is_some()),
            SlotMap::Unknown | SlotMap::Failed(_) => true,
        }
    }
}
