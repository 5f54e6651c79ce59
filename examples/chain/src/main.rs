//! Three services in a row, each with its own database, and a shop that orders from the first one.
//!
//! ```text
//! $ cargo run -p chain -- shipping &
//! shipping is listening on http://127.0.0.1:8083
//! $ cargo run -p chain -- payments &
//! payments is listening on http://127.0.0.1:8082
//! $ cargo run -p chain -- orders &
//! orders is listening on http://127.0.0.1:8081
//! $ cargo run -p chain -- shop --orders 2
//! order-1 is confirmed
//! order-2 is confirmed
//! ```
//! To confirm an order, the first service has it charged by the second one, which has it shipped by
//! the third one. Kill any of the four processes at any time (`kill -9`), start it again, and start
//! the shop again: each order is charged, shipped and confirmed once.
//! ```text
//! $ for service in shipping payments orders; do
//! >     sqlite3 $service.db 'SELECT order_id, count(*) FROM done GROUP BY 1'
//! > done
//! order-1|1
//! order-2|1
//! …
//! ```
//! * The shop keeps each order with its key in `shop.db`, so that it survives the shop ([`shop`]).
//! * A service calls the next one in a step, with the derived key of the step. A later attempt
//!   looks that key up at the next service first ([`next`]).
//! * The effect of a service and the response that it records are one commit ([`services`]).

use std::{error::Error, net::SocketAddr, path::PathBuf};

use clap::{Parser, Subcommand};
use reqwest::Url;

mod next;
mod services;
mod shop;

/// A chain of services, and a shop
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Confirms orders, once they are charged
    Orders {
        #[arg(long, default_value = "127.0.0.1:8081")]
        listen: SocketAddr,
        /// The payments service
        #[arg(long, default_value = "http://127.0.0.1:8082")]
        next: Url,
        #[arg(long, default_value = "orders.db")]
        file: PathBuf,
    },
    /// Charges orders, once they are shipped
    Payments {
        #[arg(long, default_value = "127.0.0.1:8082")]
        listen: SocketAddr,
        /// The shipping service
        #[arg(long, default_value = "http://127.0.0.1:8083")]
        next: Url,
        #[arg(long, default_value = "payments.db")]
        file: PathBuf,
    },
    /// Ships orders
    Shipping {
        #[arg(long, default_value = "127.0.0.1:8083")]
        listen: SocketAddr,
        #[arg(long, default_value = "shipping.db")]
        file: PathBuf,
    },
    /// Orders, and ends when every order is confirmed
    Shop(shop::Options),
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().role {
        Role::Orders { listen, next, file } => {
            services::serve("orders", listen, Some(&next), &file).await
        }
        Role::Payments { listen, next, file } => {
            services::serve("payments", listen, Some(&next), &file).await
        }
        Role::Shipping { listen, file } => services::serve("shipping", listen, None, &file).await,
        Role::Shop(options) => shop::run(&options).await,
    }
}
