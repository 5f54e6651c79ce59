//! Compiles every documented signature of scope and fingerprint functions, in the editions 2021 and
//! 2024.

#[doc = concat!("```edition2021\n", include_str!("all.rs"), "\n```")]
mod edition_2021 {}

#[doc = concat!("```edition2024\n", include_str!("all.rs"), "\n```")]
mod edition_2024 {}
