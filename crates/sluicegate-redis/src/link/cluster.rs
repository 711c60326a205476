//! A cluster: a table of who has which slots, and a node for each of them.
//!
//! In plain words: a call goes to the node that has its key's slot. Where that has changed, the node says
//! where to go instead, and proves by it that nothing ran; so the call goes there, within its deadline:
//!
//! MOVED         there at once, and the table is fetched anew in the background
//! ASK           there at once, this time only, with `ASKING` before it
//! TRYAGAIN      a few milliseconds later: keys of one call are on their way between two nodes. It says nothing
//!               against a node, and a call that has no time left for it is refused in the server's words
//! CLUSTERDOWN   likewise; it counts as a failure, so that a cluster that stays down costs nothing
//!
//! `refresh.rs` keeps the table as it should be.
//!
//! Why not the client's own cluster support: it sends again after errors of input and output, when a call
//! may have been charged already, and it can wait for longer than it was told.

mod refresh;

use super::address::Place;
use super::connection::{Dialer, Part, Trouble};
use super::no_answer::NoAnswer;
use super::node::{Haste, Node, NodeHealth, NodeSettings, Route};
use super::pipeline::Outgoing;
use super::slot::slot;
use super::table::redirected;
use crate::script::ScriptCall;
use futures_util::future::join_all;
use redis::Value;
use sluicegate::backend::StoreFailure;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Replies that send a call elsewhere or tell it to wait, before it is given up.
const REDIRECTIONS_MAX: u32 = 16;
/// The wait after TRYAGAIN and CLUSTERDOWN.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(4);
/// What a call needs after that wait. With less it would only be late, and nobody would know whether it ran.
const TRY_TIME_MIN: Duration = Duration::from_millis(5);
/// Nodes of a cluster. Its makers say that 1000 is the most.
const NODES_MAX: usize = 1000;

/// A cluster, and the connections to its nodes.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    refresher: JoinHandle<()>,
}

struct Shared {
    seeds: Vec<Place>,
    dialer: Dialer,
    deadline: Duration,
    map: watch::Sender<Map>,
    /// All nodes with a connection: those of the table, and those that a redirection led to.
    nodes: Mutex<HashMap<Place, Arc<Member>>>,
    /// Wakes the refresher.
    stale: Arc<Notify>,
}

/// A node and where it is.
struct Member {
    place: Place,
    node: Node,
}

/// What is known about who has what.
#[derive(Clone)]
enum Map {
    Unknown,
    Known(Arc<Table>),
    /// Nobody could be asked so far.
    Failed(Trouble),
}

struct Table {
    /// For each slot one more than the number of its master, or 0 if nobody has it.
    owners: Box<[u16]>,
    masters: Vec<Arc<Member>>,
    /// Everybody, replicas as well: whom to ask for the next table.
    places: Vec<Place>,
}

/// A call that has not been answered.
struct Pending<'a> {
    index: usize,
    call: &'a ScriptCall,
    /// Where a redirection leads, and whether to say `ASKING` there. Else the table decides.
    to: Option<(Arc<Member>, bool)>,
}

impl Cluster {
    /// Starts to look for the nodes, in the background.
    pub(crate) fn start(seeds: Vec<Place>, dialer: Dialer, deadline: Duration) -> Cluster {
        let shared = Arc::new(Shared {
            seeds,
            dialer,
            deadline,
            map: watch::Sender::new(Map::Unknown),
            nodes: Mutex::default(),
            stale: Arc::new(Notify::new()),
        });
        let refresher = tokio::spawn(refresh::for_ever(Arc::clone(&shared)));
        Cluster { shared, refresher }
    }

    /// Sends calls, on each node in this order. An answer for each.
    pub(crate) async fn send(
        &self,
        calls: &[ScriptCall],
        until: Instant,
    ) -> Vec<Result<Value, StoreFailure>> {
        let pending =
            calls.iter().enumerate().map(|(index, call)| Pending { index, call, to: None }).collect();
        let mut answers = vec![Err(NoAnswer::Away("the call found no node".to_owned())); calls.len()];
        self.shared.send(pending, &mut answers, until).await;
        let deadline = self.shared.deadline;
        answers.into_iter().map(|answer| answer.map_err(|none| none.failure(deadline))).collect()
    }

    /// Waits until the table is known and its nodes are up, or it is known that they will not be.
    pub(crate) async fn settle(&self) -> Result<(), Trouble> {
        let mut maps = self.shared.map.subscribe();
        let done = |map: &Map| matches!(map, Map::Known(_) | Map::Failed(Trouble::Unfit(_)));
        let masters = match maps.wait_for(done).await.as_deref() {
            Ok(Map::Known(table)) => table.masters.clone(),
            Ok(Map::Failed(trouble)) => return Err(trouble.clone()),
            Ok(Map::Unknown) | Err(_) => return Err(Trouble::Unreachable("it was given up".to_owned())),
        };
        join_all(masters.iter().map(|member| member.node.settle())).await.into_iter().collect()
    }

