#![doc = include_str!("../README.md")]

mod access;
mod api;
mod bulk;
mod console;
mod counts;
mod decisions;
mod failure;
mod gate;
mod layout;
mod pages;
mod parts;
mod records;
mod tables;
mod visit;

pub use access::Access;
pub use console::Console;
