//! The conditions of all writes, each part of which a test must miss.

/// A part of a condition. `#name` is the attribute `name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

macro_rules! guards {
    ($($(#[$doc:meta])* $guard:ident = $text:literal,)+) => {
        $($(#[$doc])* pub(crate) const $guard: Guard =
            Guard { name: stringify!($guard), text: $text };)+

        /// All parts of conditions.
        #[cfg(feature = "internals")]
        pub(crate) const GUARDS: &[Guard] = &[$($guard,)+];
    };
}

guards! {
    /// A new key: nobody has claimed it.
    CLAIM_NEW = "attribute_not_exists(#id)",
    /// The record is the one that the step was decided for: every write gives it another tag.
    DECIDED_UNCHANGED = "#tag = :seen",
    /// The same, for the removal of a record.
    REMOVED_UNCHANGED = "#tag = :seen",
    RENEW_OWNER = "#o = :o",
    RENEW_IN_FLIGHT = "#st = :in_flight",
    /// The table does not remove the record before the renewed lease has ended.
    RENEW_STAYS = "(attribute_not_exists(#gone) OR #gone > :soon)",
    NOTE_OWNER = "#o = :o",
    NOTE_IN_FLIGHT = "#st = :in_flight",
    /// The same note was not added before, by a call whose response was lost.
    NOTE_ONCE = "#noted <> :noted",
    COMPLETE_OWNER = "#o = :o",
    COMPLETE_OPEN = "(#st = :in_flight OR #st = :held)",
    /// Another ttl begins otherwise.
    COMPLETE_IN_TIME = "#exp > :now",
    RELEASE_OWNER = "#o = :o",
    RELEASE_IN_FLIGHT = "#st = :in_flight",
    ABANDON_OWNER = "#o = :o",
    ABANDON_IN_FLIGHT = "#st = :in_flight",
    /// A key that must be held does not become free.
    ABANDON_RETRY = "#hold = :retry",
    /// The attempt was not abandoned before, by a call whose response was lost.
    ABANDON_ONCE = "#tag <> :tag",
    HOLD_OWNER = "#o = :o",
    HOLD_IN_FLIGHT = "#st = :in_flight",
    /// An update would create the item.
    APPEND_EXISTS = "attribute_exists(#id)",
    /// The same entry was not appended before, by a call whose response was lost.
    APPEND_ONCE = "#tag <> :tag",
    APPEND_ROOM = "size(#hist) < :room",
}
