//! `TRYBUILD=overwrite cargo test -p ui-tests` writes the snapshots anew.

#[test]
fn what_the_design_promises_to_keep_working_compiles() {
    trybuild::TestCases::new().pass("cases/pass/*.rs");
}

#[test]
fn mistakes_get_our_message_on_any_compiler() {
    trybuild::TestCases::new().compile_fail("cases/fail/*/*.rs");
}

/// The words are rustc's and change with it; the place is ours, and is what the snapshots hold.
#[rustversion::attr(not(stable(1.95)), ignore = "snapshots of rustc 1.95's own words")]
#[test]
fn mistakes_that_rustc_finds_are_reported_at_the_users_tokens() {
    trybuild::TestCases::new().compile_fail("cases/rustc/*.rs");
}
