//! What compiles with `#[idempotent]`, and what the compiler reports otherwise. `examples` compile
//! without warnings and run; they are not cases of trybuild, which would build the dependencies
//! once more for them. `cases/fail` gets messages of the attribute; `cases/rustc` gets messages of
//! rustc at the user's tokens. `TRYBUILD=overwrite cargo test -p ui-tests` updates the snapshots.

use std::{env, fs, path::Path, process::Command};

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

/// Cargo has built the examples, unless only this test was selected.
#[test]
fn supported_handlers_compile_and_run() {
    let program = env::current_exe().unwrap();
    let built = program.parent().and_then(Path::parent).unwrap().join("examples");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let names = fs::read_dir(sources).unwrap().map(|source| source.unwrap().path());
    let programs: Vec<_> = names.map(|source| built.join(source.file_stem().unwrap())).collect();
    assert!(programs.len() > 20, "{programs:?}");
    for program in programs {
        let ended = Command::new(&program).status();
        let ended = ended.unwrap_or_else(|error| {
            panic!("{}: {error}; `cargo test -p ui-tests` builds it", program.display())
        });
        assert!(ended.success(), "{}", program.display());
    }
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
