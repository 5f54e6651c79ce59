#[idempotent(scope = "user", method = "POST", fingerprint = "json")]
async fn create<T, const LIMIT: usize>(
    user: User,
    body: web::Json<T>,
) -> Result<web::Json<T>, Failure>
where
    T: Serialize + DeserializeOwned + 'static,
{
    Ok(body)
}
