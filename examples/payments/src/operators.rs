//! Who may use the console.

use actix_web::{Error, HttpRequest};
use idempotent_console::Access;

/// Whoever uses the computer on which this server runs is an operator. A real server asks the
/// session of its employees.
pub(crate) async fn who(request: HttpRequest) -> Result<Access, Error> {
    Ok(match request.peer_addr() {
        Some(peer) if peer.ip().to_canonical().is_loopback() => Access::Act("operator".to_owned()),
        _ => Access::None,
    })
}
