//! Log lines about the store.

use super::*;
use redis_testkit::Options;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects this crate's log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("sluicegate_redis")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_and_its_end_are_each_logged_once() {
    // Global: a thread-local subscriber can miss lines while other tests run.
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).expect("no other subscriber");
    let server = Server::start(&Options::redis().password("secret"));
    let link = link(&server.url()).await;
    let earlier = lines.0.lock().unwrap().len();
    for _ in 0..2 {
        server.kill();
        down(&link).await;
        assert_free_of_cost(&link);
        server.restart();
        // With a generous deadline: a timeout would be another failure, and another line.
        eventually("the store is back", async || link.add("back").await.is_ok()).await;
    }
    let store = format!("store=127.0.0.1:{} ", server.port());
    let mut lines = lines.0.lock().unwrap().split_off(earlier);
    lines.retain(|(_, line)| line.contains(&store));
    let levels: Vec<Level> = lines.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [Level::WARN, Level::INFO, Level::WARN, Level::INFO], "{lines:?}");
    assert!(!lines.iter().any(|(_, line)| line.contains("secret")), "{lines:?}");
}
