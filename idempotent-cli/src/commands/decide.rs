//! Decisions about one record.

use std::env;

use idempotent_core::{
    OwnerToken, RecordId,
    protocol::{Actor, AuditAction, AuditedState, Resolution, ResolveOutcome, Snapshot},
    report::{InvalidSeenAttempt, RecordView, SeenAttempt, ShownState},
};
use serde_json::json;

use super::show::record_text;
use crate::{
    args::{DecidedRecord, DecisionArguments},
    ask::confirm,
    failure::Failure,
    report::Report,
    select,
    session::Session,
    text::GOOD,
};

/// A record about which somebody decides, as it was read.
pub(super) struct Decided {
    pub(super) id: RecordId,
    pub(super) view: RecordView,
    pub(super) actor: Actor,
    owner: OwnerToken,
    before: AuditedState,
}

impl Decided {
    /// Reads the record, and verifies that it is the one that was seen.
    pub(super) async fn read(session: &Session, decided: &DecidedRecord) -> Result<Self, Failure> {
        let actor = actor(&decided.decision)?;
        let seen: Option<SeenAttempt> = decided
            .seen
            .as_deref()
            .map(str::parse)
            .transpose()
            .map_err(|error: InvalidSeenAttempt| Failure::Usage(error.to_string()))?;
        let (id, Snapshot { record, at, .. }) = select::record(session, &decided.selection).await?;
        let view = RecordView::new(&id, &record, at);
        if seen.is_some_and(|seen| seen != view.seen) {
            return Err(Failure::Conflict(format!(
                "the record is not the one that was seen: another attempt has it, and it is {}",
                view.state
            )));
        }
        let before = AuditedState::of(&record, at);
        Ok(Self { id, view, actor, owner: record.owner, before })
    }

    /// Fails unless the key is held.
    pub(super) fn verify_held(&self) -> Result<(), Failure> {
        match self.view.state.why_not_resolvable() {
            None => Ok(()),
            Some(why) => Err(Failure::Conflict(why.into())),
        }
    }

    /// Resolves the held key, and reports that.
    pub(super) async fn resolve(
        &self,
        session: &Session,
        resolution: &Resolution,
        done: (AuditAction, AuditedState),
    ) -> Result<Report, Failure> {
        let administrator = &session.administrator;
        let outcome = administrator.resolve(&self.id, &self.owner, resolution, &self.actor);
        match session.call(outcome).await? {
            ResolveOutcome::Resolved => self.report(done),
            ResolveOutcome::Conflict => Err(changed()),
        }
    }

    fn report(&self, (action, after): (AuditAction, AuditedState)) -> Result<Report, Failure> {
        let Self { id, before, actor, .. } = self;
        let json = json!({
            "action": action.as_str(),
            "id": id.to_string(),
            "before": before.to_string(),
            "after": after.to_string(),
            "actor": actor.name.as_str(),
            "reason": actor.reason.as_str(),
        });
        let text = match action {
            AuditAction::Release => "released: the next request with the key runs the operation",
            AuditAction::Complete => {
                "completed: requests with the key get this response from now on"
            }
            AuditAction::Forget | _ => "removed: the key is free again",
        };
        Report::new(&json, format!("{GOOD}{text}{GOOD:#}\n{id}\n"))
    }
}

fn changed() -> Failure {
    Failure::Conflict(
        "the record has changed since it was read, and nothing was done; look at it again".into(),
    )
}

/// Who decides, and why.
pub(super) fn actor(decision: &DecisionArguments) -> Result<Actor, Failure> {
    let user = || ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(|name| env::var(name).ok());
    let name = decision.actor.clone().or_else(user).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| {
        Failure::Usage("the name of the user is not known; say who decides with --actor".into())
    })?;
    Ok(Actor::new(&name, &decision.reason))
}

/// Releases a held key.
pub(super) async fn release(session: &Session, release: &DecidedRecord) -> Result<Report, Failure> {
    let decided = Decided::read(session, release).await?;
    decided.verify_held()?;
    let what = record_text(&decided.view);
    let question = "\nRelease this key, so that the next request runs the operation again?";
    confirm(&what, question, release.decision.yes)?;
    let done = (AuditAction::Release, AuditedState::Absent);
    decided.resolve(session, &Resolution::Release, done).await
}

/// Removes a completed record.
pub(super) async fn forget(session: &Session, forget: &DecidedRecord) -> Result<Report, Failure> {
    let decided = Decided::read(session, forget).await?;
    let view = &decided.view;
    if !matches!(view.state, ShownState::Completed | ShownState::Expired) {
        return Err(Failure::Conflict(format!(
            "only a completed record can be removed, and this one is {}",
            view.state
        )));
    }
    let question = "\nRemove this record, so that a request with its key runs the operation anew?";
    confirm(&record_text(view), question, forget.decision.yes)?;
    let removed = session.administrator.forget(&decided.id, &decided.owner, &decided.actor);
    if session.call(removed).await? {
        decided.report((AuditAction::Forget, AuditedState::Absent))
    } else {
        Err(changed())
    }
}
