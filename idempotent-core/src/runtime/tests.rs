//! The runtime over a store in memory whose clock stands still, and whose calls can be made to fail or to hang.

mod answers;
mod background;
mod cancellation;
mod claims;
mod crowded;
mod deferral;
mod ends;
mod faulty;
mod fencing;
mod hanging;
mod interleaved;
mod overtaken;
mod remembered;
mod renewal;
mod rotation;
mod support;
mod waiting;
