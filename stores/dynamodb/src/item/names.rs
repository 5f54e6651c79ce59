//! The names of the attributes. An item is billed by their lengths too.

/// The key of the item, binary.
pub(crate) const ID: &str = "id";
pub(crate) const VERSION: &str = "v";
/// The value of the version.
pub(crate) const FIRST_VERSION: &str = "1";
pub(crate) const OWNER: &str = "o";
/// 1 in flight, 2 completed, 3 held.
pub(crate) const STATE: &str = "st";
pub(crate) const FINGERPRINT: &str = "fp";
/// 1 if the key is held when the attempt is abandoned.
pub(crate) const HOLD: &str = "hold";
pub(crate) const ATTEMPT: &str = "att";
pub(crate) const LEASE: &str = "lease";
pub(crate) const UNTIL: &str = "until";
pub(crate) const FIRST_SEEN: &str = "first_seen";
pub(crate) const EXPIRES: &str = "exp";
/// When the table removes the record once it can go, in seconds.
pub(crate) const DUE: &str = "due";
/// The attribute of the table's time to live, in seconds. Absent while the record must stay.
pub(crate) const GONE: &str = "gone";
pub(crate) const RECORDING: &str = "rec";
pub(crate) const COMPLETED: &str = "done";
pub(crate) const STATUS: &str = "code";
pub(crate) const OPERATION: &str = "op";
pub(crate) const PRINCIPAL: &str = "pr";
pub(crate) const REFERENCE: &str = "refr";
pub(crate) const PROGRESS: &str = "prog";
pub(crate) const STEPS: &str = "steps";
pub(crate) const INPUT: &str = "inp";
pub(crate) const HISTORY: &str = "hist";
/// The partition key of the index, which has the same name: present while the record is watched.
pub(crate) const WATCHED: &str = "held";
/// Another value after every write.
pub(crate) const TAG: &str = "tag";
/// The last note.
pub(crate) const NOTED: &str = "noted";

/// The bytes of an item that a record refers to.
pub(crate) const BYTES: &str = "b";

/// An entry of the log.
pub(crate) const ACTION: &str = "act";
pub(crate) const ABOUT: &str = "about";
pub(crate) const BEFORE: &str = "before";
pub(crate) const AFTER: &str = "after";
pub(crate) const ACTOR: &str = "who";
pub(crate) const REASON: &str = "why";

/// The attributes of a record that lists show.
pub(crate) const LISTED: &[&str] = &[
    ID,
    VERSION,
    OWNER,
    STATE,
    FINGERPRINT,
    HOLD,
    ATTEMPT,
    LEASE,
    UNTIL,
    FIRST_SEEN,
    EXPIRES,
    COMPLETED,
    STATUS,
    OPERATION,
    PRINCIPAL,
    REFERENCE,
    PROGRESS,
    HISTORY,
    WATCHED,
    TAG,
    NOTED,
];
