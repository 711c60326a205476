//! The table of who has which slots, and who keeps it fresh.
//!
//! A node that dies loses its slots to a replica. While a node is away the table is fetched again and again,
//! with a wait that grows, until it leads elsewhere or the node is back.

use super::{Map, Member, Shared, Table};
use crate::link::address::Place;
use crate::link::breaker::Backoff;
use crate::link::connection::{Trouble, denial, in_time};
use crate::link::slot::SLOTS;
use crate::link::table::{Range, read};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The table is fetched this often even if all is well: nodes come and go.
const REFRESH_EVERY: Duration = Duration::from_secs(30);
/// The wait between two fetches of the table, at least: a storm of MOVED is one change.
const REFRESH_MIN: Duration = Duration::from_millis(20);
/// The wait between two fetches while a node is away, at most: a replica may take over at any moment.
const REFRESH_TROUBLED_MAX: Duration = Duration::from_millis(500);

/// Keeps the table fresh for as long as the cluster is wanted.
pub(super) async fn for_ever(shared: Arc<Shared>) {
    let mut backoff = Backoff::new();
    let mut told_away = false;
    loop {
        match shared.refresh().await {
            Ok(()) if told_away => {
                told_away = false;
                tracing::info!("the cluster is back");
            }
            Ok(()) => {}
            Err(trouble) => {
                if !told_away {
                    told_away = true;
                    tracing::warn!(why = %trouble, "the cluster is away");
                }
                // An old table is better than none: its nodes say themselves whether they are there.
                shared.map.send_if_modified(|map| {
                    let replace = !matches!(map, Map::Known(_));
                    if replace {
                        *map = Map::Failed(trouble);
                    }
                    replace
                });
            }
        }
        sleep(REFRESH_MIN).await;
        if shared.is_troubled() {
            sleep(backoff.wait().min(REFRESH_TROUBLED_MAX)).await;
        } else {
            backoff.reset();
            // Whether it was woken or the time is over: fetch.
            let _ = timeout(REFRESH_EVERY, shared.stale.notified()).await;
        }
    }
}

impl Shared {
    /// Fetches the table, from whoever answers first. One who will not do (a wrong password, no permission) stops
    /// nobody: others may.
    async fn refresh(&self) -> Result<(), Trouble> {
        let mut places = match &*self.map.borrow() {
            Map::Known(table) => table.places.clone(),
            Map::Unknown | Map::Failed(_) => Vec::new(),
        };
        places.extend(self.seeds.iter().filter(|seed| !places.contains(seed)).cloned().collect::<Vec<_>>());
        fastrand::shuffle(&mut places);
        // Those that are known not to answer come last.
        let is_away =
            |place: &Place| self.nodes().get(place).is_some_and(|member| member.node.trouble().is_some());
        places.sort_by_cached_key(is_away);
        let mut troubles = Vec::new();
        for place in &places {
            match in_time(place, self.fetch(place)).await {
                Ok(ranges) => {
                    self.install(&ranges);
                    return Ok(());
                }
                Err(trouble) => troubles.push(trouble),
            }
        }
        let said = troubles.iter().map(Trouble::to_string).collect::<Vec<_>>().join("; ");
        let said = format!("no node of the cluster tells who has what: {said}");
        let is_unfit = troubles.iter().any(|trouble| matches!(trouble, Trouble::Unfit(_)));
        Err(if is_unfit { Trouble::Unfit(said) } else { Trouble::Unreachable(said) })
    }

    async fn fetch(&self, place: &Place) -> Result<Vec<Range>, Trouble> {
        let connection = self.dialer.dial(place).await?;
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let reply = connection.connection.clone().send_packed_command(&question).await;
        match reply.map_err(|error| Trouble::Unreachable(format!("{place}: {error}")))? {
            Value::ServerError(error) => Err(denial(place, &error)),
            reply => match read(&reply, place) {
                Some(ranges) if !ranges.is_empty() => Ok(ranges),
                _ => Err(Trouble::Unreachable(format!("{place}: it knows no node that has slots"))),
            },
        }
    }

    /// Makes a table of what was fetched, and lets go of nodes that are not in it.
    fn install(&self, ranges: &[Range]) {
        let mut owners = vec![0_u16; usize::from(SLOTS)].into_boxed_slice();
        let mut masters: Vec<Arc<Member>> = Vec::new();
        let mut places: Vec<Place> = Vec::new();
        for range in ranges {
            let Some(member) = range.places.first().and_then(|place| self.member(place)) else { continue };
            let number = masters.iter().position(|known| known.place == member.place).unwrap_or_else(|| {
                masters.push(member);
                masters.len() - 1
            });
            // Below NODES_MAX, so it fits.
            let number = u16::try_from(number + 1).unwrap_or(0);
            owners[usize::from(range.first)..=usize::from(range.last)].fill(number);
            places.extend(
                range.places.iter().filter(|place| !places.contains(place)).cloned().collect::<Vec<_>>(),
            );
        }
        self.nodes().retain(|place, _| masters.iter().any(|master| master.place == *place));
        self.map.send_replace(Map::Known(Arc::new(Table { owners, masters, places })));
    }

    /// Whether somebody in the table is away, so that it may be about to change.
    fn is_troubled(&self) -> bool {
        match &*self.map.borrow() {
            Map::Known(table) => table.masters.iter().any(|member| member.node.trouble().is_some()),
            Map::Unknown | Map::Failed(_) => true,
        }
    }
}
