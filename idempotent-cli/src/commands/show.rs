//! One record, and its story.

use idempotent_core::{
    Abandoned,
    protocol::Snapshot,
    report::{RecordView, SeenAttempt, ShownState, Story, Time, explain as story_of, kind_name},
};
use idempotent_http::report::{RecordingKind, RecordingView};
use serde::Serialize;

use crate::{
    args::{SelectionArguments, ShowArguments},
    failure::Failure,
    report::Report,
    select,
    session::Session,
    text::{BOLD, DIM, ERROR, WARNING, age, facts, or_dash, size, state_style},
};

/// A record, and its recording.
#[derive(Serialize)]
struct WholeRecord {
    #[serde(flatten)]
    record: RecordView,
    recording: Option<RecordingView>,
}

/// Shows one record.
pub(super) async fn show(session: &Session, show: &ShowArguments) -> Result<Report, Failure> {
    let (id, Snapshot { record, at, .. }) = select::record(session, &show.selection).await?;
    let recording = RecordingView::of_record(&record, show.body);
    let record = RecordView::new(&id, &record, at);
    let mut text = record_text(&record);
    if let Some(recording) = &recording {
        text += &recording_text(recording, show.body);
        if recording.kind == RecordingKind::Sealed {
            text += &sealed_text(session.sealing_key.is_some());
        }
    }
    Report::new(&WholeRecord { record, recording }, text)
}

fn sealed_text(has_keyring: bool) -> String {
    if has_keyring {
        format!("{ERROR}sealed, and no key of the keyring opens it{ERROR:#}\n")
    } else {
        format!("{WARNING}sealed: give --keyring-file, or set IDEMPOTENCY_KEYRING{WARNING:#}\n")
    }
}

/// What is shown of a record, before its recording.
pub(super) fn record_text(record: &RecordView) -> String {
    let time = |time: Option<Time>| time.map_or_else(|| "–".into(), |time| time.to_string());
    let text =
        |text: &Option<idempotent_core::ShortText>| or_dash(text.as_deref().unwrap_or_default());
    let style = state_style(record.state);
    let state = match &record.lease {
        Some(lease) if !lease.has_expired => {
            format!("{}, lease until {}", record.state, time(lease.until))
        }
        _ => record.state.to_string(),
    };
    let if_abandoned = match record.on_abandon {
        Abandoned::Hold => "the key is held",
        Abandoned::Retry => "the next request runs the operation again",
    };
    let mut shown = facts(&[
        ("id", record.id.to_string()),
        ("operation", or_dash(record.operation.as_str())),
        ("state", format!("{style}{state}{style:#}")),
        ("attempt", record.attempt.to_string()),
        ("reference", text(&record.reference)),
        ("progress", text(&record.progress)),
        ("first seen", format!("{} ({} ago)", record.first_seen, age(record.age_ms))),
        ("completed", time(record.completed_at)),
        (
            "expires",
            record.expires_at.map_or_else(|| "not while it is held".into(), |at| at.to_string()),
        ),
        ("if abandoned", if_abandoned.into()),
        ("principal", record.principal.map_or_else(|| "–".into(), |one| one.to_string())),
        ("seen", format!("{} (for --seen)", record.seen)),
    ]);
    if record.history_is_cut {
        shown += &format!("{DIM}earlier entries of the history are gone{DIM:#}\n");
    }
    for event in &record.history {
        shown +=
            &format!("{DIM}{}{DIM:#}  {}\n", event.at, kind_name(event.kind).replace('_', " "));
    }
    shown
}

/// What is shown of a recording.
pub(super) fn recording_text(recording: &RecordingView, with_body: bool) -> String {
    let mut text = match recording.status {
        Some(status) => format!("\n{BOLD}{status}{BOLD:#}\n"),
        None => format!("\n{BOLD}recording of {}{BOLD:#}\n", size(recording.bytes)),
    };
    for header in &recording.headers {
        text += &format!("{}: {}\n", printable(&header.name), printable(&header.value));
    }
    let Some(body) = &recording.body else { return text };
    text += &match (&body.text, &body.hex) {
        (Some(body), _) => format!("\n{}\n", printable(body)),
        (None, Some(hex)) => format!("\n{hex}\n"),
        (None, None) if body.is_omitted => {
            format!("{DIM}the body was not recorded{DIM:#}\n")
        }
        (None, None) if with_body => String::new(),
        (None, None) => format!("{DIM}body of {}: add --body to see it{DIM:#}\n", size(body.bytes)),
    };
    text
}

/// A text without control characters, which a terminal could obey.
fn printable(text: &str) -> String {
    let shown = |character: char| {
        if character.is_control() && character != '\n' && character != '\t' {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        }
    };
    text.chars().map(shown).collect()
}

/// Tells the story of one key.
pub(super) async fn explain(
    session: &Session,
    selection: &SelectionArguments,
) -> Result<Report, Failure> {
    let id = select::id(session, selection).await?;
    let administrator = &session.administrator;
    let found = session.call(administrator.look_up(&id)).await?;
    let audited = session.call(administrator.audit_of(&id)).await?;
    if found.is_none() && audited.is_empty() {
        return Err(Failure::NotFound(format!(
            "there is no record {id}, and no operator has decided about one"
        )));
    }
    let story = story_of(&id, found.as_ref(), &audited);
    let mut text = story_text(&story);
    if let (Some(ShownState::Held), Some(Snapshot { record, .. })) = (story.state, &found) {
        let which = format!("{id} --seen {}", SeenAttempt::of(&id, record));
        text += &format!(
            "\n{DIM}idempotency resolve {which} --status STATUS --body-file FILE --reason REASON\n\
             idempotency release {which} --reason REASON{DIM:#}\n"
        );
    }
    Report::new(&story, text)
}

fn story_text(story: &Story) -> String {
    let mut text = format!("{DIM}{}{DIM:#}\n\n", story.id);
    for event in &story.events {
        let at = event.at.map(|at| format!("{DIM}{at}:{DIM:#} ")).unwrap_or_default();
        text += &format!("{at}{}\n", event.text);
    }
    let style = story.state.map(state_style).unwrap_or_default();
    text += &format!("\n{style}{}{style:#}\n", story.conclusion);
    if let Some(advice) = &story.advice {
        text += &format!("{advice}\n");
    }
    text
}
