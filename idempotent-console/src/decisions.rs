//! Decisions about one record: complete, release, forget.

use idempotent_core::{
    EncodedRecording, RecordId, job,
    protocol::{Actor, Resolution, ResolveOutcome, Snapshot},
    report::{SeenAttempt, ShownState},
};
use idempotent_http::report::GivenResponse;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    access::Access, failure::Failure, parts::ConsoleParts, records::invalid, visit::Visit,
};

/// The longest name and reason that the log keeps, in bytes.
const MAX_REASON: usize = 255;

/// What is decided.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// The operation took effect: its clients get this from now on.
    Complete(EncodedRecording),
    /// It did not take effect: the next request runs it.
    Release,
    /// A completed record is removed.
    Forget,
}

/// The name of somebody who may decide.
pub(crate) fn may_act(visit: &Visit) -> Result<&str, Failure> {
    match &visit.access {
        Access::Act(name) => Ok(name),
        Access::None | Access::Read(_) => Err(Failure::Forbidden(
            "you may look at this console, but not decide; ask somebody who may".into(),
        )),
    }
}

/// Who decides, and why. The reason is required.
pub(crate) fn actor(visit: &Visit, reason: &str) -> Result<Actor, Failure> {
    let name = may_act(visit)?;
    match reason.trim() {
        "" => Err(Failure::Invalid("say why: the log keeps the reason".into())),
        reason if reason.len() > MAX_REASON => {
            Err(Failure::Invalid(format!("the reason has more than {MAX_REASON} bytes")))
        }
        reason => Ok(Actor::new(name, reason)),
    }
}

/// Decides about a record, if the attempt that was seen still has it.
pub(crate) async fn decide(
    console: &ConsoleParts,
    id: &RecordId,
    seen: SeenAttempt,
    decision: &Decision,
    actor: &Actor,
) -> Result<(), Failure> {
    let administrator = &console.administrator;
    let Some(Snapshot { record, at, .. }) = administrator.look_up(id).await? else {
        return Err(Failure::Conflict("the record is gone: the key is free".into()));
    };
    let state = ShownState::of(&record, at);
    if SeenAttempt::of(id, &record) != seen {
        return Err(Failure::Conflict(format!(
            "the record is not the one that was shown: another attempt has it, and it is {state}"
        )));
    }
    let refusal = match decision {
        Decision::Complete(_) | Decision::Release => state.why_not_resolvable(),
        Decision::Forget if state == ShownState::Completed => None,
        Decision::Forget => Some("only a completed record can be forgotten"),
    };
    if let Some(why) = refusal {
        return Err(Failure::Conflict(why.into()));
    }
    let owner = &record.owner;
    let resolution = match decision {
        Decision::Complete(recording) => Resolution::Complete(recording.as_bytes().clone()),
        Decision::Release => Resolution::Release,
        Decision::Forget => {
            let is_removed = administrator.forget(id, owner, actor).await?;
            return if is_removed { Ok(()) } else { Err(changed()) };
        }
    };
    match administrator.resolve(id, owner, &resolution, actor).await? {
        ResolveOutcome::Resolved => Ok(()),
        ResolveOutcome::Conflict => Err(changed()),
    }
}

fn changed() -> Failure {
    Failure::Conflict("the record has changed since it was read; look at it again".into())
}

/// What clients get from now on, as the fields of a form.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct OutcomeForm {
    pub(crate) kind: OutcomeKind,
    pub(crate) status: String,
    pub(crate) content_type: String,
    /// A header line in each line.
    pub(crate) headers: String,
    pub(crate) body: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutcomeKind {
    #[default]
    Response,
    /// The result of a job, as JSON in the body.
    Result,
}

impl OutcomeForm {
    pub(crate) fn recording(&self) -> Result<EncodedRecording, Failure> {
        // A form writes line breaks as CR LF.
        let body = self.body.replace("\r\n", "\n");
        if self.kind == OutcomeKind::Result {
            let result = serde_json::from_str(&body)
                .map_err(|error| Failure::Invalid(format!("the result is no JSON: {error}")))?;
            return recording_of_result(&result);
        }
        let status = self.status.trim().parse().map_err(|_| {
            Failure::Invalid(format!("`{}` is no status", self.status.trim().escape_debug()))
        })?;
        let content_type = self.content_type.trim();
        let types = Some(content_type).filter(|kind| !kind.is_empty());
        let lines = self.headers.lines().filter(|line| !line.trim().is_empty());
        GivenOutcome {
            status,
            content_type: types.map(str::to_owned),
            headers: lines.map(str::to_owned).collect(),
            body: Some(body).filter(|body| !body.is_empty()),
        }
        .recording()
    }
}

/// What clients get from now on, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenOutcome {
    status: u16,
    #[serde(default)]
    content_type: Option<String>,
    /// Header lines, such as `Location: /v1/refunds/7`.
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    body: Option<String>,
}

impl GivenOutcome {
    pub(crate) fn recording(self) -> Result<EncodedRecording, Failure> {
        let mut given = GivenResponse::new(self.status).map_err(|error| invalid(&error))?;
        if let Some(content_type) = &self.content_type {
            given.add_header("content-type", content_type).map_err(|error| invalid(&error))?;
        }
        for line in &self.headers {
            given.add_line(line).map_err(|error| invalid(&error))?;
        }
        given.body = self.body.map(Into::into);
        Ok(given.encode())
    }
}

/// The recording of the result of a job.
pub(crate) fn recording_of_result(result: &Value) -> Result<EncodedRecording, Failure> {
    job::recording_of::<_, ()>(Ok(result)).map_err(|error| invalid(&error))
}
