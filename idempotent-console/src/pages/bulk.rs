//! One decision about many held operations: what it is, a confirmation, and its progress.

use std::convert::Infallible;

use actix_web::{
    HttpResponse, get, post,
    web::{Data, Form, Query, ServiceConfig},
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use idempotent_http::report::RecordingView;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    forms::{hidden_outcome, outcome_fields, reason_field, recording},
    respond,
};
use crate::{
    bulk::{Bulk, BulkAction, MAX, Selected, Tally, seen_attempts, select},
    decisions::{Decision, OutcomeForm, actor, may_act},
    failure::Failure,
    layout::{END, HTML, Place, begin, page as layout},
    parts::ConsoleParts,
    records::{ListQuery, Listed},
    tables::records_table,
    visit::Visit,
};

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(choose).service(confirm).service(run);
}

/// The filter, as fields of a form, and what is decided.
#[derive(Deserialize)]
struct Chosen {
    action: BulkAction,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    reference: String,
    #[serde(default)]
    older_than: String,
    #[serde(flatten)]
    outcome: OutcomeForm,
}

impl Chosen {
    fn query(&self) -> ListQuery {
        ListQuery {
            state: Listed::Held,
            operation: self.operation.clone(),
            reference: self.reference.clone(),
            older_than: self.older_than.clone(),
            after: String::new(),
        }
    }

    fn decision(&self) -> Result<Decision, Failure> {
        match self.action {
            BulkAction::Complete => self.outcome.recording().map(Decision::Complete),
            BulkAction::Release => Ok(Decision::Release),
        }
    }

    fn fields(&self) -> Markup {
        let action = match self.action {
            BulkAction::Complete => "complete",
            BulkAction::Release => "release",
        };
        html! {
            input type="hidden" name="action" value=(action);
            (filter_fields(&self.query()))
            (hidden_outcome(&self.outcome))
        }
    }
}

fn filter_fields(query: &ListQuery) -> Markup {
    html! {
        input type="hidden" name="operation" value=(query.operation);
        input type="hidden" name="reference" value=(query.reference);
        input type="hidden" name="older_than" value=(query.older_than);
    }
}

/// Asks what to decide.
#[get("/bulk")]
async fn choose(
    console: Data<ConsoleParts>,
    visit: Visit,
    query: Query<ListQuery>,
) -> HttpResponse {
    let page = async {
        may_act(&visit)?;
        let selected = select(&console, &query).await?;
        let action = format!("{}bulk/confirm", visit.base);
        let content = html! {
            (selection(&visit, &selected))
            @if !selected.records.is_empty() {
                section.decide {
                    h2 { "Decide about all of them" }
                    details {
                        summary { "None of them took effect: release their keys" }
                        form method="post" action=(action) {
                            input type="hidden" name="action" value="release";
                            (filter_fields(&query))
                            button { "Go on" }
                        }
                    }
                    details {
                        summary { "All of them took effect: complete them with one response" }
                        form method="post" action=(action) {
                            input type="hidden" name="action" value="complete";
                            (filter_fields(&query))
                            (outcome_fields(&OutcomeForm::default()))
                            button { "Show what their clients will get" }
                        }
                    }
                }
            }
        };
        Ok(layout(&visit, Place::Other, "Decide about many operations", &content))
    };
    respond(&visit, page.await)
}

/// Which operations are meant.
fn selection(visit: &Visit, selected: &Selected) -> Markup {
    let count = selected.records.len();
    html! {
        p role="status" {
            @if selected.is_cut {
                "More than " (MAX) " held operations are like that. These are the oldest " (MAX) "."
            } @else if count == 1 {
                "One held operation is like that."
            } @else {
                (count) " held operations are like that."
            }
        }
        @if count > 0 {
            details {
                summary { "Which ones" }
                (records_table(visit, "The operations that are meant", &selected.records))
            }
        }
    }
}

