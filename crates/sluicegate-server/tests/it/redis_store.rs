//! A Redis of a test's own, and servers whose keys live in it.

use crate::http_client::Serving;
use crate::resp_client::Place;
use crate::running::PATIENCE;
use redis_testkit::{Options, Server};
use sluicegate::Time;
use sluicegate::clock::{ManualClock, SystemClock};
use sluicegate_conformance::{Fields, Subject};
use sluicegate_redis::{ConnectError, RedisStore};
use sluicegate_server::engine::{Keys, StoreTime};
use sluicegate_server::server::Config;
use std::time::{Duration, Instant};

/// Longer than any answer takes, also on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A subject whose keys are in Redis, which reckons in 53 bits: it is not asked about later centuries.
pub(crate) struct InRedis<S>(pub(crate) S);

impl<S: Subject> Subject for InRedis<S> {
    fn check(&mut self, at: Time, key: &[u8], cost: u32) -> Fields {
        self.0.check(at, key, cost)
    }

    fn latest() -> Time {
        Time::from_micros((1 << 53) - 2 * 3_153_600_000_000_000 - 10).unwrap()
    }

    fn tick(&self) -> u64 {
        self.0.tick()
    }
}

/// A real server.
pub(crate) struct Redis(pub(crate) Server);

impl Redis {
    pub(crate) fn start() -> Redis {
        Redis(Server::start(&Options::redis()))
    }

    /// How many callers of all servers stand in line for the lease of a key of the rule exports.
    pub(crate) fn in_line(&self, key: &str) -> usize {
        let mut connection = redis::Client::open(self.0.url()).unwrap().get_connection().unwrap();
        redis::cmd("ZCARD").arg(format!("sluice:1/r/exports:0w|{{{key}}}")).query(&mut connection).unwrap()
    }

    /// Keys here, at times that a test sets.
    async fn keys(&self, time: StoreTime, deadline: Duration) -> Keys {
        let builder = RedisStore::builder(&self.0.url()).deadline(deadline);
        let began = Instant::now();
        loop {
            match Keys::connect(builder.clone(), time).await {
                Ok(keys) => return keys,
                // A busy machine can take longer than a builder waits.
                Err(ConnectError::Unreachable(_)) if began.elapsed() < PATIENCE => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A server for RESP, at times that the test sets.
    pub(crate) fn place_at(&self, config: Config, clock: &ManualClock) -> Place {
        Place::with_keys(config, clock.clone(), async || self.keys(StoreTime::Engine, DEADLINE).await)
    }

    /// A server for RESP, at the time that it is, which does not wait for long.
    pub(crate) fn place(&self, config: Config, deadline: Duration) -> Place {
        Place::with_keys(config, SystemClock, async || self.keys(StoreTime::Store, deadline).await)
    }

    /// A server for HTTP, at times that the test sets.
    pub(crate) fn serving(&self, config: Config) -> Serving {
        Serving::with_keys(config, async || self.keys(StoreTime::Engine, DEADLINE).await)
    }
}
