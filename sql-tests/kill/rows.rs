//! Rows as sorted lines of CSV, compared as multisets.

/// The lines of `left` that `right` does not hold as often, each as many times as it is missing. Both are sorted.
///
/// `[a, a, b, c]` against `[a, c, d]` gives `[a, b]`.
pub(crate) fn missing(left: &[String], right: &[String]) -> Vec<String> {
    let mut right = right.iter().peekable();
    let mut missing = Vec::new();
    for line in left {
        while right.next_if(|other| *other < line).is_some() {}
        if right.next_if(|other| *other == line).is_none() {
            missing.push(line.clone());
        }
    }
    missing
}

/// Ends the test when there are such rows, and shows the first of them.
#[track_caller]
pub(crate) fn none(what: &str, table: &str, rows: &[String]) {
    const SHOWN: usize = 40;
    assert!(
        rows.is_empty(),
        "{table}: {} rows {what}:\n{}\n{}",
        rows.len(),
        rows.iter()
            .take(SHOWN)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n"),
        if rows.len() > SHOWN { "…" } else { "" }
    );
}

#[cfg(test)]
mod tests {
    use super::missing;

    fn lines(text: &str) -> Vec<String> {
        text.chars().map(String::from).collect()
    }

    #[test]
    fn a_line_is_missing_as_often_as_it_is_short() {
        for (left, right, expected) in [
            ("", "", ""),
            ("aab", "aab", ""),
            ("aabc", "acd", "ab"),
            ("abc", "", "abc"),
            ("", "abc", ""),
            ("bbb", "abbc", "b"),
            ("cd", "ab", "cd"),
        ] {
            let found = missing(&lines(left), &lines(right));
            assert_eq!(found, lines(expected), "{left} against {right}");
        }
    }
}
