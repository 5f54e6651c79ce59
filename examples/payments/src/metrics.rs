//! `/metrics`, which Prometheus reads, with the feature `metrics`.

#[cfg(feature = "metrics")]
pub(crate) use self::prometheus::{COUNT_EVERY, install};

/// Adds no route.
#[cfg(not(feature = "metrics"))]
pub(crate) fn install()
-> Result<impl Fn(&mut actix_web::web::ServiceConfig) + Clone, std::convert::Infallible> {
    Ok(|_: &mut actix_web::web::ServiceConfig| {})
}

#[cfg(feature = "metrics")]
mod prometheus {
    use std::time::Duration;

    use actix_web::{
        HttpResponse, get,
        web::{Data, ServiceConfig},
    };
    use idempotent_actix::metrics::{BATCH_BUCKETS, SECONDS_BUCKETS};
    use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

    /// How often the records of the store are counted.
    pub(crate) const COUNT_EVERY: Duration = Duration::from_secs(5);

    /// Records the metrics of this process from now on: before the first request. Returns what adds
    /// the route.
    pub(crate) fn install() -> Result<impl Fn(&mut ServiceConfig) + Clone, BuildError> {
        let batches = Matcher::Full("idempotency_batches".to_owned());
        let recorded = PrometheusBuilder::new()
            .set_buckets(&SECONDS_BUCKETS)?
            .set_buckets_for_metric(batches, &BATCH_BUCKETS)?
            .install_recorder()?;
        let recorded = Data::new(recorded);
        Ok(move |config: &mut ServiceConfig| {
            config.app_data(recorded.clone()).service(metrics);
        })
    }

    #[get("/metrics")]
    async fn metrics(recorded: Data<PrometheusHandle>) -> HttpResponse {
        recorded.run_upkeep();
        HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(recorded.render())
    }
}
