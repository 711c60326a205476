//! The example's own router, on a free port, asked over real sockets.

#[path = "../../examples/axum_app.rs"]
#[allow(dead_code, unreachable_pub, reason = "its main is not called here")]
mod axum_app;

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum_app::router().unwrap().into_make_service_with_connect_info::<SocketAddr>();
    // The runtime of the test ends it.
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// One connection of its own, one request, and all that comes back.
async fn ask(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(at: SocketAddr, path: &str, more: &str) -> String {
    ask(at, &format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{more}\r\n")).await
}

async fn login(at: SocketAddr, password: &str) -> String {
    let head = format!("content-length: {}\r\nconnection: close\r\n", password.len());
    ask(at, &format!("POST /login HTTP/1.1\r\nhost: test\r\n{head}\r\n{password}")).await
}

fn status(answer: &str) -> &str {
    &answer["HTTP/1.1 ".len()..][..3]
}

#[tokio::test]
async fn connections_of_one_address_share_its_limit() {
    let at = serve().await;
    // Two connections that stay open take turns.
    let mut streams = [TcpStream::connect(at).await.unwrap(), TcpStream::connect(at).await.unwrap()];
    let mut seen = Vec::new();
    for turn in 0..8 {
        let stream = &mut streams[turn % 2];
        stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        let mut bytes = vec![0; 4096];
        let length = stream.read(&mut bytes).await.unwrap();
        let answer = String::from_utf8_lossy(&bytes[..length]).into_owned();
        seen.push((status(&answer).to_owned(), answer));
    }
    let admitted = seen.iter().filter(|(status, _)| status == "200").count();
    // One comes back each second, should the machine be that slow.
    assert!((5..8).contains(&admitted), "{seen:?}");
    let (_, denied) = seen.iter().find(|(status, _)| status == "429").unwrap();
    for line in [
        "content-type: application/problem+json",
        "retry-after: 1",
        "ratelimit-policy: \"home\";q=1;w=1;sluice-burst=5",
        "ratelimit: \"home\";r=0;t=5",
        r#""violated-policies":["home"]"#,
    ] {
        assert!(denied.contains(line), "{line} is not in {denied}");
    }
}

#[tokio::test]
async fn an_api_key_is_charged_by_cost_and_is_required() {
    let at = serve().await;
    let (acme, other) = ("x-api-key: acme\r\n", "x-api-key: other\r\n");
    let first = get(at, "/report?big", acme).await;
    assert!(status(&first) == "200" && first.contains("ratelimit: \"reports\";r=50;t=60"), "{first}");
    assert_eq!(status(&get(at, "/report", acme).await), "200");
    assert_eq!(status(&get(at, "/report?big", acme).await), "429");
    assert_eq!(status(&get(at, "/report", acme).await), "200", "a small one still fits");
    assert_eq!(status(&get(at, "/report?big", other).await), "200");
    assert_eq!(status(&get(at, "/report", "").await), "400");
}

#[tokio::test]
async fn failed_logins_count_and_others_do_not() {
    let at = serve().await;
    for _ in 0..10 {
        assert_eq!(status(&login(at, "open-sesame").await), "200");
    }
    for _ in 0..3 {
        assert_eq!(status(&login(at, "guess").await), "401");
    }
    let denied = login(at, "open-sesame").await;
    assert!(status(&denied) == "429" && denied.contains("retry-after: 300"), "{denied}");
}
