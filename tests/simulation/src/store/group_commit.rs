//! Claims and completions that a process sends in batches, with the queue of the SQL stores.

use std::sync::Arc;

use idempotent_core::{StoreError, protocol::Fence, transition::EventOutcome};
use idempotent_sql::group_commit::{Batches, GroupCommit, GroupedStep, InBatch, Turn};
use tokio::time::sleep;

use super::{SimulatedStore, lost};
use crate::{
    database::{Reply, Statement},
    world::{chance, millis},
};

/// The queue of one process. A batch whose outcome is unknown has no reply.
pub(super) type Group = Arc<GroupCommit<Statement, Option<Reply>>>;

impl GroupedStep for Statement {
    fn bytes(&self) -> usize {
        if let Self::Complete(_, recording) = self { recording.len() } else { 1 }
    }
}

impl SimulatedStore {
    /// Sends a claim or a completion, alone or in a batch.
    pub(super) async fn call_in_turn(&self, step: Statement) -> Result<Reply, StoreError> {
        let Some(group) = &self.group else { return self.call(step).await };
        self.announce(&step);
        let start = |batches| {
            let execution = self.clone().execute_batches(batches);
            self.world.spawn_outside(execution);
        };
        match group.turn(|| step.clone(), start).await {
            Turn::Alone(_turn) => self.call(step).await,
            Turn::Done(Some(reply)) => {
                self.acknowledge(&step);
                Ok(reply)
            }
            Turn::Done(None) | Turn::TimedOut => Err(lost()),
        }
    }

    async fn execute_batches(self, mut batches: Batches<Statement, Option<Reply>>) {
        while batches.are_left() {
            // The wait for a connection.
            sleep(millis(0, 20)).await;
            let (steps, waiting): (Vec<_>, Vec<_>) = batches.take().into_iter().unzip();
            if steps.is_empty() {
                continue;
            }
            match self.call(Statement::Batch(steps)).await {
                Ok(Reply::Batch(replies)) => {
                    for (waiting, reply) in waiting.into_iter().zip(replies) {
                        let fenced = Reply::is_fenced(&reply);
                        waiting.send(if fenced {
                            InBatch::Alone
                        } else {
                            InBatch::Done(Some(reply))
                        });
                    }
                }
                // Its steps are executed alone, unless the server is known not to respond.
                Ok(_) | Err(_) => {
                    let again = chance(50);
                    for waiting in waiting {
                        waiting.send(if again { InBatch::Unknown } else { InBatch::Done(None) });
                    }
                }
            }
        }
    }
}

impl Reply {
    fn is_fenced(&self) -> bool {
        matches!(self, Self::Step(EventOutcome::Fence(Fence::Fenced)))
    }
}
