#![deny(warnings)]
#![forbid(unsafe_code)]

use actix_web::{App, web};
use idempotent_actix::idempotent;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

trait Bank: 'static {
    fn charge(&self, amount: usize) -> usize;
}

struct Cash;

impl Bank for Cash {
    fn charge(&self, amount: usize) -> usize {
        amount
    }
}

#[derive(Serialize, Deserialize)]
struct Order;

#[idempotent(scope = "user", method = "POST")]
async fn pay<T, B: Bank, const LIMIT: usize>(
    user: web::ReqData<String>,
    body: web::Json<T>,
    bank: web::Data<B>,
) -> Result<web::Json<T>, actix_web::Error>
where
    T: Serialize + DeserializeOwned + 'static,
{
    drop(user);
    bank.charge(LIMIT);
    Ok(body)
}

fn main() {
    let _ = || App::new().route("/", web::post().to(pay::<Order, Cash, 9>));
}
