//! The name that a misspelled one was probably meant to be.

/// The most edits between a misspelled name and the suggested one.
const MAX_EDITS: usize = 2;

/// Returns the known name that a name is most likely a misspelling of.
pub(crate) fn suggestion<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name: Vec<char> = name.chars().collect();
    let edits = known.iter().map(|known| {
        let chars: Vec<char> = known.chars().collect();
        // Most letters of a short name must be right.
        let most = MAX_EDITS.min(chars.len() / 3);
        let is_close = name.len().abs_diff(chars.len()) <= most;
        let edits = is_close.then(|| edits_between(&name, &chars));
        (edits.filter(|edits| *edits <= most), *known)
    });
    let close = edits.filter_map(|(edits, known)| Some((edits?, known)));
    close
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, known)| known)
}

/// Returns how many letters must be inserted, removed, replaced or swapped with their
/// neighbour to turn one name into the other.
fn edits_between(one: &[char], other: &[char]) -> usize {
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    rows[0] = (0..=other.len()).collect();
    for i in 1..=one.len() {
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut edits = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            let is_swap =
                i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if is_swap {
                edits = edits.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = edits;
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_is_recognized() {
        let known = [
            "id",
            "key",
            "match",
            "scope",
            "bands",
            "attributes",
            "algorithm",
        ];
        for (name, expected) in [
            ("atributes", Some("attributes")),
            ("attribute", Some("attributes")),
            ("attrbiutes", Some("attributes")),
            ("Attributes", Some("attributes")),
            ("algoritm", Some("algorithm")),
            ("macth", Some("match")),
            ("band", Some("bands")),
            ("keys", Some("key")),
            ("kex", Some("key")),
            ("ib", None),
            ("limits", None),
            ("", None),
            (&*"a".repeat(1000), None),
        ] {
            assert_eq!(suggestion(name, &known), expected, "{name}");
        }
    }
}
