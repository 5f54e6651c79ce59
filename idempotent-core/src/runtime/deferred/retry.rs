//! Retries of a deferred end, in the background.

use std::error::Error;

use tokio::task::spawn_local;

use super::{
    deferrals::QueuedEnd,
    end::{DeferredEnd, EndState},
};
use crate::{
    error::StoreError,
    protocol::Fence,
    runtime::{
        end_action::EndAction,
        timing::{FIRST_RETRY, jittered},
    },
};

/// The maximum pause before an action is retried.
const LONGEST_RETRY: std::time::Duration = std::time::Duration::from_secs(1);
/// After how many panics of the store in a row an action is given up.
const PANICS: u32 = 5;

impl QueuedEnd {
    /// Sends the end to the store until it responds, or until its time is over.
    pub(in crate::runtime) async fn retry(self) {
        let id = self.end.id;
        let (mut pause, mut reported, mut panics) = (FIRST_RETRY, false, 0);
        loop {
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(LONGEST_RETRY);
            if self.end.state() == EndState::Done {
                return;
            }
            // In a separate task, so that a panic of the store does not lose a response that was
            // already sent.
            let (deferrals, end) = (self.deferrals.clone(), self.end.clone());
            let sent = spawn_local(async move { deferrals.send_or_reclaim(&end).await }).await;
            let Ok(sent) = sent else {
                panics += 1;
                if panics < PANICS {
                    continue;
                }
                tracing::error!(
                    id = %id.short(), panics,
                    "the store panicked at the end of an attempt; the lease will expire"
                );
                return;
            };
            panics = 0;
            match sent {
                Ok(fence) => return self.end.log_if_fenced(fence),
                // A permanent error is retried too: its cause may be fixed, and giving up brings
                // a second run nearer. An unreadable record stays as it is.
                Err(error) if self.deferrals.now() < self.until && !error.is_unreadable() => {
                    reported |= log_failure(&self.end, &error, reported);
                }
                Err(error) => return log_given_up(&self.end, &error),
            }
        }
    }
}

impl DeferredEnd {
    fn log_if_fenced(&self, fence: Fence) {
        let was_sent = matches!(self.state(), EndState::Deferred | EndState::FoundFenced);
        // A fenced release is normal: the claim never took effect.
        if fence == Fence::Fenced && self.action.is_completion() && was_sent {
            let id = self.id;
            tracing::error!(
                id = %id.short(),
                "a response was sent but is not recorded: another attempt has taken over the key"
            );
        }
    }
}

/// Logs a failure that is retried. A permanent error is reported once; returns whether it was.
fn log_failure(end: &DeferredEnd, error: &StoreError, reported: bool) -> bool {
    let id = end.id;
    if error.is_transient() || reported {
        tracing::debug!(
            id = %id.short(), %error,
            "storing the end of an attempt failed again; retrying"
        );
        return false;
    }
    let cause = error.source();
    tracing::error!(
        id = %id.short(), %error, cause,
        "the store refuses the end of an attempt; retrying"
    );
    true
}

fn log_given_up(end: &DeferredEnd, error: &StoreError) {
    let (id, cause) = (end.id, error.source());
    if matches!(end.action, EndAction::GiveBack) {
        tracing::debug!(
            id = %id.short(), %error, cause,
            "releasing a claim failed; its lease will expire"
        );
    } else {
        tracing::error!(
            id = %id.short(), %error, cause,
            "storing the end of an attempt failed for too long; the lease will expire"
        );
    }
}
