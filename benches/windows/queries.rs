//! The queries, each as a stream and as the batch query that a DataFusion user would write for the same answer.

use crate::workload::{SECOND, Windows};

/// One query in both forms; every answer has a count `n`.
pub(crate) struct Query {
    pub(crate) name: &'static str,
    /// Whether it runs when none is named.
    pub(crate) usual: bool,
    pub(crate) windows: Windows,
    pub(crate) streaming: &'static str,
    pub(crate) batch: &'static str,
}

const fn tumbling(microseconds: i64) -> Windows {
    Windows::Hopping(microseconds, microseconds)
}

/// `windowed!(size, keys)`: five aggregates over tumbling windows, by keys.
macro_rules! windowed {
    ($name:literal, $usual:literal, $keys:literal, $groups:literal) => {
        Query {
            name: $name,
            usual: $usual,
            windows: tumbling(10 * SECOND),
            streaming: concat!(
                "SELECT window.start AS ws, ",
                $keys,
                ", count(*) AS n, sum(price) AS s, avg(price) AS a,
                    min(price) AS least, max(price) AS most
                FROM STREAM events WATERMARK ts DELAY OF INTERVAL 1 MINUTE
                GROUP BY window(ts, '10 seconds'), ",
                $groups
            ),
            batch: concat!(
                "SELECT date_bin(INTERVAL '10 seconds', ts) AS ws, ",
                $keys,
                ", count(*) AS n,
                    sum(price) AS s, avg(price) AS a, min(price) AS least, max(price) AS most
                FROM events GROUP BY 1, ",
                $groups
            ),
        }
    };
}

/// `counted!(name, size)`: count and sum over tumbling windows, no key.
macro_rules! counted {
    ($name:literal, $usual:literal, $size:literal, $microseconds:expr) => {
        Query {
            name: $name,
            usual: $usual,
            windows: tumbling($microseconds),
            streaming: concat!(
                "SELECT window.start AS ws, count(*) AS n, sum(price) AS s
                FROM STREAM events WATERMARK ts DELAY OF INTERVAL 1 MINUTE
                GROUP BY window(ts, '",
                $size,
                "')"
            ),
            batch: concat!(
                "SELECT date_bin(INTERVAL '",
                $size,
                "', ts) AS ws, count(*) AS n, sum(price) AS s
                FROM events GROUP BY 1"
            ),
        }
    };
}

pub(crate) const QUERIES: [Query; 9] = [
    counted!("Q1", true, "10 seconds", 10 * SECOND),
    windowed!("Q2", true, "key", "key"),
    Query {
        name: "Q3",
        usual: true,
        windows: Windows::Hopping(60 * SECOND, 5 * SECOND),
        streaming: "SELECT window.start AS ws, key, count(*) AS n
            FROM STREAM events WATERMARK ts DELAY OF INTERVAL 1 MINUTE
            GROUP BY window(ts, '60 seconds', '5 seconds'), key",
        // Slices of five seconds first, each then spread over the twelve windows that hold it.
        batch: "WITH slices AS (
                SELECT date_bin(INTERVAL '5 seconds', ts) AS slice, key, count(*) AS n
                FROM events GROUP BY 1, 2),
            spread AS (
                SELECT CAST(slice AS BIGINT) AS begin, key, n,
                    unnest(range(0, 60000000, 5000000)) AS back
                FROM slices)
            SELECT begin - back AS ws, key, sum(n) AS n FROM spread GROUP BY 1, 2",
    },
    Query {
        name: "Q4",
        usual: true,
        windows: Windows::Sessions(30 * SECOND),
        streaming: "SELECT session_window.start AS ws, \"user\", count(*) AS n
            FROM STREAM events WATERMARK ts DELAY OF INTERVAL 1 MINUTE
            GROUP BY session_window(ts, '30 seconds'), \"user\"",
        // Gaps and islands.
        batch: "WITH marked AS (
                SELECT \"user\", ts, CASE WHEN ts - lag(ts) OVER (PARTITION BY \"user\" ORDER BY ts)
                    <= INTERVAL '30 seconds' THEN 0 ELSE 1 END AS fresh
                FROM events),
            numbered AS (
                SELECT \"user\", ts, sum(fresh) OVER (PARTITION BY \"user\" ORDER BY ts) AS session
                FROM marked)
            SELECT min(ts) AS ws, \"user\", count(*) AS n FROM numbered GROUP BY \"user\", session",
    },
    // Text as a key; two keys; four keys.
    windowed!("T1", false, "\"user\"", "\"user\""),
    windowed!("K2", false, "kind, key", "kind, key"),
    windowed!(
        "K4",
        false,
        "kind, key % 10 AS k10, key % 7 AS k7, key % 3 AS k3",
        "kind, key % 10, key % 7, key % 3"
    ),
    // Ten windows open at once, and a thousand.
    counted!("W10", false, "6 seconds", 6 * SECOND),
    counted!("W1000", false, "60 milliseconds", 60_000),
];
