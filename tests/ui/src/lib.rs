//! What the compiler says of `#[idempotent]`: `cases/pass` compiles without a warning, `cases/fail` gets our
//! messages, `cases/rustc` gets rustc's own at the user's tokens. The tests are in `tests/ui.rs`.
