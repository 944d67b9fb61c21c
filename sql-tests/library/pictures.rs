//! Pictures of streaming tables: what is drawn of which query, and the files that are written.
//!
//! | test | catches |
//! |---|---|
//! | golden | a picture that changes, at 80 and at 160 columns |
//! | counts | rows that are judged otherwise than the query judged them, by kind of window |
//! | files | a picture that is written when it is only planned, or half |
//! | sources | a picture that fails, or is silent, where rows cannot be read again |

use std::path::Path;

use tidegate::picture::{Depth, Picture, Rows, View};
use tidegate::prelude::*;
use tidegate::time::Instant;

use super::show;

const FLIGHTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/sql-tests/data/nyc_january.parquet"
);

/// Where the golden pictures are.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sql-tests/pictures");

/// Departures of January by hour, in the order of landing, with a delay of four hours.
async fn january() -> StreamContext {
    let ctx = StreamContext::new().unwrap();
    run(
        &ctx,
        &format!("CREATE EXTERNAL TABLE flights STORED AS PARQUET LOCATION '{FLIGHTS}'"),
    )
    .await;
    run(
        &ctx,
        "CREATE STREAMING TABLE hourly WITH (epoch_by = 'batch') AS
        SELECT window.start AS hour, origin, count(*) AS flights
        FROM STREAM flights WATERMARK dep_ts DELAY OF INTERVAL 4 HOURS
        GROUP BY window(dep_ts, '1 hour'), origin",
    )
    .await;
    ctx.refresh("hourly").await.unwrap();
    ctx
}

/// A query over the hours of a table `t`.
const HOURLY: &str = "CREATE STREAMING TABLE q AS SELECT window.start AS s, count(*) AS n
    FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 HOUR GROUP BY window(ts, '1 hour')";

async fn run(ctx: &StreamContext, sql: &str) {
    ctx.sql(sql).await.unwrap().collect().await.unwrap();
}

fn all() -> View {
    View::Epochs { from: 0, to: None }
}

#[track_caller]
fn points(picture: &Picture) -> usize {
    match &picture.rows {
        Rows::Sampled { points, .. } => points.len(),
        Rows::Bands { because } => panic!("{because}"),
    }
}

/// The picture of a query over a table `t (ts, k)` after some INSERTs, each with a REFRESH.
async fn picture(query: &str, inserts: &[&str]) -> Picture {
    let ctx = StreamContext::new().unwrap();
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, k BIGINT)").await;
    run(&ctx, &format!("CREATE STREAMING TABLE q AS {query}")).await;
    for insert in inserts {
        run(&ctx, &format!("INSERT INTO t VALUES {insert}")).await;
        ctx.refresh("q").await.unwrap();
    }
    ctx.picture("q", all()).await.unwrap()
}

