//! The settings of the middleware, and the clients that have it.

use std::{sync::Arc, time::Duration};

use http::HeaderName;
use idempotent_http::Key;
use reqwest::{Url, redirect::Policy};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

use crate::{
    error::{Error, ErrorKind},
    middleware::IdempotencyMiddleware,
    pending::PendingStore,
    redirects::redirect_policy,
    settings::ClientSettings,
    specification::Specification,
};

/// The settings of a client that sends each marked request with an idempotency key, and sends it
/// again until its outcome is known.
///
/// Clones share the store of pending operations.
///
/// ```no_run
/// use idempotent_client::{ClientIdempotency, IdempotentRequest};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ClientIdempotency::new().client(reqwest::Client::builder())?;
/// let order = serde_json::json!({ "amount": 100 });
/// let request = client.post("https://api.example/orders").idempotent().json(&order);
/// let response = request.send().await?;
/// # let _ = response;
/// # Ok(())
/// # }
/// ```
///
/// A request is guarded if it was built with
/// [`idempotent`](crate::IdempotentRequest::idempotent), or if it has the key's header. Any other
/// request passes unchanged.
#[derive(Clone)]
pub struct ClientIdempotency {
    pub(crate) settings: Arc<ClientSettings>,
}

impl ClientIdempotency {
    /// Creates a middleware with the default settings, and without a store of pending operations.
    #[must_use]
    pub fn new() -> Self {
        Self { settings: Arc::new(ClientSettings::default()) }
    }

    fn with(mut self, change: impl FnOnce(&mut ClientSettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    /// Builds a client that sends guarded requests.
    ///
    /// The client follows a redirect of a guarded request only if that takes key, body and
    /// credentials to no other server: see [`redirect_policy`]. For other requests it has reqwest's
    /// default policy, whatever `http` says.
    ///
    /// # Errors
    /// Fails if the client cannot be built.
    pub fn client(&self, http: reqwest::ClientBuilder) -> reqwest::Result<ClientWithMiddleware> {
        let http = http.redirect(redirect_policy(Policy::default())).build()?;
        Ok(ClientBuilder::new(http).with(self.middleware()).build())
    }

    /// Returns the middleware, for a client with further middleware or with a redirect policy of
    /// its own.
    ///
    /// A middleware cannot prevent a redirect. So build the `reqwest::Client` with
    /// [`redirect_policy`], or with `Policy::none()`. With any other policy, a redirect can take
    /// key, body and credentials to another host, and such a response is not taken for the outcome.
    ///
    /// ```
    /// use idempotent_client::{ClientIdempotency, redirect_policy};
    /// use reqwest::redirect::Policy;
    ///
    /// # fn main() -> reqwest::Result<()> {
    /// let http = reqwest::Client::builder().redirect(redirect_policy(Policy::none())).build()?;
    /// let idempotency = ClientIdempotency::new();
    /// let client = reqwest_middleware::ClientBuilder::new(http)
    ///     .with(idempotency.middleware())
    ///     .build();
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn middleware(&self) -> IdempotencyMiddleware {
        IdempotencyMiddleware { settings: self.settings.clone() }
    }

    /// Allows redirects (307 and 308) of guarded requests to the origin of this URL, such as
    /// another region of the service. The key, the body and the headers are sent there too, except
    /// those that reqwest removes between hosts: `Authorization`, `Proxy-Authorization` and
    /// `Cookie`.
    #[must_use]
    pub fn allow_redirects_to(self, url: Url) -> Self {
        self.with(|settings| settings.allowed_redirects.push(url))
    }

    /// Sets where operations are kept until their outcome is known. Without it, they do not survive
    /// this process.
    #[must_use]
    pub fn pending(self, store: impl PendingStore) -> Self {
        self.with(|settings| settings.pending = Some(Arc::new(store)))
    }

    /// Sets the total time for an operation, with all attempts and pauses, and with the store of
    /// pending operations. 60 seconds by default. A call site can override it.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|settings| settings.retries.deadline = deadline)
    }

    /// Sets the time limit of one attempt, up to the end of the response's body. 30 seconds by
    /// default.
    #[must_use]
    pub fn attempt_timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.retries.attempt_timeout = timeout)
    }

    /// Sets the bounds of the pauses between attempts: the first pause is at most `first`, each
    /// later one at most twice as long, up to `longest`. 200 ms and 10 seconds by default. A server
    /// can ask for a longer pause with `Retry-After`.
    #[must_use]
    pub fn pauses(self, first: Duration, longest: Duration) -> Self {
        self.with(|settings| {
            settings.retries.first_pause = first;
            settings.retries.longest_pause = longest;
        })
    }

    /// Sets how long the server remembers a key, if there is no
    /// [specification](Self::specification). 24 hours by default. A key is not sent when less than
    /// the time limit of the attempt is left of that.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|settings| settings.ttl = ttl)
    }

    /// Sets the specification that the server publishes, which says how long it remembers the keys
    /// of each operation. The shortest of these times holds for an operation that the specification
    /// does not name. All requests of the client are taken for requests to that server.
    #[must_use]
    pub fn specification(self, specification: Specification) -> Self {
        self.with(|settings| settings.specification = Some(specification))
    }

    /// Sets the name of the key's header. `Idempotency-Key` by default.
    #[must_use]
    pub fn header(self, name: HeaderName) -> Self {
        self.with(|settings| settings.header = name)
    }

    /// Sets how many bytes of a response are read before it is returned, so that a response that
    /// breaks off is requested again. 8 MiB by default. The rest of a longer response is a stream,
    /// and if that breaks off, the caller gets the error.
    #[must_use]
    pub fn max_response(self, bytes: usize) -> Self {
        self.with(|settings| settings.max_response = bytes)
    }

    /// Forgets the operation with this key, whatever its state: after its outcome was found out in
    /// another way, or to use its label again. Each response has its key as an extension
    /// (`response.extensions().get::<Key>()`), and each [`Error`] as [`Error::key`].
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn forget(&self, key: &Key) -> Result<(), Error> {
        match &self.settings.pending {
            None => Ok(()),
            Some(store) => store.forget(key).await.map_err(|source| {
                Error::before(ErrorKind::Store, Some(key.clone())).caused_by(source)
            }),
        }
    }
}

impl Default for ClientIdempotency {
    fn default() -> Self {
        Self::new()
    }
}
