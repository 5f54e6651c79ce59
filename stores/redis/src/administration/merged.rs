//! Merging the beginnings of several ordered lists.

/// The beginning of a list: its entries with their places, and whether it may have more.
pub(super) struct Beginning<P, T> {
    pub(super) entries: Vec<(P, T)>,
    pub(super) has_more: bool,
}

/// Merges lists in the order of the places, up to the place to which each of them is known.
pub(super) fn merged<P: Ord + Copy, T>(lists: Vec<Beginning<P, T>>) -> Beginning<P, T> {
    let ends = lists.iter().filter(|list| list.has_more);
    let end = ends.filter_map(|list| list.entries.last().map(|(place, _)| *place)).min();
    let mut entries: Vec<_> = lists.into_iter().flat_map(|list| list.entries).collect();
    entries.retain(|(place, _)| end.is_none_or(|end| *place <= end));
    entries.sort_unstable_by_key(|(place, _)| *place);
    Beginning { entries, has_more: end.is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_merged_as_far_as_all_are_known() {
        let list = |places: &[u8], has_more| Beginning {
            entries: places.iter().map(|place| (*place, ())).collect(),
            has_more,
        };
        for (lists, expected, has_more) in [
            (vec![], &[][..], false),
            (vec![list(&[1, 4], false), list(&[2], false), list(&[], false)], &[1, 2, 4], false),
            (vec![list(&[1, 4], true), list(&[2, 5], false)], &[1, 2, 4], true),
            (vec![list(&[3, 4], true), list(&[1, 2], true)], &[1, 2], true),
        ] {
            let merged = merged(lists);
            let places: Vec<_> = merged.entries.into_iter().map(|(place, ())| place).collect();
            assert_eq!((places.as_slice(), merged.has_more), (expected, has_more));
        }
    }
}