    /// Why nothing can be asked, if that is so.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        match &*self.shared.map.borrow() {
            Map::Unknown => None,
            Map::Failed(trouble) => Some(trouble.clone()),
            Map::Known(table) => table.masters.iter().find_map(|member| member.node.trouble()),
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

/// What to do after a reply that is not the last word.
struct Next {
    to: Option<(Arc<Member>, bool)>,
    /// Whether to wait a little first.
    later: bool,
}

impl Shared {
    /// Sends calls until each has an answer, or the last reason why it has none.
    async fn send(
        &self,
        mut pending: Vec<Pending<'_>>,
        answers: &mut [Result<Value, NoAnswer>],
        until: Instant,
    ) {
        let (mut later, mut waited) = (false, false);
        for round in 0..REDIRECTIONS_MAX {
            // Without time for another try the last words are the answer: nothing ran.
            let wait = if later { TRY_AGAIN_AFTER + TRY_TIME_MIN } else { Duration::ZERO };
            let now = Instant::now();
            if pending.is_empty() || (round > 0 && now + wait >= until) {
                break;
            }
            waited |= later;
            if later {
                sleep_until(now + TRY_AGAIN_AFTER).await;
            }
            let haste = if waited { Haste::LateStart } else { Haste::None };
            let groups = self.grouped(pending, answers, until).await;
            let sent = join_all(groups.iter().map(|(member, group)| async move {
                let outgoing: Vec<Outgoing<'_>> = group
                    .iter()
                    .map(|one| Outgoing { call: one.call, asking: matches!(one.to, Some((_, true))) })
                    .collect();
                member.node.send(&outgoing, until, haste).await
            }));
            let sent = sent.await;
            pending = Vec::new();
            later = false;
            for ((member, group), replies) in groups.into_iter().zip(sent) {
                for (one, answer) in group.into_iter().zip(replies) {
                    // It was not sent again, as the wait took longer than it should: the last words stay.
                    if round > 0 && matches!(answer, Err(NoAnswer::Away(_))) && Instant::now() >= until {
                        continue;
                    }
                    if let Err(none) = &answer
                        && let Some(next) = self.next(&member, none)
                    {
                        later |= next.later;
                        pending.push(Pending { to: next.to, ..one });
                    }
                    answers[one.index] = answer;
                }
            }
            // The order of calls to one node stays theirs.
            pending.sort_by_key(|one| one.index);
        }
    }

    /// Puts calls together that go to the same node. A call that can go nowhere has its failure.
    async fn grouped<'a>(
        &self,
        pending: Vec<Pending<'a>>,
        answers: &mut [Result<Value, NoAnswer>],
        until: Instant,
    ) -> Vec<(Arc<Member>, Vec<Pending<'a>>)> {
        let mut groups: Vec<(Arc<Member>, Vec<Pending<'a>>)> = Vec::new();
        let mut places: HashMap<usize, usize> = HashMap::new();
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
            let group = *places.entry(Arc::as_ptr(&member).addr()).or_insert_with(|| {
                groups.push((member, Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(one);
        }
        groups
    }

    /// Whether a node sends a call on, and where.
    fn next(&self, member: &Member, none: &NoAnswer) -> Option<Next> {
        match none {
            NoAnswer::Moved(said) | NoAnswer::Ask(said) => {
                let asking = matches!(none, NoAnswer::Ask(_));
                if !asking {
                    self.stale.notify_one();
                }
                let place = redirected(said, &member.place)?;
                Some(Next { to: Some((self.member(&place)?, asking)), later: false })
            }
            NoAnswer::TryAgain(_) | NoAnswer::ClusterDown(_) => Some(Next { to: None, later: true }),
            NoAnswer::ReadOnly(_) => {
                self.stale.notify_one();
                None
            }
            _ => None,
        }
    }

    /// The node that has a key's slot.
    async fn owner(&self, key: &[u8], until: Instant) -> Result<Arc<Member>, NoAnswer> {
        let slot = slot(key);
        if let Some(owner) = self.owner_now(slot) {
            return owner;
        }
        let mut maps = self.map.subscribe();
        match timeout_at(until, maps.wait_for(|map| !matches!(map, Map::Unknown))).await {
            Ok(_) => self
                .owner_now(slot)
                .unwrap_or_else(|| Err(NoAnswer::Away("the call found no node".to_owned()))),
            Err(_) => Err(NoAnswer::Away("no node of the cluster answered in time".to_owned())),
        }
    }

    fn owner_now(&self, slot: u16) -> Option<Result<Arc<Member>, NoAnswer>> {
        match &*self.map.borrow() {
            Map::Unknown => None,
            Map::Failed(trouble) => Some(Err(NoAnswer::Away(trouble.to_string()))),
            Map::Known(table) => Some(table.owner(slot).ok_or_else(|| {
                self.stale.notify_one();
                NoAnswer::Away(format!("no node of the cluster has slot {slot}"))
            })),
        }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Place, Arc<Member>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node at a place, connected to if it is new; none if there are too many.
    fn member(&self, place: &Place) -> Option<Arc<Member>> {
        let mut nodes = self.nodes();
        if let Some(member) = nodes.get(place) {
            return Some(Arc::clone(member));
        }
        if nodes.len() >= NODES_MAX {
            return None;
        }
        let node = Node::start(NodeSettings {
            route: Route::Fixed(place.clone()),
            part: Part::OfCluster,
            dialer: self.dialer.clone(),
            deadline: self.deadline,
            when_away: Arc::clone(&self.stale),
        });
        let member = Arc::new(Member { place: place.clone(), node });
        nodes.insert(place.clone(), Arc::clone(&member));
        Some(member)
    }
}

impl Table {
    fn owner(&self, slot: u16) -> Option<Arc<Member>> {
        let number = usize::from(*self.owners.get(usize::from(slot))?).checked_sub(1)?;
        self.masters.get(number).cloned()
    }
}
