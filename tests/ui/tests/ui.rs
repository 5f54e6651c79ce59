//! What compiles with `#[idempotent]`, and what the compiler reports otherwise. `cases/pass`
//! compiles without warnings and runs; `cases/fail` gets messages of the attribute; `cases/rustc`
//! gets messages of rustc at the user's tokens. `TRYBUILD=overwrite cargo test -p ui-tests` updates
//! the snapshots.

use actix_web::{App, web};
use idempotent_actix::{idempotent, scope};

/// Without a route attribute, `echo_unguarded` exists under `cfg(test)` only, so that no case can
/// call it.
#[idempotent(scope = "scope::bearer_token", method = "POST")]
async fn echo<T: ToString + 'static, const TIMES: usize>(text: web::Path<T>) -> String {
    text.to_string().repeat(TIMES)
}

#[actix_web::test]
async fn a_handler_without_a_route_attribute_can_be_called_in_a_unit_test() {
    let _ = || App::new().route("/{text}", web::post().to(echo::<u64, 2>));
    assert_eq!(echo_unguarded::<u64, 2>(web::Path::from(7)).await, "77");
}

#[test]
fn supported_handlers_compile_and_run() {
    trybuild::TestCases::new().pass("cases/pass/*.rs");
}

#[test]
fn mistakes_get_the_attributes_message_on_any_compiler() {
    trybuild::TestCases::new().compile_fail("cases/fail/*/*.rs");
}

/// The snapshots contain the text of one rustc version. What matters is the location.
#[rustversion::attr(not(stable(1.95)), ignore = "the snapshots have the messages of rustc 1.95")]
#[test]
fn mistakes_that_rustc_finds_are_reported_at_the_users_tokens() {
    trybuild::TestCases::new().compile_fail("cases/rustc/*.rs");
}
