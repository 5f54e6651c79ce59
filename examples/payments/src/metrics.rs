//! `/metrics`, which Prometheus reads.

use std::time::Duration;

use actix_web::{HttpResponse, get, web::Data};
use idempotent_actix::metrics::{BATCH_BUCKETS, SECONDS_BUCKETS};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// How often the records of the store are counted.
pub(crate) const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Records the metrics of this process from now on: before the first request.
pub(crate) fn install() -> Result<PrometheusHandle, BuildError> {
    let batches = Matcher::Full("idempotency_batches".to_owned());
    PrometheusBuilder::new()
        .set_buckets(&SECONDS_BUCKETS)?
        .set_buckets_for_metric(batches, &BATCH_BUCKETS)?
        .install_recorder()
}

#[get("/metrics")]
pub(crate) async fn metrics(recorded: Data<PrometheusHandle>) -> HttpResponse {
    recorded.run_upkeep();
    HttpResponse::Ok().content_type("text/plain; version=0.0.4").body(recorded.render())
}
