//! Plans whose upper part may stop early, not poll, or wait for two inputs at once.
//!
//! Each runs next to the plain query over the same arrivals. Whatever stands above, every source is
//! drained in every epoch: the watermark and the counts are those of the plain query.

use crate::follow::same;
use crate::model::{Figures, Model, Outcome};
use crate::query::{Cell, Grouping, Mode, Query, Row, Rows};
use crate::scenario::Rng;
use crate::session::{Checked, Session};
use crate::text;
use crate::trial::PATIENCE;

const SECOND: i64 = 1_000_000;

/// Seeds of arrivals that each test runs over.
const SEEDS: std::ops::Range<u64> = 0..10;

/// A count in tumbling windows of ten seconds: columns ws, we, n.
fn plain(delay: i64) -> Query {
    Query {
        grouping: Grouping::Window {
            size: 10 * SECOND,
            slide: 10 * SECOND,
            start: 0,
        },
        keyed: false,
        key_first: false,
        delay: Some(delay * SECOND),
        filter: None,
        having: None,
        mode: Mode::Append,
        aggregates: Vec::new(),
    }
}

/// Six rounds of rows over a minute or so, some late, some without a time, one round empty.
fn arrivals(seed: u64) -> Vec<Vec<Row>> {
    let mut rng = Rng::new(seed);
    let rows = [7, 12, 0, 9, 15, 4];
    (0..)
        .zip(rows)
        .map(|(round, rows)| minute(&mut rng, round * 12, rows))
        .collect()
}

/// Rows up to thirty seconds before and two seconds after `now`, in seconds.
fn minute(rng: &mut Rng, now: i64, rows: usize) -> Vec<Row> {
    (0..rows)
        .map(|_| Row {
            ts: (rng.size(1, 12) > 1).then(|| (now + rng.between(-30, 2)) * SECOND),
            k: Some(format!("k{}", rng.between(1, 3))),
            v: Some(rng.between(0, 9)),
            x: None,
        })
        .collect()
}

/// Runs one check per seed and partition count, none longer than [`PATIENCE`].
fn each<F: AsyncFn(u64, usize) -> Checked<()>>(check: F) {
    let runtime = crate::runtime();
    for seed in SEEDS {
        for partitions in [1, 2, 4] {
            let guarded = async { tokio::time::timeout(PATIENCE, check(seed, partitions)).await };
            let ended = runtime.block_on(guarded).expect("no hang");
            if let Err(problem) = ended {
                panic!("seed {seed}, {partitions} partitions: {problem}");
            }
        }
    }
}

async fn define(session: &Session, name: &str, query: &str) -> Checked<()> {
    let definition = format!("CREATE STREAMING TABLE {name} AS\n{query}");
    session.run(&definition).await?;
    Ok(())
}

/// Refreshes `name` and gives its only epoch.
async fn refresh(session: &Session, name: &str) -> Checked<Figures> {
    let records = session.refresh(name).await?;
    let [record] = records.as_slice() else {
        return Err(format!("{name}: one epoch expected, got {records:?}"));
    };
    Ok(*record)
}

/// Runs `query` and the plain query side by side and hands the figures of every epoch, the plain ones second, to `agree`.
async fn beside_plain(
    seed: u64,
    partitions: usize,
    query: &str,
    agree: impl Fn(Figures, Figures) -> Checked<()>,
) -> Checked<()> {
    let session = Session::open(partitions).await?;
    session.create("t").await?;
    session
        .run("CREATE TABLE nothing (k VARCHAR, n BIGINT)")
        .await?;
    define(&session, "p", &text::select(&plain(3), "STREAM t")).await?;
    define(&session, "q", query).await?;
    let mut rng = Rng::new(seed);
    for round in arrivals(seed) {
        session.feed("t", &round, &mut rng).await?;
        let expected = refresh(&session, "p").await?;
        agree(refresh(&session, "q").await?, expected)?;
    }
    Ok(())
}

/// All figures the same but for the rows that came out, of which there are none.
fn same_but_empty(actual: Figures, expected: Figures) -> Checked<()> {
    let expected = Figures {
        output: 0,
        ..expected
    };
    same("figures", &actual, &expected)
}

/// Input and watermark the same; no row reaches the aggregate.
fn read_but_empty(actual: Figures, expected: Figures) -> Checked<()> {
    let expected = Figures {
        late: 0,
        null: 0,
        output: 0,
        open_windows: 0,
        open_rows: 0,
        ..expected
    };
    same("figures", &actual, &expected)
}

#[test]
fn a_join_above_with_an_empty_table_leaves_nothing_unread() {
    let windows = text::select(&plain(3), "STREAM t");
    let texts = [
        format!("SELECT w.ws, w.n FROM ({windows}) w JOIN nothing e ON e.n = w.n"),
        format!("SELECT w.ws, w.n FROM nothing e JOIN ({windows}) w ON e.n = w.n"),
    ];
    each(async |seed, partitions| {
        for text in &texts {
            beside_plain(seed, partitions, text, same_but_empty).await?;
        }
        Ok(())
    });
}

