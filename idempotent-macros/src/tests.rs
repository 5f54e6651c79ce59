//! Snapshots in `golden/`: the expansions of correct handlers, and every message for incorrect
//! ones.

mod documentation;
mod expansions;
mod messages;
