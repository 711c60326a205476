//! A Redis for one test, and servers whose keys live in it.

use crate::http_client::Serving;
use crate::resp_client::TestServer;
use crate::running::TEST_TIMEOUT;
use redis_testkit::{Options, Server};
use sluicegate::Time;
use sluicegate::clock::{ManualClock, SystemClock};
use sluicegate_conformance::{Fields, Subject};
use sluicegate_redis::{ConnectError, RedisStore};
use sluicegate_server::engine::{Keys, StoreTime};
use sluicegate_server::server::Config;
use std::time::{Duration, Instant};

/// Longer than any reply takes, also on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A subject whose keys are in Redis, which computes in 53 bits: late centuries are left out.
pub(crate) struct InRedis<S>(pub(crate) S);

/// The latest time of such a subject.
pub(crate) const LATEST_IN_REDIS: Time =
    Time::saturating_from_micros((1 << 53) - 2 * 3_153_600_000_000_000 - 10);

impl<S: Subject> Subject for InRedis<S> {
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields {
        self.0.check(at, key, cost)
    }

    fn latest() -> Time {
        LATEST_IN_REDIS
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

    /// The waiters of all servers for a key of the rule exports.
    pub(crate) fn in_line(&self, key: &str) -> usize {
        let mut connection = redis::Client::open(self.0.url()).unwrap().get_connection().unwrap();
        redis::cmd("ZCARD").arg(format!("sluice:1/r/exports:0w|{{{key}}}")).query(&mut connection).unwrap()
    }

    /// Keys in this Redis, at times that a test sets.
    async fn keys(&self, time: StoreTime, deadline: Duration) -> Keys {
        let builder = RedisStore::builder(&self.0.url()).deadline(deadline);
        let began = Instant::now();
        loop {
            match Keys::connect(builder.clone(), time).await {
                Ok(keys) => return keys,
                // A busy machine can take longer than the builder's timeout.
                Err(ConnectError::Unreachable(_)) if began.elapsed() < TEST_TIMEOUT => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A RESP server, at times that the test sets.
    pub(crate) fn server_at(&self, config: Config, clock: &ManualClock) -> TestServer {
        TestServer::with_keys(config, clock.clone(), async || self.keys(StoreTime::Engine, DEADLINE).await)
    }

    /// A RESP server on the real clock, with a short deadline.
    pub(crate) fn server(&self, config: Config, deadline: Duration) -> TestServer {
        TestServer::with_keys(config, SystemClock, async || self.keys(StoreTime::Store, deadline).await)
    }

    /// An HTTP server, at times that the test sets.
    pub(crate) fn serving(&self, config: Config) -> Serving {
        Serving::with_keys(config, async || self.keys(StoreTime::Engine, DEADLINE).await)
    }
}
