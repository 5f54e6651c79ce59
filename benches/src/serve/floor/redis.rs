//! `SET key value NX GET PX`, then `SET`, or with another `SET` for a step between them; or one
//! `GET`.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, post, web};
use bytes::Bytes;
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, RedisError, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};

use super::{
    super::{STEP_RESULT, Size, created, response},
    key,
};

const DAY: u64 = 86_400_000;

pub(super) fn open(url: &str) -> Client {
    let address = url.into_connection_info().unwrap();
    Client::open(address.set_tcp_settings(TcpSettings::default().set_nodelay(true))).unwrap()
}

/// Each worker has a separate connection, on the worker's runtime.
pub(super) async fn connect(client: Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(Duration::from_secs(2)))
        .set_pipeline_buffer_size(1024);
    client.get_multiplexed_async_connection_with_config(&config).await
}

async fn insert(key: &[u8], connection: &mut MultiplexedConnection) {
    let mut set = redis::cmd("SET");
    set.arg(key).arg(b"in flight").arg("NX").arg("GET").arg("PX").arg(DAY);
    let recorded: Option<Vec<u8>> = set.query_async(connection).await.unwrap();
    assert_eq!(recorded, None, "the key is new");
}

async fn set(key: &[u8], value: &[u8], connection: &mut MultiplexedConnection) {
    let mut set = redis::cmd("SET");
    set.arg(key).arg(value).arg("PX").arg(DAY);
    let () = set.query_async(connection).await.unwrap();
}

#[post("/work")]
pub(super) async fn claim(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    connection: web::Data<MultiplexedConnection>,
) -> HttpResponse {
    let mut connection = (**connection).clone();
    insert(key(&request), &mut connection).await;
    let response = response(&body, &size);
    set(key(&request), &response, &mut connection).await;
    created(response)
}

/// Claims, does one step and records it, and completes.
#[post("/work")]
pub(super) async fn step(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    connection: web::Data<MultiplexedConnection>,
) -> HttpResponse {
    let mut connection = (**connection).clone();
    insert(key(&request), &mut connection).await;
    set(key(&request), STEP_RESULT, &mut connection).await;
    let response = response(&body, &size);
    set(key(&request), &response, &mut connection).await;
    created(response)
}

/// Reads the response; if there is none, does the work and records it.
#[post("/work")]
pub(super) async fn read(
    request: HttpRequest,
    body: Bytes,
    size: web::Data<Size>,
    connection: web::Data<MultiplexedConnection>,
) -> HttpResponse {
    let mut connection = (**connection).clone();
    let recorded: Option<Vec<u8>> =
        redis::cmd("GET").arg(key(&request)).query_async(&mut connection).await.unwrap();
    if let Some(recorded) = recorded {
        return created(recorded.into());
    }
    let response = response(&body, &size);
    set(key(&request), &response, &mut connection).await;
    created(response)
}
