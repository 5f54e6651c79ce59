//! The checkout without the attribute.

use actix_web::{
    HttpResponse, post,
    web::{Data, Json},
};

use super::{Bank, Order};
use crate::{error::ApiError, user::User};

#[post("/checkout")]
pub(super) async fn checkout(
    user: User,
    order: Json<Order>,
    bank: Data<Bank>,
) -> Result<HttpResponse, ApiError> {
    let charge = bank.charge(&user, order.amount).await?;
    Ok(HttpResponse::Created().json(charge))
}
