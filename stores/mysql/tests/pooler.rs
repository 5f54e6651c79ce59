//! A pooler that executes each command of a client in any session of a server.

use std::sync::Arc;

use sqlx::{ConnectOptions as _, mysql::MySqlConnectOptions};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

/// A running pooler.
pub(crate) struct Pooler {
    pub(crate) url: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sessions that no client uses at the moment.
type Sessions = Arc<Mutex<Vec<TcpStream>>>;

impl Pooler {
    pub(crate) async fn in_front_of(url: &str) -> Self {
        let options: MySqlConnectOptions = url.parse().unwrap();
        let target = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url =
            options.host("127.0.0.1").port(port).ssl_mode(sqlx::mysql::MySqlSslMode::Disabled);
        let sessions = Sessions::default();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(target.clone()).await.unwrap();
                tokio::spawn(serve(client, server, sessions.clone()));
            }
        });
        Self { url: url.to_url_lossy().to_string(), task }
    }
}

/// Copies packets in both directions. Once the server has responded, with one packet of the
/// network, its session is free for the next command of any client.
async fn serve(mut client: TcpStream, server: TcpStream, sessions: Sessions) {
    let mut server = Some(server);
    let (mut from_client, mut from_server) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    // A client is greeted, sends its name and password, and is accepted.
    let mut packets = 0;
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(length @ 1..) = read else { break };
                packets += 1;
                if server.is_none() {
                    let mut free = sessions.lock().await;
                    let chosen = fastrand::usize(..free.len());
                    server = Some(free.remove(chosen));
                }
                if server.as_mut().unwrap().write_all(&from_client[..length]).await.is_err() {
                    break;
                }
            }
            read = read_from(&mut server, &mut from_server) => {
                let Ok(length @ 1..) = read else { break };
                if client.write_all(&from_server[..length]).await.is_err() {
                    break;
                }
                if packets > 1 {
                    sessions.lock().await.extend(server.take());
                }
            }
        }
    }
    sessions.lock().await.extend(server);
}

async fn read_from(server: &mut Option<TcpStream>, buffer: &mut [u8]) -> std::io::Result<usize> {
    match server {
        Some(server) => server.read(buffer).await,
        None => std::future::pending().await,
    }
}
