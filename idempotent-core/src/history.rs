//! The history of an operation: what has happened to its record, and when.

use std::fmt::{self, Write as _};

use crate::clock::Timestamp;

/// What has happened to an operation: the latest 16 entries, in the order in which the store has
/// written them.
///
/// An entry is written in the same atomic step as the change of the record that it describes. What
/// a store cannot see, [`RenewalLost`](Kind::RenewalLost), [`Fenced`](Kind::Fenced) and
/// [`Deferred`](Kind::Deferred), is added by the runtime in a separate call; if that call fails,
/// the entry is missing. Renewals, notes and replays have no entries. Times are those of the
/// store's clock.
///
/// # Encoding
/// [`encode`](Self::encode) and [`decode`](Self::decode) convert a history to the text that a store
/// keeps: for each entry a [letter](Kind::letter) and its time in milliseconds since the Unix
/// epoch, as 11 hexadecimal digits. To add an entry, a store appends 12 characters and keeps the
/// last [`MAX_CHARACTERS`](Self::MAX_CHARACTERS).
///
/// ```
/// use idempotent_core::{History, history::Kind, clock::Timestamp};
///
/// let history = History::decode("c0000000000ad0000000000f")?;
/// let last = history.entries().last();
/// assert_eq!(last.map(|entry| entry.kind), Some(Kind::Completed));
/// assert_eq!(last.map(|entry| entry.at), Some(Timestamp::from_millis(15)));
/// # Ok::<_, idempotent_core::history::HistoryError>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct History {
    /// The entries, the oldest first, each with its letter in the highest byte. Zero is no entry.
    entries: [u64; Self::MAX_ENTRIES],
}

impl History {
    /// The maximum number of entries. One more removes the oldest.
    pub const MAX_ENTRIES: usize = 16;

    /// The maximum length of the [encoded](Self::encode) text.
    pub const MAX_CHARACTERS: usize = Self::MAX_ENTRIES * ENTRY_CHARACTERS;

    /// The history without an entry.
    pub const EMPTY: Self = Self { entries: [0; Self::MAX_ENTRIES] };

    /// Returns the history with one more entry.
    #[must_use]
    pub fn with(mut self, kind: Kind, at: Timestamp) -> Self {
        let entry = u64::from(kind.letter()) << TIME_BITS | at.as_millis() & MAX_TIME;
        match self.entries.iter_mut().find(|entry| **entry == 0) {
            Some(free) => *free = entry,
            None => {
                self.entries.rotate_left(1);
                if let Some(last) = self.entries.last_mut() {
                    *last = entry;
                }
            }
        }
        self
    }

    /// Returns the entries, the oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> {
        self.entries.iter().filter_map(|entry| {
            let letter = u8::try_from(entry >> TIME_BITS).ok()?;
            let kind = Kind::of_letter(letter)?;
            Some(Entry { kind, at: Timestamp::from_millis(entry & MAX_TIME) })
        })
    }

    /// Returns the text for a store to keep.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        for Entry { kind, at } in self.entries() {
            // Writing to a string does not fail.
            let _ = write!(text, "{}{:011x}", char::from(kind.letter()), at.as_millis());
        }
        text
    }

    /// Reads the text that a store has kept. An entry with a letter that this version does not know
    /// is left out.
    ///
    /// # Errors
    /// Fails if the text is not one that [`encode`](Self::encode) writes.
    pub fn decode(text: &str) -> Result<Self, HistoryError> {
        let (entries, rest) = text.as_bytes().as_chunks::<ENTRY_CHARACTERS>();
        if !rest.is_empty() || entries.len() > Self::MAX_ENTRIES {
            return Err(HistoryError);
        }
        let mut history = Self::EMPTY;
        for [letter, digits @ ..] in entries {
            let mut at = 0;
            for digit in digits {
                let digit = char::from(*digit).to_digit(16).ok_or(HistoryError)?;
                at = at * 16 + u64::from(digit);
            }
            if let Some(kind) = Kind::of_letter(*letter) {
                history = history.with(kind, Timestamp::from_millis(at));
            } else if !letter.is_ascii_lowercase() {
                return Err(HistoryError);
            }
        }
        Ok(history)
    }
}

/// The length of an encoded entry.
const ENTRY_CHARACTERS: usize = 12;
/// The bits of an entry's time, which reach to the year 2527.
const TIME_BITS: u32 = 44;
const MAX_TIME: u64 = (1 << TIME_BITS) - 1;

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

/// One entry of a [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// What has happened.
    pub kind: Kind,
    /// When it happened, by the store's clock.
    pub at: Timestamp,
}

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident = $letter:literal,)+) => {
        /// What has happened to an operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])+ $kind,)+
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Returns the letter of this kind in an encoded history.
            #[must_use]
            pub const fn letter(self) -> u8 {
                match self {
                    $(Self::$kind => $letter,)+
                }
            }

            const fn of_letter(letter: u8) -> Option<Self> {
                match letter {
                    $($letter => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// The first attempt claimed the key.
    Claimed = b'c',
    /// The lease of the previous attempt had expired, and the next attempt claimed the key.
    TakenOver = b't',
    /// The attempt ended without an outcome, and the next request may run the operation again.
    Abandoned = b'a',
    /// The outcome became unknown: the key is held until its attempt completes after all, or an
    /// operator resolves it.
    Held = b'h',
    /// The attempt completed the operation.
    Completed = b'd',
    /// An operator completed the operation.
    Resolved = b'r',
    /// A running attempt could not renew its lease, because it no longer owned the key.
    RenewalLost = b'l',
    /// An attempt that no longer owned the key tried to complete, release or abandon it, which
    /// changed nothing.
    Fenced = b'f',
    /// The end of the attempt reached the store late, because an earlier call had failed.
    Deferred = b's',
}

/// The error of a text that is not an encoded [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the history of a record cannot be read")]
pub struct HistoryError;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_history_is_encoded_and_decoded() {
        let mut history = History::EMPTY;
        let mut text = String::new();
        for (kind, millis) in Kind::ALL.iter().zip(1_764_189_264_000..) {
            history = history.with(*kind, at(millis));
            text += &format!("{}{millis:011x}", char::from(kind.letter()));
            assert_eq!(history.encode(), text);
            assert_eq!(History::decode(&text), Ok(history));
        }
        let entries: Vec<_> = history.entries().map(|entry| entry.kind).collect();
        assert_eq!(entries, Kind::ALL);
    }

    #[test]
    fn the_latest_entries_stay() {
        let history =
            (0..40).fold(History::EMPTY, |history, millis| history.with(Kind::Held, at(millis)));
        let times: Vec<_> = history.entries().map(|entry| entry.at.as_millis()).collect();
        assert_eq!(times, (24..40).collect::<Vec<_>>());
        assert_eq!(history.encode().len(), History::MAX_CHARACTERS);
    }

    #[test]
    fn a_text_is_a_history_or_an_error() {
        assert_eq!(History::decode(""), Ok(History::EMPTY));
        // A kind of a later version.
        let known = History::EMPTY.with(Kind::Claimed, at(1));
        assert_eq!(History::decode("c00000000001z00000000002"), Ok(known));
        for wrong in ["c", "c0000000000", "C00000000001", "c0000000000g", "c+0000000001"] {
            assert_eq!(History::decode(wrong), Err(HistoryError), "{wrong}");
        }
        assert_eq!(History::decode(&"c00000000001".repeat(17)), Err(HistoryError));
    }

    #[test]
    fn every_kind_has_its_own_letter() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_letter(kind.letter()), Some(*kind));
        }
    }
}
