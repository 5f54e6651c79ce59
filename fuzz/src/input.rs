//! Takes an input apart.

/// The rest of an input. Past its end, everything is zero or empty.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// A part that is preceded by its length in one byte.
    pub(crate) fn part(&mut self) -> &'a [u8] {
        let length = self.byte();
        self.take(length.into())
    }

    /// Text that is preceded by its length in one byte.
    pub(crate) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.part()).into_owned()
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
