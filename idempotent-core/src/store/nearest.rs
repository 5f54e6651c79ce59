//! The known word closest to a misspelled one.

/// The candidate closest to `word`, if it is at most two edits away.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|&(distance, candidate)| {
            distance <= 2 && distance < candidate.len().min(word.len())
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance, without regard to case.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, from) in from.chars().enumerate() {
        let mut left = line + 1;
        let mut next = vec![left];
        for (to, pair) in to.chars().zip(row.windows(2)) {
            let &[diagonal, above] = pair else { continue };
            let replaced = diagonal + usize::from(!from.eq_ignore_ascii_case(&to));
            left = replaced.min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_misspelled_word_is_matched_to_the_nearest_known_word() {
        let keys = ["scope", "ttl", "lease", "key"];
        for (word, meant) in [
            ("scop", Some("scope")),
            ("tll", Some("ttl")),
            ("TTL", Some("ttl")),
            ("leases", Some("lease")),
            ("keys", Some("key")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, keys), meant, "{word}");
        }
    }
}
