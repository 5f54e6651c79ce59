#[idempotent(scope = "user")]
#[routes]
#[post("/orders")]
#[put("/order")]
async fn order(user: User) -> &'static str {
    "ordered"
}
