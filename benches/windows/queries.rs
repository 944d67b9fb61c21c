//! The queries, each as a stream and as the batch query that a DataFusion user would write for the same answer.

/// One query in both forms; every answer has a count `n`.
pub(crate) struct Query {
    pub(crate) name: &'static str,
    /// Seconds.
    pub(crate) size: i64,
    /// Seconds; divides the size.
    pub(crate) slide: i64,
    pub(crate) streaming: &'static str,
    pub(crate) batch: &'static str,
}

pub(crate) const QUERIES: [Query; 3] = [
    Query {
        name: "Q1",
        size: 10,
        slide: 10,
        streaming: "SELECT window.start AS ws, count(*) AS n, sum(price) AS s
            FROM STREAM events WATERMARK ts DELAY OF INTERVAL 1 MINUTE
            GROUP BY window(ts, '10 seconds')",
        batch: "SELECT date_bin(INTERVAL '10 seconds', ts) AS ws, count(*) AS n, sum(price) AS s
            FROM events GROUP BY 1",
    },
    Query {
        name: "Q2",
        size: 10,
        slide: 10,
        streaming:
            "SELECT window.start AS ws, key, count(*) AS n, sum(price) AS s, avg(price) AS a,
                min(price) AS least, max(price) AS most
            FROM STREAM events WATERMARK ts DELAY OF INTERVAL 1 MINUTE
            GROUP BY window(ts, '10 seconds'), key",
        batch:
            "SELECT date_bin(INTERVAL '10 seconds', ts) AS ws, key, count(*) AS n, sum(price) AS s,
                avg(price) AS a, min(price) AS least, max(price) AS most
            FROM events GROUP BY 1, 2",
    },
    Query {
        name: "Q3",
        size: 60,
        slide: 5,
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
];

/// Statements before the epochs of one row.
pub(crate) const ONE_ROW: [&str; 2] = [
    "CREATE TABLE ticks (ts TIMESTAMP(6), v BIGINT)",
    "CREATE STREAMING TABLE per_second WITH (max_rows_per_epoch = 1) AS
        SELECT window.start AS ws, count(*) AS n, sum(v) AS s
        FROM STREAM ticks WATERMARK ts DELAY OF INTERVAL '1 second'
        GROUP BY window(ts, '1 second')",
];
