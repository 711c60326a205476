//! One client: hyper's HTTP/1 over its socket. `patience.rs` is the socket: how long it is waited for, and how it is closed.

mod patience;

pub(super) use patience::Progress;

use self::patience::Patient;
use super::{Context, handler};
use crate::client_limits::ClientLimits;
use crate::net::Stream;
use crate::protocol::Protocol;
use crate::service::Service;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::yield_now;

/// The least that hyper accepts as the size of its buffer.
const BUFFER_MIN: usize = 8 * 1024;

/// hyper adds its timeout to the time it is, which may not overflow. Nobody waits for longer than a year.
const BACKSTOP_MAX: Duration = Duration::from_secs(365 * 86_400);

pub(super) async fn serve(stream: impl Stream, service: Service) {
    let limits = service.limits;
    let progress = Progress::default();
    let stream = Patient::new(stream, progress.clone(), limits);
    let context = Arc::new(Context { service, progress });
    let answer = service_fn(|request| {
        let context = Arc::clone(&context);
        async move { Ok::<_, Infallible>(handler::respond(&context, request).await) }
    });
    let mut connection = pin!(builder(&limits).serve_connection(TokioIo::new(stream), answer));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = context.service.stopped() => {
            if let Some(ended) = what_has_arrived(connection.as_mut()).await {
                ended
            } else {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if ended.is_err_and(|error| is_misbehaviour(&error)) {
        context.service.metrics.protocol_error(Protocol::Http);
    }
}

/// Goes on with a connection until what has arrived on it is read. Its end, if that came first.
async fn what_has_arrived<C: Future>(connection: Pin<&mut C>) -> Option<C::Output> {
    tokio::select! {
        // The system is asked for bytes when all tasks have yielded, and then the connection comes first.
        biased;
        ended = connection => Some(ended),
        () = yield_now() => None,
    }
}

fn builder(limits: &ClientLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_header_size(limits.request_head_max).max_buf_size(limits.request_head_max.max(BUFFER_MIN));
    // How long is waited is up to `Patient`, which tells an idle client from one that sends slowly. hyper's own timeout
    // is one for both. It is set so that hyper looks at the socket when a client falls idle, and never comes first. (It
    // does nothing without a timer.)
    let backstop =
        limits.idle_timeout.map(|idle| idle.saturating_add(limits.request_timeout).min(BACKSTOP_MAX));
    builder.timer(TokioTimer::new()).header_read_timeout(backstop);
    builder
}

/// Whether the client sent what is not HTTP, too much, or too slowly. One that just leaves has done nothing wrong.
fn is_misbehaviour(error: &hyper::Error) -> bool {
    error.is_parse() || error.is_timeout() || is_too_slow(error)
}

/// Whether the client was given up because it took too long.
pub(super) fn is_too_slow(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::testing::{leases, service, with_exports};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn acquire(key: &str) -> String {
        let body = format!(r#"{{"rule":"exports","key":"{key}"}}"#);
        let head = "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_its_client_could_not_be_sent_is_given_back() {
        let short = ClientLimits { unread_timeout: Duration::from_millis(100), ..ClientLimits::default() };
        let (_stop, service) = service(short, None);
        with_exports(&service);
        // The answer does not fit into what the system would hold for the client. One client leaves, ...
        let (server, mut client) = tokio::io::duplex(64);
        let speak = async {
            client.write_all(acquire("acme").as_bytes()).await.unwrap();
            client.read_u8().await.unwrap();
            assert_eq!(leases(&service), (1, 0, 1, 0), "it is not given back before");
            drop(client);
        };
        tokio::join!(speak, serve(server, service.clone()));
        assert_eq!(leases(&service), (1, 1, 0, 0));
        // ... and one reads nothing, and stays.
        let (server, mut client) = tokio::io::duplex(64);
        let speak = async {
            client.write_all(acquire("acme").as_bytes()).await.unwrap();
            client
        };
        let both = async { tokio::join!(speak, serve(server, service.clone())) };
        let _client = timeout(PATIENCE, both).await.unwrap();
        assert_eq!(leases(&service), (2, 2, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_answer_was_sent_is_its_clients_though_the_next_could_not_be() {
        let short = ClientLimits { unread_timeout: Duration::from_millis(100), ..ClientLimits::default() };
        let (_stop, service) = service(short, None);
        with_exports(&service);
        let (server, mut client) = tokio::io::duplex(1024);
        let speak = async {
            let pages = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
            client.write_all((acquire("acme") + &pages + &acquire("other")).as_bytes()).await.unwrap();
            client.read_u8().await.unwrap();
            client
        };
        let both = async { tokio::join!(speak, serve(server, service.clone())) };
        let _client = timeout(PATIENCE, both).await.unwrap();
        assert_eq!(leases(&service), (1, 0, 1, 0));
    }
}
