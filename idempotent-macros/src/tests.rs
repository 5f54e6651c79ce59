//! Snapshots in `golden/`: what correct handlers expand to, and every message for the others.

mod expansions;
mod messages;
