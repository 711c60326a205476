//! A cluster: a slot table, and a node for each master in it.
//!
//! A call goes to the node that owns its key's hash slot. Where ownership has changed, the node's
//! reply says so and proves that nothing ran, so the call is sent again within its deadline:
//!
//! ```text
//! MOVED         to the named node at once; the slot table is refreshed in the background
//! ASK           to the named node at once, for this call only, after `ASKING`
//! TRYAGAIN      a few milliseconds later: keys of one call are migrating between two nodes. It is
//!               not a failure, and a call without time for it fails with the server's message
//! CLUSTERDOWN   likewise, but a failure, so that calls to a cluster that stays down cost nothing
//! ```
//!
//! `refresh.rs` keeps the slot table current.
//!
//! The client's own cluster support is not used: it retries after I/O errors, when a call may
//! already have been charged, and it can exceed the deadline.

mod refresh;

use super::address::Endpoint;
use super::call_error::CallError;
use super::connection::{Dialer, NodeError, Role};
use super::node::{Node, NodeHealth, NodeSettings, Route, TimeBudget};
use super::pipeline::Outgoing;
use super::slot::slot;
use super::slot_table::redirected;
use crate::script::ScriptCall;
use futures_util::future::join_all;
use redis::Value;
use sluicegate::backend::StoreFailure;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The most redirections and retries of one call.
const REDIRECTIONS_MAX: u32 = 16;
/// The wait after TRYAGAIN and CLUSTERDOWN.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(4);
/// The least time for an attempt after that wait. With less it would only time out, and might have
/// run.
const TRY_TIME_MIN: Duration = Duration::from_millis(5);
/// The most nodes of a cluster. The Redis documentation gives 1000 as the limit.
const NODES_MAX: usize = 1000;

/// A cluster and the connections to its nodes.
pub(crate) struct Cluster {
    shared: Arc<ClusterShared>,
    refresher: JoinHandle<()>,
}

struct ClusterShared {
    seeds: Vec<Endpoint>,
    dialer: Dialer,
    deadline: Duration,
    evicted_keys: Arc<AtomicU64>,
    map: watch::Sender<SlotMap>,
    /// All connected nodes: those of the slot table, and those that a redirection named.
    nodes: Mutex<HashMap<Endpoint, Arc<Member>>>,
    /// Wakes the refresher.
    stale: Arc<Notify>,
}

/// A node and its endpoint.
struct Member {
    endpoint: Endpoint,
    node: Node,
}

/// The slot table, once it is known.
#[derive(Clone)]
enum SlotMap {
    Unknown,
    Known(Arc<SlotTable>),
    /// No node could be reached yet.
    Failed(NodeError),
}

struct SlotTable {
    /// For each slot one plus the index of its master, or 0 if no node owns it.
    owners: Box<[u16]>,
    masters: Vec<Arc<Member>>,
    /// All nodes, including replicas: where to fetch the next slot table.
    endpoints: Vec<Endpoint>,
}

/// A call without an answer yet.
struct PendingCall<'a> {
    index: usize,
    call: &'a ScriptCall,
    /// The node that a redirection named, and whether `ASKING` is needed. `None` leaves it to the
    /// slot table.
    to: Option<(Arc<Member>, bool)>,
}

impl Cluster {
    /// Starts discovering the nodes in the background.
    pub(crate) fn start(
        seeds: Vec<Endpoint>,
        dialer: Dialer,
        deadline: Duration,
        evicted_keys: Arc<AtomicU64>,
    ) -> Cluster {
        let shared = Arc::new(ClusterShared {
            seeds,
            dialer,
            deadline,
            evicted_keys,
            map: watch::Sender::new(SlotMap::Unknown),
            nodes: Mutex::default(),
            stale: Arc::new(Notify::new()),
        });
        let refresher = tokio::spawn(refresh::run(Arc::clone(&shared)));
        Cluster { shared, refresher }
    }

