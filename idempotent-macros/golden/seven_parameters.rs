#[idempotent(scope = "a")]
#[post("/")]
async fn seven(a: A, b: B, c: C, d: D, e: E, f: F, g: G) -> HttpResponse {
    HttpResponse::Ok().finish()
}
