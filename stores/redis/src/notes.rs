//! Notes of handlers, and the index of the attempts that have noted an input.
//!
//! The index is a sorted set with its own key, which one node of a cluster has. Its members are
//! record ids, each with the owner token of the attempt; all scores are 0, so that the members are
//! in the order of their bytes. It contains every attempt whose input is in a record, and attempts
//! that have ended or whose note failed.

use bytes::Bytes;
use futures_util::future::join_all;

use crate::{
    error::CallFailure,
    lua::Arg,
    net::{
        node::{ConnectionRole, ConnectionRoute},
        router::SendAgain,
    },
    store::RedisStore,
};
use idempotent_core::{
    Abandoned, Lease, OwnerToken, Record, RecordId, RecordState, ShortText,
    protocol::{Note, ResumablePage},
};

/// The key of the index, after the prefix. It is shorter than the id of a record.
const INDEX: &[u8] = b"inputs";
/// How many attempts one call looks up, and how many of them at the same time.
const LOOKED_UP: u32 = 256;
const CONCURRENT_LOOKUPS: usize = 32;

impl RedisStore {
    /// Adds a note. Returns whether it passed, and the connections on which it was sent.
    pub(crate) async fn note_on(
        &self,
        role: ConnectionRole,
        lease: &Lease,
        note: &Note,
    ) -> Result<(bool, Vec<ConnectionRoute>), CallFailure> {
        let mut routes = Vec::new();
        if !note.input.is_empty() {
            // The index comes first: an input that is not in the index would never be found. A
            // failure in between leaves a member whose attempt has no input, which is harmless.
            let (index, member) = (self.index_key(), member(lease));
            let target = (role, SendAgain::Once);
            let args = [Arg::Bytes(&member)];
            let (_, route) =
                self.router.call(target, &self.router.scripts.index_input, &index, &args).await?;
            routes.push(route);
        }
        let text = |text: &Option<ShortText>| text.clone().unwrap_or_default();
        let (reference, progress) = (text(&note.reference), text(&note.progress));
        let args = [
            Arg::Bytes(reference.as_bytes()),
            Arg::Bytes(progress.as_bytes()),
            Arg::Bytes(&note.step),
            Arg::Bytes(&note.input),
            Arg::Number(note.hold.into()),
        ];
        let resend = if note.step.is_empty() { SendAgain::Once } else { SendAgain::Never };
        let (passed, route) =
            self.call_fenced((role, resend), &self.router.scripts.note, lease, &args).await?;
        routes.push(route);
        Ok((passed, routes))
    }

    /// Looks up the next attempts of the index, and removes those that have ended.
    pub(crate) async fn find_resumable(
        &self,
        operation: &ShortText,
        after: Option<&RecordId>,
        limit: u32,
    ) -> Result<ResumablePage, CallFailure> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let attempts = self.next_attempts(after).await?;
        let is_last = attempts.len() < usize::try_from(LOOKED_UP).unwrap_or(usize::MAX);
        let (mut page, mut ended, mut failed) = (ResumablePage::default(), Vec::new(), None);
        for attempts in attempts.chunks(CONCURRENT_LOOKUPS) {
            let reads = attempts.iter().map(|attempt| self.read(&attempt.id));
            for (attempt, read) in attempts.iter().zip(join_all(reads).await) {
                match read {
                    Ok(Some(read)) if read.record.is_resumable(read.at) => {
                        let is_new = page.ids.last() != Some(&attempt.id);
                        if is_new && read.record.operation == *operation {
                            page.ids.push(attempt.id);
                        }
                    }
                    Ok(read) => {
                        if has_ended(attempt, read.as_ref().map(|read| &read.record)) {
                            ended.push(*attempt);
                        }
                    }
                    Err(CallFailure::Unreadable(_)) => {}
                    Err(failure) => failed = Some(failure),
                }
            }
            if page.ids.len() >= limit {
                break;
            }
        }
        page.next = attempts.last().map(|attempt| attempt.id).filter(|_| !is_last);
        if page.ids.len() >= limit {
            page.ids.truncate(limit);
            page.next = page.ids.last().copied();
        }
        self.remove_from_index(&ended).await;
        match failed {
            Some(failure) if page.ids.is_empty() => Err(failure),
            _ => Ok(page),
        }
    }

    /// Returns the attempts of the index after those at the record `after`.
    async fn next_attempts(&self, after: Option<&RecordId>) -> Result<Vec<Lease>, CallFailure> {
        let index = self.index_key();
        let first = match after {
            // No owner token is above this one.
            Some(id) => [b"(".as_slice(), id.as_bytes().as_slice(), &[u8::MAX; 16]].concat(),
            None => b"-".to_vec(),
        };
        let mut range = redis::cmd("ZRANGEBYLEX");
        range.arg(&index).arg(first).arg("+").arg("LIMIT").arg(0).arg(LOOKED_UP);
        let target = (ConnectionRole::Requests, SendAgain::Once);
        let (members, _) = self.router.send(target, &index, &range).await?;
        let members: Vec<Bytes> =
            redis::from_redis_value(members).map_err(CallFailure::unexpected_reply)?;
        Ok(members.iter().filter_map(|member| attempt(member)).collect())
    }

    /// Removes attempts that have ended from the index. If that fails, they stay there until
    /// [`find_resumable`](Self::find_resumable) looks them up.
    pub(crate) async fn remove_from_index(&self, ended: &[Lease]) {
        if ended.is_empty() {
            return;
        }
        let index = self.index_key();
        let mut remove = redis::cmd("ZREM");
        remove.arg(&index);
        for attempt in ended {
            remove.arg(member(attempt));
        }
        let target = (ConnectionRole::Requests, SendAgain::Once);
        if let Err(failure) = self.router.send(target, &index, &remove).await {
            let cause = std::error::Error::source(&failure);
            tracing::debug!(
                error = %failure,
                cause,
                "removing attempts that have ended from the index of inputs failed"
            );
        }
    }

    fn index_key(&self) -> Vec<u8> {
        [self.prefix.as_bytes(), INDEX].concat()
    }
}

/// Whether an attempt of the index can neither be resumed nor note an input any more.
///
/// Between the look-up and the removal from the index another process may note an input. An attempt
/// that has ended is fenced, and every other attempt has its own member, so neither is lost
/// (`a_note_under_way_stays_in_the_index`).
fn has_ended(attempt: &Lease, record: Option<&Record>) -> bool {
    !record.is_some_and(|record| {
        record.state == RecordState::InFlight
            && record.abandoned == Abandoned::Retry
            && (record.owner == attempt.owner || !record.notes.input.is_empty())
    })
}

fn member(attempt: &Lease) -> Vec<u8> {
    [attempt.id.as_bytes().as_slice(), attempt.owner.as_bytes()].concat()
}

fn attempt(member: &[u8]) -> Option<Lease> {
    let (id, owner) = member.split_first_chunk()?;
    let owner = OwnerToken::from_bytes(owner.try_into().ok()?);
    Some(Lease { id: RecordId::from_bytes(*id), owner })
}