    /// Sends calls, in order per node, and returns an answer for each.
    pub(crate) async fn send(
        &self,
        calls: &[ScriptCall],
        until: Instant,
    ) -> Vec<Result<Value, StoreFailure>> {
        let pending =
            calls.iter().enumerate().map(|(index, call)| PendingCall { index, call, to: None }).collect();
        let mut answers =
            vec![Err(CallError::Unavailable("no cluster node for this call".to_owned())); calls.len()];
        self.shared.send(pending, &mut answers, until).await;
        let deadline = self.shared.deadline;
        answers.into_iter().map(|answer| answer.map_err(|none| none.into_failure(deadline))).collect()
    }

    /// Waits until the slot table is known and its nodes are up, or cannot come up by themselves.
    pub(crate) async fn ready(&self) -> Result<(), NodeError> {
        let mut maps = self.shared.map.subscribe();
        let done = |map: &SlotMap| matches!(map, SlotMap::Known(_) | SlotMap::Failed(NodeError::Unfit(_)));
        let masters = match maps.wait_for(done).await.as_deref() {
            Ok(SlotMap::Known(table)) => table.masters.clone(),
            Ok(SlotMap::Failed(error)) => return Err(error.clone()),
            Ok(SlotMap::Unknown) | Err(_) => {
                return Err(NodeError::Unreachable("the connection attempt was abandoned".to_owned()));
            }
        };
        join_all(masters.iter().map(|member| member.node.ready())).await.into_iter().collect()
    }

    /// Why calls fail, if they do.
    pub(crate) fn error(&self) -> Option<NodeError> {
        match &*self.shared.map.borrow() {
            SlotMap::Unknown => None,
            SlotMap::Failed(error) => Some(error.clone()),
            SlotMap::Known(table) => table.masters.iter().find_map(|member| member.node.error()),
        }
    }

