//! One client connection: hyper's HTTP/1 over a socket. `timeouts.rs` is that socket, with its
//! timeouts and its close; `heads.rs` rejects what hyper would accept.

mod heads;
mod timeouts;

pub(super) use timeouts::Progress;

use self::timeouts::TimedStream;
use super::{Context, handler};
use crate::connection_limits::ConnectionLimits;
use crate::net::{Client, ClosedFor, Stream, closed_unestablished};
use crate::protocol::Protocol;
use crate::service::Service;
use axum::body::HttpBody as _;
use axum::http::header::{CONNECTION, HeaderValue};
use hyper::Request;
use hyper::body::Incoming;
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

/// The smallest buffer that hyper accepts.
const BUFFER_MIN: usize = 8 * 1024;

/// hyper adds its timeout to the current time, which must not overflow.
const BACKSTOP_MAX: Duration = Duration::from_secs(365 * 86_400);

pub(super) async fn serve(stream: impl Stream, client: impl Into<Client>, service: Service) {
    let limits = service.limits;
    let client = client.into();
    let peer = client.address.ip();
    let progress = Progress::new(client, limits.handshake_timeout);
    let stream = TimedStream::new(stream, progress.clone(), limits);
    let context = Arc::new(Context { service, progress });
    // hyper calls this as soon as it has parsed a head, before it reads on.
    let answer = service_fn(|request: Request<Incoming>| {
        let context = Arc::clone(&context);
        let body_len = request.body().size_hint().exact();
        context.progress.body_follows(body_len.unwrap_or(heads::CHUNKED));
        async move {
            let mut response = handler::respond(&context, request).await;
            if body_len.is_none() {
                // Only hyper knows where this body ends, so the next head could not be checked.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(builder(&limits).serve_connection(TokioIo::new(stream), answer));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = context.service.stopped() => {
            if let Some(ended) = read_what_has_arrived(connection.as_mut()).await {
                ended
            } else {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if context.progress.is_handshake_over() {
        closed_unestablished(&context.service, Protocol::Http, peer, ClosedFor::HandshakeTimeout);
    }
    if ended.is_err_and(|error| is_client_error(&error)) {
        context.service.metrics.protocol_error(Protocol::Http);
    }
}

/// Drives a connection until the input that has arrived is read. Returns its result if it ends
/// first.
async fn read_what_has_arrived<C: Future>(connection: Pin<&mut C>) -> Option<C::Output> {
    tokio::select! {
        // The runtime polls the system when all tasks have yielded. Then the connection comes
        // first.
        biased;
        ended = connection => Some(ended),
        () = yield_now() => None,
    }
}

fn builder(limits: &ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_header_size(limits.request_head_max).max_buf_size(limits.request_head_max.max(BUFFER_MIN));
    // `TimedStream` enforces the timeouts, as it can tell an idle client from one that sends
    // slowly; hyper has one timeout for both. It is set so that hyper polls the socket of an idle
    // client, and long enough that it never comes first. (Without a timer it has no effect.)
    let backstop =
        limits.idle_timeout.map(|idle| idle.saturating_add(limits.request_timeout).min(BACKSTOP_MAX));
    builder.timer(TokioTimer::new()).header_read_timeout(backstop);
    builder
}

/// Returns `true` if the client sent invalid HTTP, too much, or too slowly. Closing the connection
/// is no error.
fn is_client_error(error: &hyper::Error) -> bool {
    error.is_parse() || error.is_timeout() || is_timeout(error)
}

/// Returns `true` if the connection timed out.
pub(super) fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::testing::{leases, service, with_exports};
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
    /// Longer than anything here takes.
    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    fn acquire(key: &str) -> String {
        let body = format!(r#"{{"rule":"exports","key":"{key}"}}"#);
        let head = "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test(start_paused = true)]
    async fn an_undelivered_lease_is_released() {
        let short =
            ConnectionLimits { unread_timeout: Duration::from_millis(100), ..ConnectionLimits::default() };
        let (_stop, service) = service(short, None);
        with_exports(&service);
        // The response does not fit into the pipe. One client disconnects, ...
        let (server, mut client) = tokio::io::duplex(64);
        let speak = async {
            client.write_all(acquire("acme").as_bytes()).await.unwrap();
            client.read_u8().await.unwrap();
            assert_eq!(leases(&service), (1, 0, 1, 0), "not released yet");
            drop(client);
        };
        tokio::join!(speak, serve(server, PEER, service.clone()));
        assert_eq!(leases(&service), (1, 1, 0, 0));
        // ... and one stays, and reads nothing.
        let (server, mut client) = tokio::io::duplex(64);
        let speak = async {
            client.write_all(acquire("acme").as_bytes()).await.unwrap();
            client
        };
        let both = async { tokio::join!(speak, serve(server, PEER, service.clone())) };
        let _client = timeout(TEST_TIMEOUT, both).await.unwrap();
        assert_eq!(leases(&service), (2, 2, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivered_lease_survives_a_later_send_failure() {
        let short =
            ConnectionLimits { unread_timeout: Duration::from_millis(100), ..ConnectionLimits::default() };
        let (_stop, service) = service(short, None);
        with_exports(&service);
        let (server, mut client) = tokio::io::duplex(1024);
        let speak = async {
            let pages = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
            client.write_all((acquire("acme") + &pages + &acquire("other")).as_bytes()).await.unwrap();
            client.read_u8().await.unwrap();
            client
        };
        let both = async { tokio::join!(speak, serve(server, PEER, service.clone())) };
        let _client = timeout(TEST_TIMEOUT, both).await.unwrap();
        assert_eq!(leases(&service), (1, 0, 1, 0));
    }
}
