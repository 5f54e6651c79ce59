use actix_web::{HttpResponse, post};
use idempotent_actix::{Operation, OperationError, idempotent, scope};

struct Charge {
    id: String,
}

async fn charge(_key: String) -> Result<Charge, OperationError> {
    Ok(Charge { id: "ch_1".to_owned() })
}

#[idempotent(scope = "scope::bearer_token")]
#[post("/v1/payments")]
async fn pay(operation: Operation) -> Result<HttpResponse, OperationError> {
    let charge = operation.step("charge").run(|key| charge(key.to_string())).await?;
    Ok(HttpResponse::Created().body(charge.id))
}

fn main() {}
