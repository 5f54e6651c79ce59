#[idempotent(scope = "session", method = "DELETE", record = "all")]
async fn r#delete(session: Session) {}
