//! How many steps the batches of a store have.

/// How many batches of each size a store has executed so far, in which it takes steps of different
/// requests together. Returned by [`Store::batches`](super::Store::batches).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSizes {
    /// The number of batches with one step, with two, and so on.
    batches: Vec<u64>,
}

impl BatchSizes {
    /// Counts a batch with this many steps. An empty one is not counted.
    pub fn count(&mut self, steps: usize) {
        self.add(steps, 1);
    }

    fn add(&mut self, steps: usize, batches: u64) {
        let Some(index) = steps.checked_sub(1) else { return };
        if self.batches.len() < steps {
            self.batches.resize(steps, 0);
        }
        if let Some(counted) = self.batches.get_mut(index) {
            *counted = counted.saturating_add(batches);
        }
    }

    /// Returns the counts of both.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        other.iter().for_each(|(steps, batches)| self.add(steps, batches));
        self
    }

    /// Returns the sizes that occurred, the smallest first, each with the number of its batches.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let sizes = self.batches.iter().enumerate();
        sizes.filter(|(_, batches)| **batches > 0).map(|(index, batches)| (index + 1, *batches))
    }

    /// Returns what was counted since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut later = self.clone();
        for (counted, before) in later.batches.iter_mut().zip(&earlier.batches) {
            *counted = counted.saturating_sub(*before);
        }
        later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of: &[usize]) -> BatchSizes {
        let mut sizes = BatchSizes::default();
        of.iter().for_each(|steps| sizes.count(*steps));
        sizes
    }

    fn counted(sizes: &BatchSizes) -> Vec<(usize, u64)> {
        sizes.iter().collect()
    }

    #[test]
    fn batches_are_counted_by_size() {
        let all = sizes(&[3, 1, 0, 3]);
        assert_eq!(counted(&all), [(1, 1), (3, 2)]);
        assert_eq!(counted(&all.clone().and(&sizes(&[64, 3]))), [(1, 1), (3, 3), (64, 1)]);
        assert_eq!(counted(&sizes(&[1, 3, 3, 5]).since(&all)), [(5, 1)]);
        assert_eq!(counted(&all.since(&all)), []);
    }
}