/// TIDEGATE_GOLDEN=write cargo test --test library golden writes the pictures anew.
#[tokio::test(flavor = "multi_thread")]
async fn the_golden_pictures_of_january() {
    let ctx = january().await;
    let last = ctx
        .picture("hourly", View::Last(Depth::Text))
        .await
        .unwrap();
    let early = View::Epochs {
        from: 40,
        to: Some(90),
    };
    let early = ctx.picture("hourly", early).await.unwrap();
    let writes = std::env::var_os("TIDEGATE_GOLDEN").is_some_and(|value| value == "write");
    let pictures = [
        ("last_80", &last, 80),
        ("last_160", &last, 160),
        ("early_80", &early, 80),
        ("early_40", &early, 40),
    ];
    for (name, picture, width) in pictures {
        let file = Path::new(GOLDEN).join(format!("{name}.txt"));
        let text = picture.to_text(width, false);
        if writes {
            std::fs::write(&file, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, golden, "{}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_late_row_of_january_is_found_again() {
    let ctx = january().await;
    let picture = ctx.picture("hourly", all()).await.unwrap();
    let counted: u64 = ctx
        .progress("hourly")
        .unwrap()
        .iter()
        .map(|epoch| epoch.late_rows)
        .sum();
    assert!(counted > 100);
    assert_eq!(
        (picture.late.found, picture.late.counted),
        (counted, counted)
    );
    assert!((1_500..2_500).contains(&points(&picture)));
    let last = ctx.progress("hourly").unwrap().pop().unwrap();
    let fills: u64 = picture.open.fills.iter().map(|fill| fill.rows).sum();
    assert_eq!(
        (fills, picture.open.fills.len() as u64),
        (last.open_rows, last.open_windows)
    );
    let windows: u64 = picture.windows.iter().map(|window| window.late).sum();
    let drawn = picture.windows.len() as u64;
    assert!(windows <= counted && drawn <= 600);
}

#[tokio::test]
async fn rows_are_judged_as_the_query_judged_them() {
    let inserts = [
        "('2026-10-01T09:05:00', 1), ('2026-10-01T12:30:00', 2), (NULL, 3)",
        "('2026-10-01T09:06:00', 1), ('2026-10-01T12:31:00', 2), ('2026-10-01T11:45:00', 0)",
        "('2026-10-01T09:05:00', 1), ('2026-10-01T15:00:00', 2)",
    ];
    let from = "FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 HOUR";
    for (query, late) in [
        (
            format!("SELECT window.start AS s, count(*) AS n {from} GROUP BY window(ts, '1 hour')"),
            2,
        ),
        (
            format!(
                "SELECT window.start AS s, count(*) AS n {from} GROUP BY window(ts, '1 hour', '20 minutes')"
            ),
            2,
        ),
        (
            format!(
                "SELECT session_window.start AS s, k, count(*) AS n {from} GROUP BY session_window(ts, '5 minutes'), k"
            ),
            2,
        ),
        (
            format!(
                "SELECT date_trunc('hour', ts) AS s, count(*) AS n {from} GROUP BY date_trunc('hour', ts)"
            ),
            2,
        ),
        (format!("SELECT ts, count(*) AS n {from} GROUP BY ts"), 2),
        (format!("SELECT DISTINCT ON (k, ts) k, ts {from}"), 2),
        (
            format!(
                "SELECT window.start AS s, count(*) AS n {from} WHERE k > 1 GROUP BY window(ts, '1 hour')"
            ),
            0,
        ),
        (
            "SELECT window.start AS s, count(*) AS n
          FROM (SELECT ts AS u, k AS j FROM STREAM t) WATERMARK u DELAY OF INTERVAL 1 HOUR AS x
          WHERE j >= 0 GROUP BY window(u, '1 hour')"
                .to_owned(),
            2,
        ),
    ] {
        let picture = picture(&query, &inserts).await;
        assert_eq!(
            (picture.late.counted, picture.late.found),
            (late, late),
            "{query}"
        );
        assert_eq!(points(&picture), 7, "{query}");
        let fills = picture.open.fills.len() as u64;
        let are_windows = ["window(", "date_trunc"]
            .iter()
            .any(|word| query.contains(word));
        let open = if are_windows { picture.open.windows } else { 0 };
        assert_eq!(fills, open, "{query}");
        assert!(picture.to_svg().unwrap().ends_with("</svg>\n"), "{query}");
    }
}

/// Minutes from 09:00 to the begin and the end of each window, epochs from its first row until it closed, rows.
fn drawn(picture: &Picture) -> Vec<(i64, i64, f64, Option<f64>, u64)> {
    let minutes = |instant: Instant| {
        let begin = 1_790_845_200_i128 * 1_000_000_000;
        i64::try_from((instant.nanos() - begin) / 60_000_000_000).unwrap()
    };
    let windows = picture.windows.iter();
    let windows = windows.map(|one| {
        let (begin, end) = (minutes(one.begin), minutes(one.end));
        (begin, end, one.from, one.to, one.rows)
    });
    windows.collect()
}

#[tokio::test]
async fn sessions_are_drawn_as_the_query_made_them() {
    let query = "SELECT session_window.start AS s, k, count(*) AS n FROM STREAM t WATERMARK ts DELAY OF INTERVAL 10 MINUTES
        GROUP BY session_window(ts, '5 minutes'), k";
    let picture = picture(
        query,
        &[
            "('2026-10-01T09:00:00', 1), ('2026-10-01T09:04:00', 1), ('2026-10-01T09:02:00', 2), ('2026-10-01T09:30:00', 1)",
            // The first is late, though it would touch; the second joins the open session of its key.
            "('2026-10-01T09:08:00', 1), ('2026-10-01T09:34:00', 1), ('2026-10-01T09:50:00', 2)",
            "('2026-10-01T09:53:00', 2), ('2026-10-01T09:54:00', 1)",
        ],
    )
    .await;
    assert_eq!((picture.late.counted, picture.late.found), (1, 1));
    assert_eq!(
        drawn(&picture),
        [
            (0, 9, 0.125, Some(1.0), 2),
            (2, 7, 0.625, Some(1.0), 1),
            (30, 39, 0.875, Some(2.0), 2),
            (50, 58, 1.0 + 2.5 / 3.0, None, 2),
            (54, 59, 2.75, None, 1),
        ]
    );
    let fills: Vec<u64> = picture.open.fills.iter().map(|fill| fill.rows).collect();
    assert_eq!((fills, picture.open.windows), (vec![2, 1], 2));
    assert!(
        picture
            .to_text(80, false)
            .contains("2 open windows with 3 rows")
    );
}

#[tokio::test]
async fn a_late_row_says_what_it_missed() {
    let query = "SELECT window.start AS s, count(*) AS n FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 HOUR
        GROUP BY window(ts, '1 hour')";
    let picture = picture(
        query,
        &["('2026-10-01T12:30:00', 1)", "('2026-10-01T09:06:00', 1)"],
    )
    .await;
    let page = picture.to_html().unwrap();
    assert!(page.contains(
        "<title>event time 2026-10-01 09:06, arrived in epoch 1: its window 2026-10-01 09:00–10:00 was closed, \
         the watermark was 2026-10-01 11:30, 1 h 30 min behind its end</title>"
    ));
    let text = picture.to_text(80, false);
    assert!(text.contains("windows of 1 hour, delay 1 hour · 2 rows"));
    assert!(text.contains("1 late row, missed by up to 1 h 30 min"));
}

#[tokio::test]
async fn what_has_no_rows_has_a_picture() {
    let query = "SELECT ts, k FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 HOUR";
    let never = picture(query, &[]).await;
    assert!(never.to_text(80, false).starts_with("q  no epoch\n"));
    let nulls = picture(query, &["(NULL, 1)"]).await;
    assert!(nulls.to_text(80, false).contains("its only epoch"));
    let far = picture(
        query,
        &["('1900-01-01T00:00:00', 1)", "('2262-01-01T00:00:00', 1)"],
    )
    .await;
    assert_eq!(points(&far), 2);
    assert!(far.to_text(80, false).contains("2000"));
    let without = picture(
        "SELECT ts, k FROM STREAM t",
        &["('1900-01-01T00:00:00', 1)"],
    )
    .await;
    without.to_html().unwrap();
}

#[tokio::test]
async fn a_file_is_written_when_its_row_is_read_and_replaces_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.svg");
    let ctx = StreamContext::new().unwrap();
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, k BIGINT)").await;
    run(&ctx, HOURLY).await;
    run(&ctx, "INSERT INTO t VALUES ('2026-10-01T09:05:00', 1)").await;
    ctx.refresh("q").await.unwrap();
    let sql = format!(
        "SELECT epochs, rows, late_rows, open_windows FROM plot('q', '{}')",
        path.display()
    );
    run(&ctx, &format!("EXPLAIN {sql}")).await;
    let planned = ctx.sql(&sql).await.unwrap();
    planned.clone().create_physical_plan().await.unwrap();
    assert!(!path.exists());
    std::fs::write(&path, "before").unwrap();
    assert!(
        show(&ctx, &sql)
            .await
            .contains("| 1      | 1    | 0         | 1            |")
    );
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
}

#[tokio::test]
async fn files_that_have_gone_leave_bands_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.csv");
    std::fs::write(
        &file,
        "ts,k\n2026-10-01T09:05:00,1\n2026-10-01T12:05:00,1\n",
    )
    .unwrap();
    let ctx = StreamContext::new().unwrap();
    run(&ctx, &format!("CREATE EXTERNAL TABLE t (ts TIMESTAMP, k BIGINT) STORED AS CSV LOCATION '{}/' OPTIONS ('format.has_header' 'true')", dir.path().display())).await;
    run(&ctx, HOURLY).await;
    ctx.refresh("q").await.unwrap();
    assert_eq!(points(&ctx.picture("q", all()).await.unwrap()), 2);
    std::fs::remove_file(&file).unwrap();
    let picture = ctx.picture("q", all()).await.unwrap();
    assert!(matches!(picture.rows, Rows::Bands { .. }));
    let text = picture.to_text(80, false);
    assert!(
        text.contains("Rows are not drawn: t has fewer rows than were read before."),
        "{text}"
    );
    assert!(picture.to_svg().unwrap().contains("class=\"band\""));
}

#[tokio::test]
async fn a_database_that_was_opened_again_has_its_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let ctx = StreamContext::open(dir.path()).await.unwrap();
    run(&ctx, "CREATE TABLE t (ts TIMESTAMP, k BIGINT)").await;
    run(&ctx, HOURLY).await;
    run(
        &ctx,
        "INSERT INTO t VALUES ('2026-10-01T09:05:00', 1), ('2026-10-01T12:30:00', 1)",
    )
    .await;
    run(
        &ctx,
        "CREATE STREAMING TABLE p AS SELECT session_window.start AS s, k, count(*) AS n
        FROM STREAM t WATERMARK ts DELAY OF INTERVAL 1 HOUR GROUP BY session_window(ts, '1 hour'), k",
    )
    .await;
    let mut before = Vec::new();
    for table in ["q", "p"] {
        ctx.refresh(table).await.unwrap();
        before.push(ctx.picture(table, all()).await.unwrap());
    }
    let ctx = ctx.reopen().await.unwrap();
    for (table, before) in ["q", "p"].into_iter().zip(before) {
        assert_eq!(ctx.picture(table, all()).await.unwrap(), before);
        assert_eq!(before.open.fills.len(), 1, "{table}");
    }
}
