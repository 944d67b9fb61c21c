//! What is known not to hold yet: the one place where a fault is left out, each with its reason.

/// A fault that a statement may run into.
struct Known {
    /// Whether statements of this text may run into it.
    applies: fn(&str) -> bool,
    /// What the problem's text has in it.
    problem: &'static str,
    /// Why it is left out.
    #[expect(dead_code, reason = "it is for the reader")]
    why: &'static str,
}

/// Errors that a statement should not give.
const ERRORS: [Known; 2] = [
    Known {
        applies: |_| true,
        problem: "failed to match any signature",
        why: "DataFusion's own words for arguments of a wrong type",
    },
    Known {
        applies: |text| text.contains("SELECT"),
        problem: "index out of bounds: the len is 0 but the index is 0",
        why: "DataFusion reads the column of a scalar subquery that has none",
    },
];

/// Whether this error is known.
pub(super) fn known_error(text: &str, problem: &str) -> bool {
    ERRORS
        .iter()
        .any(|fault| (fault.applies)(text) && problem.contains(fault.problem))
}