    pub(crate) fn health(&self) -> Vec<NodeHealth> {
        let mut nodes: Vec<NodeHealth> =
            self.shared.nodes().values().map(|member| member.node.health()).collect();
        nodes.sort_by(|one, other| one.address.cmp(&other.address));
        nodes
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

/// What to do after a redirection or a TRYAGAIN.
struct NextAttempt {
    to: Option<(Arc<Member>, bool)>,
    /// Whether to wait first.
    later: bool,
}

impl ClusterShared {
    /// Sends calls until each has an answer, or the last reason for having none.
    async fn send(
        &self,
        mut pending: Vec<PendingCall<'_>>,
        answers: &mut [Result<Value, CallError>],
        until: Instant,
    ) {
        let (mut later, mut waited) = (false, false);
        for round in 0..REDIRECTIONS_MAX {
            // Without time for another attempt the last reply stands: nothing ran.
            let wait = if later { TRY_AGAIN_AFTER + TRY_TIME_MIN } else { Duration::ZERO };
            let now = Instant::now();
            if pending.is_empty() || (round > 0 && now + wait >= until) {
                break;
            }
            waited |= later;
            if later {
                sleep_until(now + TRY_AGAIN_AFTER).await;
            }
            let budget = if waited { TimeBudget::Reduced } else { TimeBudget::Full };
            let groups = self.grouped(pending, answers, until).await;
            let sent = join_all(groups.iter().map(|(member, group)| async move {
                let outgoing: Vec<Outgoing<'_>> = group
                    .iter()
                    .map(|one| Outgoing { call: one.call, asking: matches!(one.to, Some((_, true))) })
                    .collect();
                member.node.send(&outgoing, until, budget).await
            }));
            let sent = sent.await;
            pending = Vec::new();
            later = false;
            for ((member, group), replies) in groups.into_iter().zip(sent) {
                for (one, answer) in group.into_iter().zip(replies) {
                    // The wait took too long, and the call was not sent again: its last reply
                    // stands.
                    if round > 0
                        && matches!(answer, Err(CallError::Unavailable(_)))
                        && Instant::now() >= until
                    {
                        continue;
                    }
                    if let Err(none) = &answer
                        && let Some(next) = self.next(&member, none)
                    {
                        later |= next.later;
                        pending.push(PendingCall { to: next.to, ..one });
                    }
                    answers[one.index] = answer;
                }
            }
            // Calls to one node keep their order.
            pending.sort_by_key(|one| one.index);
        }
    }

    /// Groups calls by node. A call without a node gets its error.
    async fn grouped<'a>(
        &self,
        pending: Vec<PendingCall<'a>>,
        answers: &mut [Result<Value, CallError>],
        until: Instant,
    ) -> Vec<(Arc<Member>, Vec<PendingCall<'a>>)> {
        let mut groups: Vec<(Arc<Member>, Vec<PendingCall<'a>>)> = Vec::new();
        let mut indices: HashMap<usize, usize> = HashMap::new();
        for one in pending {
            let member = match &one.to {
                Some((member, _)) => Arc::clone(member),
                None => match self.owner(&one.call.key, until).await {
                    Ok(member) => member,
                    Err(failure) => {
                        answers[one.index] = Err(failure);
                        continue;
                    }
                },
            };
            let group = *indices.entry(Arc::as_ptr(&member).addr()).or_insert_with(|| {
                groups.push((member, Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(one);
        }
        groups
    }

    /// Returns where to send a call after this error, if it may be sent again.
    fn next(&self, member: &Member, none: &CallError) -> Option<NextAttempt> {
        match none {
            CallError::Moved(message) | CallError::Ask(message) => {
                let asking = matches!(none, CallError::Ask(_));
                if !asking {
                    self.stale.notify_one();
                }
                let endpoint = redirected(message, &member.endpoint)?;
                Some(NextAttempt { to: Some((self.member(&endpoint)?, asking)), later: false })
            }
            CallError::TryAgain(_) | CallError::ClusterDown(_) => Some(NextAttempt { to: None, later: true }),
            CallError::ReadOnly(_) => {
                self.stale.notify_one();
                None
            }
            _ => None,
        }
    }

    /// Returns the node that owns a key's slot.
    async fn owner(&self, key: &[u8], until: Instant) -> Result<Arc<Member>, CallError> {
        let slot = slot(key);
        if let Some(owner) = self.owner_now(slot) {
            return owner;
        }
        let mut maps = self.map.subscribe();
        match timeout_at(until, maps.wait_for(|map| !matches!(map, SlotMap::Unknown))).await {
            Ok(_) => self
                .owner_now(slot)
                .unwrap_or_else(|| Err(CallError::Unavailable("no cluster node for this call".to_owned()))),
            Err(_) => Err(CallError::Unavailable("no cluster node answered in time".to_owned())),
        }
    }

    fn owner_now(&self, slot: u16) -> Option<Result<Arc<Member>, CallError>> {
        match &*self.map.borrow() {
            SlotMap::Unknown => None,
            SlotMap::Failed(error) => Some(Err(CallError::Unavailable(error.to_string()))),
            SlotMap::Known(table) => Some(table.owner(slot).ok_or_else(|| {
                self.stale.notify_one();
                CallError::Unavailable(format!("no cluster node owns hash slot {slot}"))
            })),
        }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Endpoint, Arc<Member>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node at an endpoint, connecting to a new one. `None` if there are too many
    /// nodes.
    fn member(&self, endpoint: &Endpoint) -> Option<Arc<Member>> {
        let mut nodes = self.nodes();
        if let Some(member) = nodes.get(endpoint) {
            return Some(Arc::clone(member));
        }
        if nodes.len() >= NODES_MAX {
            return None;
        }
        let node = Node::start(NodeSettings {
            route: Route::Fixed(endpoint.clone()),
            role: Role::ClusterNode,
            dialer: self.dialer.clone(),
            deadline: self.deadline,
            on_down: Arc::clone(&self.stale),
            evicted_keys: Arc::clone(&self.evicted_keys),
        });
        let member = Arc::new(Member { endpoint: endpoint.clone(), node });
        nodes.insert(endpoint.clone(), Arc::clone(&member));
        Some(member)
    }
}

impl SlotTable {
    fn owner(&self, slot: u16) -> Option<Arc<Member>> {
        let number = usize::from(*self.owners.get(usize::from(slot))?).checked_sub(1)?;
        self.masters.get(number).cloned()
    }
}