#[test]
fn a_join_below_with_an_empty_table_leaves_nothing_unread() {
    let stream = "STREAM t WATERMARK ts DELAY OF INTERVAL '3 seconds' AS s";
    let relations = [
        format!("{stream} JOIN nothing e ON e.k = s.k"),
        format!("nothing e JOIN {stream} ON e.k = s.k"),
    ];
    let texts = relations.map(|from| {
        format!(
            "SELECT window.start AS ws, count(*) AS n FROM {from} GROUP BY window(s.ts, '10 seconds')"
        )
    });
    each(async |seed, partitions| {
        for text in &texts {
            beside_plain(seed, partitions, text, read_but_empty).await?;
        }
        Ok(())
    });
}

#[test]
fn a_limit_above_leaves_nothing_unread() {
    let windows = text::select(&plain(3), "STREAM t");
    let texts = [
        format!("SELECT * FROM ({windows}) LIMIT 1"),
        format!("{windows} LIMIT 1"),
    ];
    let limited = |actual: Figures, expected: Figures| {
        let output = actual.output.min(expected.output).min(1);
        same("figures", &actual, &Figures { output, ..expected })
    };
    each(async |seed, partitions| {
        for text in &texts {
            beside_plain(seed, partitions, text, limited).await?;
        }
        Ok(())
    });
}

#[test]
fn two_clauses_under_one_join_share_the_lesser_watermark() {
    each(async |seed, partitions| two_clauses(seed, partitions).await);
}

async fn two_clauses(seed: u64, partitions: usize) -> Checked<()> {
    let (left, right) = (plain(3), plain(7));
    let session = Session::open(partitions).await?;
    session.create("t").await?;
    session.create("u").await?;
    let join = format!(
        "SELECT a.ws, a.n, b.n AS m FROM ({}) a JOIN ({}) b ON a.ws = b.ws",
        text::select(&left, "STREAM t"),
        text::select(&right, "STREAM u")
    );
    define(&session, "q", &join).await?;
    let (mut left, mut right) = (Model::new(&left), Model::new(&right));
    let mut rng = Rng::new(seed);
    for (ours, theirs) in arrivals(seed).into_iter().zip(arrivals(seed + 1_000)) {
        // The second stream begins a round later: until then there is no watermark at all.
        let begun = left.own_watermark().is_some();
        let theirs = if begun { theirs } else { Vec::new() };
        session.feed("t", &ours, &mut rng).await?;
        session.feed("u", &theirs, &mut rng).await?;
        let (a, b) = (left.admit(&ours), right.admit(&theirs));
        let least = left.own_watermark().zip(right.own_watermark());
        let least = least.map(|(a, b)| a.min(b));
        let (a, b) = (left.close(least, a), right.close(least, b));
        agree_joined(&session, &a, &b).await?;
    }
    Ok(())
}

/// One epoch of a join of two windowed counts: counts are those of both sides together.
async fn agree_joined(session: &Session, a: &Outcome, b: &Outcome) -> Checked<()> {
    let actual = refresh(session, "q").await?;
    let joined = join(&a.emitted, &b.emitted);
    let (left, right) = (a.figures, b.figures);
    let expected = Figures {
        input: left.input + right.input,
        late: left.late + right.late,
        null: left.null + right.null,
        output: joined.len(),
        open_rows: left.open_rows + right.open_rows,
        // Whether one window on both sides is one or two is left open.
        open_windows: actual.open_windows,
        ..left
    };
    same("figures", &actual, &expected)?;
    let emitted = format!("SELECT * FROM emitted('q', {})", left.epoch);
    same("rows", &session.rows(&emitted).await?, &joined)
}

/// Joins rows (ws, we, n) on ws into (ws, n, m).
fn join(left: &Rows, right: &Rows) -> Rows {
    let pair = |a: &Vec<Cell>, b: &Vec<Cell>| vec![a[0].clone(), a[2].clone(), b[2].clone()];
    let mut rows: Rows = left
        .iter()
        .flat_map(|a| {
            right
                .iter()
                .filter(|b| b[0] == a[0])
                .map(move |b| pair(a, b))
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn a_clause_used_twice_is_read_once() {
    let side = |aggregate: &str| {
        format!(
            "(SELECT window.start AS ws, {aggregate} AS n FROM s GROUP BY window(ts, '10 seconds'))"
        )
    };
    let text = format!(
        "WITH s AS (SELECT * FROM STREAM t WATERMARK ts DELAY OF INTERVAL '3 seconds')\n\
         SELECT a.ws, a.n, b.n AS m FROM {} a JOIN {} b ON a.ws = b.ws",
        side("count(*)"),
        side("sum(v)")
    );
    each(async |seed, partitions| {
        beside_plain(seed, partitions, &text, |actual, expected| {
            // Each of the two aggregates judges every row; open windows and rows may be told once or twice.
            let expected = Figures {
                late: 2 * expected.late,
                null: 2 * expected.null,
                open_windows: actual.open_windows,
                open_rows: actual.open_rows,
                ..expected
            };
            same("figures", &actual, &expected)
        })
        .await
    });
}
