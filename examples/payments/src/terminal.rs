//! What the server writes to the terminal.

use std::{error::Error, io::Write, net::SocketAddr, path::Path};

/// What is printed when the server listens.
pub(crate) fn print_summary(
    address: SocketAddr,
    store: &str,
    ledger: &Path,
    (payments, refunds): (i64, i64),
    transfers: &str,
) {
    let store = without_credentials(store);
    print(&format!(
        "payments: listening on http://{address}
  records  {store}
  ledger   {} ({payments} payments, {refunds} refunds)
  transfers {transfers}
  policy   curl http://{address}/idempotency
  console  http://{address}/console/
  cards    pm_card_visa, pm_card_chargeDeclined, pm_card_slow_MS, pm_card_processorDown,
           pm_card_crash
Pay; then send the same line again, and again with another amount:
  curl -i http://{address}/v1/payment_intents -H 'Authorization: Bearer sk_test_alice' \
       -H 'Idempotency-Key: order-1' \
       -d amount=2000 -d currency=usd -d payment_method=pm_card_visa -d confirm=true
One line per request follows: method, path, status, outcome, time, record.",
        ledger.display(),
    ));
}

/// The part of a store's URL after the `@`. The part before it may contain a password.
pub(crate) fn without_credentials(store: &str) -> &str {
    store.rsplit_once('@').map_or(store, |(_, address)| address)
}

/// Writes to the terminal, which may be closed.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Formats an error with all of its causes.
pub(crate) fn with_causes(what: &str, error: &dyn Error) -> String {
    let mut text = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        // Some errors already contain the text of their cause.
        if !text.ends_with(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = error.source();
    }
    text
}
