//! The cases, by what they are about.

pub(super) mod claiming;
pub(super) mod completing;
pub(super) mod expiring;
pub(super) mod fencing;
pub(super) mod holding;
pub(super) mod racing;
pub(super) mod renewing;
pub(super) mod setting_back;
pub(super) mod transacting;
