//! Clients: they send requests in parts, disconnect, give up, and retry.

use std::{rc::Rc, time::Duration};

use actix_http::{error::PayloadError, h1};
use actix_web::{dev::Payload, test::TestRequest};
use bytes::Bytes;
use tokio::{
    task::spawn_local,
    time::{sleep, timeout},
};

use crate::{
    app::Body,
    cluster::Cluster,
    operation::{Handler, Key, Response},
    process::Process,
    world::{chance, millis},
};

/// How a client sends a request.
struct Manner {
    /// How long it waits for the response.
    patience: Duration,
    /// Whether it disconnects before it has sent the whole body.
    breaks_off: bool,
}

/// Sends a request again and again, until the response is final or the client gives up.
pub(crate) async fn run(cluster: Rc<Cluster>, key: Key, payload: u8) {
    for _ in 0..fastrand::u32(1..8) {
        sleep(millis(0, 6_000)).await;
        let Some(process) = cluster.any_process() else { continue };
        let patience = if chance(40) { millis(0, 400) } else { millis(500, 40_000) };
        let manner = Manner { patience, breaks_off: chance(5) };
        let response = send(&cluster, &process, key, payload, manner).await;
        let is_final = response.is_some_and(|response| response.status.as_u16() < 409);
        if is_final && chance(50) {
            return;
        }
    }
}

/// Sends a request without faults until it gets a definitive response. Returns whether it did.
pub(crate) async fn insist(cluster: &Cluster, key: Key, payload: u8) -> bool {
    for _ in 0..40 {
        let Some(process) = cluster.any_process() else { return false };
        let manner = Manner { patience: Duration::from_secs(60), breaks_off: false };
        let response = send(cluster, &process, key, payload, manner).await;
        let is_definitive = response.is_some_and(|response| match response.status.as_u16() {
            201 | 402 | 422 => true,
            409 => String::from_utf8_lossy(&response.body).contains("outcome_unknown"),
            _ => false,
        });
        if is_definitive {
            return true;
        }
        sleep(Duration::from_secs(2)).await;
    }
    false
}

async fn send(
    cluster: &Cluster,
    process: &Rc<Process>,
    key: Key,
    payload: u8,
    manner: Manner,
) -> Option<Response> {
    let path = match key.handler {
        Handler::Lease => "/lease",
        Handler::TxLease => "/tx-lease",
        Handler::TxClaim => "/tx-claim",
    };
    let body = serde_json::to_vec(&Body { payload }).expect("JSON");
    let request = TestRequest::post()
        .uri(path)
        .insert_header(("idempotency-key", key.key.to_string()))
        .insert_header(("user", key.user.to_string()))
        .insert_header(("content-type", "application/json"))
        .insert_header(("content-length", body.len()))
        .to_request();
    let (mut sender, parts) = h1::Payload::create(false);
    let (request, _) = request.replace_payload(Payload::from(parts));
    let world = &cluster.world;
    world.oracle(|oracle| oracle.requested(key, payload));
    world.trace(|| format!("client: sends {key:?}, payload {payload}, to {}", process.number));
    let (connected, response) = process.call(request);
    let middle = fastrand::usize(0..body.len());
    spawn_local(async move {
        sleep(millis(0, 10)).await;
        sender.feed_data(Bytes::copy_from_slice(&body[..middle]));
        if manner.breaks_off {
            sender.set_error(PayloadError::Incomplete(None));
            return;
        }
        sleep(millis(0, 200)).await;
        sender.feed_data(Bytes::copy_from_slice(&body[middle..]));
        sender.feed_eof();
    });
    let response = timeout(manner.patience, response).await;
    // Disconnects, if there is no response yet.
    drop(connected);
    match response {
        Ok(Ok(response)) => {
            let text = String::from_utf8_lossy(&response.body);
            world.trace(|| format!("client: {key:?} gets {} {text}", response.status));
            let calm = !world.is_chaotic();
            if manner.breaks_off {
                // Whatever refuses half a body.
                return None;
            }
            world.oracle(|oracle| oracle.responded(key, payload, &response, calm));
            Some(response)
        }
        _ => {
            world.trace(|| format!("client: {key:?} gets no response"));
            None
        }
    }
}
