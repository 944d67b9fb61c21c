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

/// Answers of a stream that are not those of the batch query.
const UNEQUAL: [Known; 2] = [
    Known {
        applies: |text| text.contains("window("),
        problem: "Optimizer rule 'push_down_leaf_projections' failed",
        why: "a batch query over hopping windows of which a window and its bound are selected below an aggregate",
    },
    Known {
        applies: |text| nanoseconds(text) && levels(text) > 2,
        problem: "rows of the stream and of the batch query",
        why: "in nanoseconds a window of windows closes 999 ns after its end, but a group by its column at its end",
    },
];

/// Errors that a statement should not give.
const ERRORS: [Known; 6] = [
    Known {
        applies: |_| true,
        problem: "failed to match any signature",
        why: "DataFusion's own words for arguments of a wrong type",
    },
    Known {
        applies: |text| text.contains("LIMIT"),
        problem: "a streaming operator runs only in an epoch",
        why: "a LIMIT below a WATERMARK clause or DISTINCT ON, which should be refused by name",
    },
    Known {
        applies: |text| text.contains("OFFSET"),
        problem: "a streaming operator runs only in an epoch",
        why: "the same of OFFSET",
    },
    Known {
        applies: |text| text.contains("DISTINCT ON"),
        problem: "row index out of bounds",
        why: "DISTINCT ON over a stream that selects no column",
    },
    Known {
        applies: |text| text.contains("PREPARE"),
        problem: "called `Option::unwrap()` on a `None` value",
        why: "DataFusion's optimizer has no functions when it prepares a DISTINCT ON",
    },
    Known {
        applies: |text| text.contains("SELECT"),
        problem: "index out of bounds: the len is 0 but the index is 0",
        why: "DataFusion reads the column of a scalar subquery that has none",
    },
];

/// Whether this difference between a stream and the batch query is known.
pub(super) fn unequal(text: &str, problem: &str) -> bool {
    has(&UNEQUAL, text, problem)
}

/// Whether this error is known.
pub(super) fn known_error(text: &str, problem: &str) -> bool {
    has(&ERRORS, text, problem)
}

fn has(known: &[Known], text: &str, problem: &str) -> bool {
    known
        .iter()
        .any(|fault| (fault.applies)(text) && problem.contains(fault.problem))
}

/// Whether event times are in nanoseconds.
fn nanoseconds(text: &str) -> bool {
    ["(ts TIMESTAMP,", "(ts TIMESTAMP WITH TIME ZONE,"]
        .iter()
        .any(|columns| text.contains(columns))
}

/// Aggregates in the text of a query and its views.
fn levels(text: &str) -> usize {
    text.matches("GROUP BY").count() + text.matches("SELECT DISTINCT").count()
}
