//! The annotated function: its parameters, its attributes and its routes.

pub(crate) mod attributes;
pub(crate) mod handler;
pub(crate) mod route;
