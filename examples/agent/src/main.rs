//! A server of the Model Context Protocol (MCP) with one tool, which refunds customers. A call of
//! the tool that is repeated moves the money once.
//!
//! ```text
//! $ cargo run -p agent
//! ```
//!
//! A client finds the tool, which says that it may be called again with the same arguments:
//!
//! ```text
//! $ curl -s 127.0.0.1:8080/mcp --json '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' |
//!       jq -c '.result.tools[0].annotations'
//! {"destructiveHint":true,"idempotentHint":true,"openWorldHint":true,"readOnlyHint":false}
//! ```
//!
//! The id of the call is one of the arguments. The model calls the tool, and the response is lost.
//! The client calls again, with another id of the JSON-RPC request, and gets the recorded result:
//!
//! ```text
//! $ refund() {
//!       curl -si 127.0.0.1:8080/mcp -H 'Authorization: Bearer support' --json '{
//!           "jsonrpc":"2.0","id":'$1',"method":"tools/call","params":{"name":"refund",
//!           "arguments":{"call_id":"'$2'","order":"'$3'","cents":'$4'}}}'
//!   }
//! $ refund 2 call_1 7 1250
//! HTTP/1.1 200 OK
//! {"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"Refunded 12.50 for order 7. Memo: refund
//! f9812618-09b3-8b78-8c8a-6e9883758665.","type":"text"}],"isError":false}}
//! $ refund 3 call_1 7 1250
//! HTTP/1.1 200 OK
//! idempotency-replayed: true
//! {"jsonrpc":"2.0","id":3,"result":{"content":[{"text":"Refunded 12.50 for order 7. Memo: refund
//! f9812618-09b3-8b78-8c8a-6e9883758665.","type":"text"}],"isError":false}}
//! ```
//!
//! Other arguments with the same id are refused in words, which the model reads:
//!
//! ```text
//! $ refund 4 call_1 7 1300
//! {"jsonrpc":"2.0","id":4,"result":{"content":[{"text":"This call moved no money: an earlier call
//! with this call_id had other arguments. To get the result of the earlier call, repeat its
//! arguments. Only if this is a different refund, call the tool with a new
//! call_id.","type":"text"}],"isError":true}}
//! ```
//!
//! The response of the bank for an order whose name begins with `lost` is lost. It is unknown
//! whether the money was moved, so the bank is not called again:
//!
//! ```text
//! $ refund 5 call_2 lost-8 500
//! $ refund 6 call_2 lost-8 500
//! {"jsonrpc":"2.0","id":6,"result":{"content":[{"text":"It is not known whether this refund was
//! made. Do not call this tool for it again, neither with this call_id nor with a new one: the
//! customer might get the money twice. Ask a person to look for the refund in the books of the
//! bank. Reference: refund 03604f17-4ae1-8f85-a9e1-764de7d93957.","type":"text"}],"isError":true}}
//! $ curl -s 127.0.0.1:8080/bank
//! 7 1250 refund f9812618-09b3-8b78-8c8a-6e9883758665
//! lost-8 500 refund 03604f17-4ae1-8f85-a9e1-764de7d93957
//! ```
//!
//! The same happens if the server is killed while the bank works: start it with
//! `BANK_DELAY_MS=5000`, call the tool, `kill -9` the server, start it again, and repeat the call.
//! During the lease of 10 s, the result says that the refund is still in progress.

use std::{env, error::Error, time::Duration};

use actix_web::{App, HttpServer, error::ErrorInternalServerError, get, web::Data};
use agent::{Bank, configure, settings};
use idempotent_actix::{Idempotency, store::SqliteStore};

const FILE: &str = "agent.db";
const BANK: &str = "bank.db";

/// The books of the bank, for people.
#[get("/bank")]
async fn books(bank: Data<Bank>) -> actix_web::Result<String> {
    let refunds = bank.refunds().await.map_err(ErrorInternalServerError)?;
    Ok(refunds.iter().map(|(memo, order, cents)| format!("{order} {cents} {memo}\n")).collect())
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let delay = env::var("BANK_DELAY_MS").unwrap_or_else(|_| "0".into()).parse()?;
    let bank = Data::new(Bank::open(BANK, Duration::from_millis(delay)).await?);
    let store = SqliteStore::connect(&format!("sqlite:{FILE}")).await?;
    store.migrate().await?;
    let idempotency = settings(Idempotency::builder(store)).build();
    idempotency.check().await?;
    let app = idempotency.clone();
    println!("listening on http://127.0.0.1:8080");
    let server = HttpServer::new(move || {
        App::new().app_data(app.clone()).app_data(bank.clone()).configure(configure).service(books)
    });
    let server = server.shutdown_signal(idempotency.drain_on_sigterm(Duration::from_secs(30)));
    Ok(server.bind(("127.0.0.1", 8080))?.run().await?)
}
