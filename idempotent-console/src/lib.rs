#![doc = include_str!("../README.md")]

mod access;
mod api;
mod bulk;
mod console;
mod counts;
mod decisions;
mod failure;
mod gate;
mod pages;
mod records;

pub use access::Access;
pub use console::Console;
