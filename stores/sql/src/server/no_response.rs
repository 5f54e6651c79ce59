//! The error of a call without a response.

/// Why a call got no response. Its outcome is unknown.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum NoResponse {
    /// The time limit of the call was exceeded.
    #[error("the server did not respond in time")]
    TimedOut,
    /// The server is known not to respond.
    #[error("the server does not respond")]
    Down,
}

impl NoResponse {
    /// Why a call got no response, if it got none.
    pub fn of(error: &sqlx::Error) -> Option<&Self> {
        let sqlx::Error::Io(error) = error else { return None };
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

impl From<NoResponse> for sqlx::Error {
    fn from(no_response: NoResponse) -> Self {
        Self::Io(std::io::Error::other(no_response))
    }
}
