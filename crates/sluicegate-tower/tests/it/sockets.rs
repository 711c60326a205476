//! A server of axum's on a free port, and clients that write and read bytes.

use axum::Router;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(app: Router) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Server { address, task }
    }

    /// A connection with a request on its way. Dropping it is hanging up.
    pub(crate) async fn send(&self, path: &str) -> TcpStream {
        self.send_with(path, "").await
    }

    /// The same with header lines of its own.
    pub(crate) async fn send_with(&self, path: &str, more: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{more}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The status of a response, and all of it.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        read(self.send(path).await).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads a response to its end.
pub(crate) async fn read(mut stream: TcpStream) -> (u16, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer["HTTP/1.1 ".len()..][..3].parse().unwrap(), answer)
}

/// Waits until something is so; far longer than it takes, it fails.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
}
