//! A page that shows what goes wrong without `#[idempotent]`, and what happens with it.
//!
//! This process serves the page, and plays the shopper, the network and the bank. The checkouts are
//! in a worker, another process of the same program, which the page can kill. Both processes open
//! the store of the keys, so the page shows a key's record also while the worker is dead, and its
//! visitors are the operators of a console on that store.
//!
//! ```text
//! browser ── /demo/control ──► this process ── HTTP/1.1 ──► worker: /bare, /guarded ──┐
//!    ▲                            │ │    ▲                    │                       │
//!    └──── server-sent events ────┘ │    └─── charge ─────────┼───────────────────────┘
//!                                   └──► keys.db ◄────────────┘
//! ```

mod bank;
mod checkout;
mod control;
mod events;
mod key;
mod origin;
mod page;
mod run;
mod shopper;
mod visit;
mod visits;
mod worker;

use std::{error::Error, fmt, net::SocketAddr, sync::Arc};

use actix_web::{
    rt::spawn,
    web::{Data, ServiceConfig},
};
use idempotent_console::Console;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::worker::run as run_worker;
use self::{key::Keys, visits::Visits};
use crate::operators::who;

/// Where the operators of the page's keys look.
const CONSOLE: &str = "/demo/console";

/// The two halves of the page.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    /// Without the attribute.
    Bare,
    /// With it.
    Guarded,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bare => "bare",
            Self::Guarded => "guarded",
        })
    }
}

/// The page and its visits.
#[derive(Clone)]
pub(crate) struct Demo {
    visits: Arc<Visits>,
    console: Console,
}

impl Demo {
    pub(crate) async fn open() -> Result<Self, Box<dyn Error>> {
        let keys = Keys::open().await?;
        let console = Console::new(&keys.idempotency, who).show_bodies();
        let visits = Arc::new(Visits::new(keys));
        spawn(visits.clone().sweep());
        Ok(Self { visits, console })
    }

    /// The routes: `/` and `/demo/…`.
    pub(crate) fn routes(&self, config: &mut ServiceConfig) {
        config
            .app_data(Data::from(self.visits.clone()))
            .configure(page::routes)
            .configure(control::routes)
            .service(self.console.scope(CONSOLE));
    }

    /// Ends the streams of events, so that a shutdown does not wait for them, and the workers.
    pub(crate) async fn close(self) {
        self.visits.close().await;
    }
}

/// Whether a path belongs to the page.
pub(crate) fn is_path(path: &str) -> bool {
    path == "/" || path.starts_with("/demo/")
}

/// Removes the checkout of the page, which this server does not serve, from a specification.
pub(crate) fn hide_checkout(specification: &mut Value) {
    let is_checkout =
        |operation: &Value| operation.pointer("/routes/0/path") == Some(&checkout::PATH.into());
    if let Some(operations) = specification.get_mut("operations").and_then(Value::as_array_mut) {
        operations.retain(|operation| !is_checkout(operation));
    }
}

/// Where to find the page of a server that listens at this address.
pub(crate) fn url(listens: SocketAddr) -> String {
    let mut address = listens;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => [127, 0, 0, 1].into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{address}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_the_page_can_be_opened() {
        for (listens, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/"),
            ("0.0.0.0:80", "http://127.0.0.1:80/"),
            ("[::]:80", "http://[::1]:80/"),
        ] {
            assert_eq!(url(listens.parse().unwrap()), expected);
        }
    }
}
