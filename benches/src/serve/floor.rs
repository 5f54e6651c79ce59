//! The floors: the same round trips as the layer, written by hand, without fingerprint, owner,
//! lease or renewal.
//!
//! `floor` claims and completes, `floor-step` also records a step between the two, `floor-read`
//! reads the recorded response, and `floor-effect` writes an effect in a transaction. Pools have
//! the same size as the layer's pools and do not ping their connections; tables have the same
//! columns and indexes.

mod memory;
#[cfg(feature = "mysql")]
pub(super) mod mysql;
pub(super) mod postgres;
mod redis;
pub(super) mod sqlite;

use actix_web::{
    App, Error, HttpRequest,
    dev::{ServiceFactory, ServiceRequest},
    web,
};
use sqlx::PgPool;

#[derive(Clone)]
pub(super) enum Floor {
    Memory(web::Data<memory::Responses>),
    Sqlite(sqlite::Pools),
    Postgres(PgPool),
    Redis(Box<::redis::Client>),
    #[cfg(feature = "mysql")]
    MySql(sqlx::MySqlPool),
}

impl Floor {
    pub(super) async fn open(url: &str) -> Self {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("memory") => Self::Memory(web::Data::default()),
            Some("sqlite") => Self::Sqlite(sqlite::open(url).await),
            Some("postgres") => Self::Postgres(postgres::open(url)),
            Some("redis") => Self::Redis(Box::new(redis::open(url))),
            #[cfg(feature = "mysql")]
            Some("mysql") => Self::MySql(mysql::open(url)),
            _ => panic!("there is no floor for the store {url}"),
        }
    }

    pub(super) fn routes<T>(self, kind: &str, app: App<T>) -> App<T>
    where
        T: ServiceFactory<ServiceRequest, Config = (), Error = Error, InitError = ()>,
    {
        match (self, kind) {
            (Self::Memory(responses), "floor-read") => {
                app.app_data(responses).service(memory::read)
            }
            (Self::Postgres(pool), "floor") => {
                app.app_data(web::Data::new(pool)).service(postgres::claim)
            }
            (Self::Postgres(pool), "floor-step") => {
                app.app_data(web::Data::new(pool)).service(postgres::step)
            }
            (Self::Postgres(pool), "floor-read") => {
                app.app_data(web::Data::new(pool)).service(postgres::read)
            }
            (Self::Postgres(pool), "floor-effect") => {
                app.app_data(web::Data::new(pool)).service(postgres::effect)
            }
            #[cfg(feature = "mysql")]
            (Self::MySql(pool), "floor") => {
                app.app_data(web::Data::new(pool)).service(mysql::claim)
            }
            #[cfg(feature = "mysql")]
            (Self::MySql(pool), "floor-step") => {
                app.app_data(web::Data::new(pool)).service(mysql::step)
            }
            #[cfg(feature = "mysql")]
            (Self::MySql(pool), "floor-read") => {
                app.app_data(web::Data::new(pool)).service(mysql::read)
            }
            #[cfg(feature = "mysql")]
            (Self::MySql(pool), "floor-effect") => {
                app.app_data(web::Data::new(pool)).service(mysql::effect)
            }
            (Self::Sqlite(pools), "floor") => {
                app.app_data(web::Data::new(pools)).service(sqlite::claim)
            }
            (Self::Sqlite(pools), "floor-step") => {
                app.app_data(web::Data::new(pools)).service(sqlite::step)
            }
            (Self::Sqlite(pools), "floor-read") => {
                app.app_data(web::Data::new(pools)).service(sqlite::read)
            }
            (Self::Sqlite(pools), "floor-effect") => {
                app.app_data(web::Data::new(pools)).service(sqlite::effect)
            }
            (Self::Redis(client), "floor") => {
                app.data_factory(move || redis::connect((*client).clone())).service(redis::claim)
            }
            (Self::Redis(client), "floor-step") => {
                app.data_factory(move || redis::connect((*client).clone())).service(redis::step)
            }
            (Self::Redis(client), "floor-read") => {
                app.data_factory(move || redis::connect((*client).clone())).service(redis::read)
            }
            (_, other) => panic!("the store has no contestant `{other}`"),
        }
    }
}

/// The key as the client sent it: 36 bytes.
fn key(request: &HttpRequest) -> &[u8] {
    request.headers().get("idempotency-key").map_or(&[], |key| key.as_bytes())
}

/// The key without its dashes: the 32 bytes of the column.
pub(super) fn id(request: &HttpRequest) -> Vec<u8> {
    key(request).iter().copied().filter(|byte| *byte != b'-').collect()
}
