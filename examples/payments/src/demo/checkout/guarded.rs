//! The checkout with the attribute.

use actix_web::{
    HttpResponse, post,
    web::{Data, Json},
};
use idempotent_actix::idempotent;

use super::{Bank, Order};
use crate::{error::ApiError, user::User};

#[idempotent(scope = "user", ttl = "10m", lease = "4s", abandoned = "hold")]
#[post("/checkout")]
pub(super) async fn checkout(
    user: User,
    order: Json<Order>,
    bank: Data<Bank>,
) -> Result<HttpResponse, ApiError> {
    let charge = bank.charge(&user, order.amount).await?;
    Ok(HttpResponse::Created().json(charge))
}
