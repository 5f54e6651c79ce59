//! The console, and where it is mounted.

use std::{fmt, sync::Arc};

use actix_web::{
    Error, HttpRequest, HttpResponse,
    dev::{HttpServiceFactory, ServiceRequest},
    middleware::{Next, from_fn},
    web::{self, Data, FormConfig, JsonConfig, QueryConfig},
};
use idempotent_actix::{Idempotency, RequestOutcome};

use crate::{
    access::{Access, Who},
    api,
    counts::RequestCounts,
    failure, gate, pages,
    parts::ConsoleParts,
};

/// The longest form or JSON document that is accepted, in bytes: a decision with the body of a
/// response, or one about 1,000 operations.
const MAX_FORM: usize = 1 << 20;

/// The console of a store: pages for operators, and a JSON API that has the same.
///
/// Create it before `HttpServer::new`, and mount [`scope`](Self::scope) in each worker's `App`. All
/// clones share one state.
///
/// ```
/// use actix_web::{App, Error, HttpRequest, error::ErrorUnauthorized};
/// use idempotent_actix::{Idempotency, store::MemoryStore};
/// use idempotent_console::{Access, Console};
///
/// /// Asks the session of the application.
/// async fn who(request: HttpRequest) -> Result<Access, Error> {
///     match request.headers().get("x-authenticated-user").and_then(|name| name.to_str().ok()) {
///         Some("ada") => Ok(Access::Act("ada".into())),
///         Some(name) => Ok(Access::Read(name.into())),
///         None => Err(ErrorUnauthorized("sign in first")),
///     }
/// }
///
/// let idempotency = Idempotency::new(MemoryStore::new());
/// let console = Console::new(&idempotency, who);
/// let app = App::new().app_data(idempotency.clone()).service(console.scope("/operations"));
/// # let _ = app;
/// ```
///
/// It is not mounted without a function that says who asks:
///
/// ```compile_fail
/// # use idempotent_actix::{Idempotency, store::MemoryStore};
/// # use idempotent_console::Console;
/// # let idempotency = Idempotency::new(MemoryStore::new());
/// let console = Console::new(&idempotency);
/// ```
#[derive(Clone)]
pub struct Console {
    parts: ConsoleParts,
    who: Arc<Who>,
}

impl Console {
    /// Creates a console of the store of this handle.
    ///
    /// `who` says for each request who asks and what they may do. It may call the session or the
    /// directory of the application. If it fails, the response is that of its error, such as a
    /// redirect to a login page.
    #[must_use]
    pub fn new<W, A>(idempotency: &Idempotency, who: W) -> Self
    where
        W: Fn(HttpRequest) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Access, Error>> + 'static,
    {
        let parts = ConsoleParts {
            administrator: idempotency.administrator(),
            idempotency: idempotency.clone(),
            shows_bodies: false,
            counts: Arc::new(RequestCounts::default()),
        };
        Self { parts, who: Arc::new(move |request| Box::pin(who(request))) }
    }

    /// Also shows the bodies of recorded responses, to everybody who may read. By default their
    /// lengths are shown, because they may contain personal data or secrets.
    #[must_use]
    pub fn show_bodies(mut self) -> Self {
        self.parts.shows_bodies = true;
        self
    }

    /// Counts a response, for the rates on the first page. Call it for each response of the
    /// application, such as in the middleware that writes its access log. Those of handlers that
    /// are not guarded are not counted.
    ///
    /// The counts are of this process, and go back one hour. They need no recorder of metrics.
    pub fn count<B>(&self, response: &HttpResponse<B>) {
        if let Some(outcome) = response.extensions().get::<RequestOutcome>() {
            self.parts.counts.count(*outcome);
        }
    }

    /// The pages below this path, such as `/operations`, and the JSON API below `{path}/api`. Every
    /// request needs [`Access`]; nothing below the path is public.
    pub fn scope(&self, path: &str) -> impl HttpServiceFactory + 'static {
        let who = self.who.clone();
        web::scope(path)
            .app_data(Data::new(self.parts.clone()))
            .app_data(FormConfig::default().limit(MAX_FORM).error_handler(failure::of_input))
            .app_data(JsonConfig::default().limit(MAX_FORM).error_handler(failure::of_input))
            .app_data(QueryConfig::default().error_handler(failure::of_input))
            .configure(api::routes)
            .configure(pages::routes)
            .default_service(web::to(failure::absent))
            .wrap(from_fn(move |request: ServiceRequest, next: Next<_>| {
                let who = who.clone();
                async move { gate::enter(&*who, request, next).await }
            }))
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("shows_bodies", &self.parts.shows_bodies)
            .finish_non_exhaustive()
    }
}
