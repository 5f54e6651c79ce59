//! Every signature that the documentation names for scope and fingerprint functions, compiled in
//! both editions that users write.

#[doc = concat!("```edition2021\n", include_str!("all.rs"), "\n```")]
mod edition_2021 {}

#[doc = concat!("```edition2024\n", include_str!("all.rs"), "\n```")]
mod edition_2024 {}
