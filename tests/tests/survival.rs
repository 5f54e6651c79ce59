//! What becomes of work whose client, process or neighbour goes away.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

#[path = "survival/disconnects.rs"]
mod disconnects;
#[path = "survival/finish.rs"]
mod finish;
#[path = "survival/http2.rs"]
mod http2;
#[path = "survival/project.rs"]
mod project;
#[path = "survival/random_disconnects.rs"]
mod random_disconnects;
#[path = "survival/task_locals.rs"]
mod task_locals;