/// Shows how many operations are meant and what will happen to them, and asks for the reason.
#[post("/bulk/confirm")]
async fn confirm(console: Data<ConsoleParts>, visit: Visit, chosen: Form<Chosen>) -> HttpResponse {
    let page = async {
        may_act(&visit)?;
        let decision = chosen.decision()?;
        let selected = select(&console, &chosen.query()).await?;
        let count = selected.records.len();
        if count == 0 {
            return Err(Failure::Conflict("no held operation is like that any more".into()));
        }
        let content = html! {
            (selection(&visit, &selected))
            @if let Decision::Complete(given) = &decision {
                section {
                    h2 { "Their clients will get" }
                    (recording(&RecordingView::of(given.as_bytes(), true)))
                }
            }
            form.decide method="post" action={ (visit.base) "bulk/run" } {
                (chosen.fields())
                input type="hidden" name="seen" value=(selected.seen());
                (reason_field())
                p { label.check {
                    input type="checkbox" name="confirmed" value="yes" required;
                    @match decision {
                        Decision::Release => { " None of these " (count) " operations took effect" }
                        _ => { " All of these " (count) " operations took effect" }
                    }
                } }
                button {
                    @match decision {
                        Decision::Release => { "Release " (count) " keys" }
                        _ => { "Complete " (count) " operations" }
                    }
                }
            }
        };
        Ok(layout(&visit, Place::Other, "Decide about many operations", &content))
    };
    respond(&visit, page.await)
}

#[derive(Deserialize)]
struct ConfirmedBulk {
    seen: String,
    reason: String,
    confirmed: String,
    #[serde(flatten)]
    chosen: Chosen,
}

/// Makes the decisions, and shows how far they have come. If the page is closed, the rest is left.
#[post("/bulk/run")]
async fn run(console: Data<ConsoleParts>, visit: Visit, form: Form<ConfirmedBulk>) -> HttpResponse {
    let bulk = async {
        let actor = actor(&visit, &form.reason)?;
        if form.confirmed != "yes" {
            return Err(Failure::Invalid("the decision was not confirmed".into()));
        }
        let seen = seen_attempts(&form.seen)?;
        Bulk::new(&console, &form.chosen.query(), &seen, form.chosen.decision()?, actor).await
    };
    let bulk = match bulk.await {
        Ok(bulk) => bulk,
        Err(failure) => return failure.response(&visit),
    };
    let title = "Decide about many operations";
    let start = html! {
        (begin(&visit, Place::Other, title))
        p { "Keep this page open: if it is closed, the rest is left as it is." }
        (maud::PreEscaped("<div class=\"progress\" role=\"status\">"))
    };
    let steps = stream::unfold((bulk, false), |(mut bulk, is_over)| async move {
        if is_over {
            return None;
        }
        let step = bulk.step().await;
        let tally = bulk.tally();
        let is_over = step.is_none();
        let text = if is_over { end(&tally) } else { progress(&tally) };
        Some((text, (bulk, is_over)))
    });
    let chunks = stream::iter([start]).chain(steps);
    let chunks = chunks.map(|part| Ok::<_, Infallible>(Bytes::from(part.into_string())));
    HttpResponse::Ok().content_type(HTML).streaming(Box::pin(chunks))
}

fn progress(tally: &Tally) -> Markup {
    let (done, all) = (tally.done(), tally.selected);
    html! {
        p { progress max=(all) value=(done) aria-label="Progress" {} " " (done) " of " (all) }
    }
}

/// What came of it. It ends the page.
fn end(tally: &Tally) -> Markup {
    let Tally { selected, decided, changed, failed } = tally;
    html! {
        p.done { (decided) " of " (selected) " operations were decided." }
        (maud::PreEscaped("</div>"))
        @if *changed > 0 {
            p { (changed) " had changed since they were shown, and were left as they are." }
        }
        @if *failed > 0 {
            p role="alert" {
                "The store failed for " (failed) ": look at the held operations again."
            }
        }
        p {
            a href="../records?state=held" { "Held operations" } " · "
            a href="../log" { "Decisions" }
        }
        (END)
    }
}
