//! The parts of a streaming query, each by itself, over one batch of rows or one statement.
//!
//! ```text
//! cargo bench --bench parts
//! ```

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a bench stops at the first surprise; its functions are made by a macro"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use datafusion::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::execution::runtime_env::RuntimeEnv;
use tidegate::config::OutputMode;
use tidegate::context::StreamContext;
use tidegate::state::{
    Accepted, Assignment, Epoch, EventTimes, Fates, GateShape, GateState, Part, QueryState,
    Release, merge,
};
use tidegate::time::{Closed, Instant, Unit, WindowShape};

const ROWS: usize = 8_192;
const SECOND: i64 = 1_000_000;

/// Event times of a batch: 10,000 a second, up to 30 seconds out of order.
fn times() -> Vec<i64> {
    let spread = |row: usize| (row as i64 * 7_919 % 30_000) * 1_000;
    (0..ROWS)
        .map(|row| 600 * SECOND + row as i64 * 100 - spread(row))
        .collect()
}

fn ten_seconds() -> WindowShape {
    let size = 10_000_000;
    WindowShape::new(Unit::Microsecond, size, size, 0).unwrap()
}

fn plan(c: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let context = StreamContext::new().unwrap();
    let sql = "SELECT window.start AS ws, key, count(*) AS n, sum(price) AS s
        FROM STREAM events WATERMARK ts DELAY OF INTERVAL 1 MINUTE
        GROUP BY window(ts, '10 seconds'), key";
    runtime.block_on(async {
        let table = "CREATE TABLE events (ts TIMESTAMP(6), \"key\" BIGINT, price DOUBLE)";
        context.sql(table).await.unwrap().collect().await.unwrap();
    });
    c.bench_function("parse", |b| {
        b.iter(|| assert_eq!(tidegate::sql::split(black_box(sql)).unwrap().len(), 1));
    });
    c.bench_function("parse and analyze", |b| {
        b.iter(|| runtime.block_on(context.sql(black_box(sql))).unwrap());
    });
    c.bench_function("parse, analyze and plan", |b| {
        b.iter(|| {
            let plan = runtime.block_on(async {
                context
                    .sql(black_box(sql))
                    .await?
                    .create_physical_plan()
                    .await
            });
            plan.unwrap()
        });
    });
}

fn rows(c: &mut Criterion) {
    let ticks = Int64Array::from(times());
    let stamps = TimestampMicrosecondArray::from(times());
    let mut group = c.benchmark_group("rows");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("event times", |b| {
        b.iter(|| assert_eq!(EventTimes::of(black_box(&stamps)).timed, ROWS as u64));
    });
    let assignment = Assignment::Windows(ten_seconds());
    for (name, watermark) in [("assign", 0), ("assign, some late", 590 * SECOND)] {
        let watermark = Instant::from_nanos(i128::from(watermark) * 1_000);
        let closed = ten_seconds().closed_by(watermark);
        group.bench_function(name, |b| {
            b.iter(|| {
                let assigned = assignment.assign(black_box(&ticks), closed);
                assert_eq!(assigned.fates.rows(), ROWS as u64);
            });
        });
    }
    let slices = assignment.assign(&ticks, Closed::None).slices.into_array();
    group.bench_function("count accepted", |b| {
        b.iter(|| {
            let mut accepted = Accepted::default();
            accepted.count(black_box(slices.values()));
            assert_eq!(accepted.finish().values().sum::<u64>(), ROWS as u64);
        });
    });
    group.finish();
}

/// Partial states of `groups` groups of each of four windows.
fn states(groups: i64) -> RecordBatch {
    let all = 0..4 * groups;
    let slices = Int64Array::from_iter_values(all.clone().map(|at| at % 4 * 10 * SECOND));
    let keys = Int64Array::from_iter_values(all.clone().map(|at| at / 4));
    let counts = Int64Array::from_iter_values(all);
    let columns: [(&str, ArrayRef); 3] = [
        ("slice", Arc::new(slices)),
        ("key", Arc::new(keys)),
        ("count", Arc::new(counts)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn gate(c: &mut Criterion) {
    let runtime = RuntimeEnv::default();
    let batch = states(2_048);
    let release = Release {
        mode: OutputMode::Append,
        before: Closed::None,
        after: Closed::Through(10 * SECOND),
    };
    let mut group = c.benchmark_group("gate");
    group.throughput(Throughput::Elements(batch.num_rows() as u64));
    group.bench_function("absorb, release, commit", |b| {
        let new = || {
            let state = Arc::new(QueryState::default());
            let gate = state.gate(0, |turn| {
                GateState::new("gate", GateShape::One, 1, false, OutputMode::Append, turn)
            });
            (
                gate,
                Epoch::new(0, None, false, HashMap::new(), Arc::clone(&state)),
            )
        };
        b.iter_batched(
            new,
            |(gate, epoch)| {
                gate.absorb(0, Part::whole(batch.clone()), &epoch, &runtime)
                    .unwrap();
                gate.note(Fates::default(), BTreeMap::new(), epoch.turn());
                let out = gate.release(0, release).unwrap();
                let rows = out.map(|run| run.unwrap().num_rows());
                assert_eq!(rows.sum::<usize>(), 4_096);
                gate.commit(OutputMode::Append, release.after).unwrap()
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn sessions(c: &mut Criterion) {
    let users: StringArray = (0..ROWS)
        .map(|row| Some(format!("user-{}", row * 7 % 1_000)))
        .collect();
    let keys: Vec<ArrayRef> = vec![Arc::new(users)];
    let starts = Int64Array::from(times());
    let ends = Int64Array::from_iter_values(times().into_iter().map(|start| start + SECOND));
    let merged = merge(&keys, &starts, &ends).unwrap();
    let stretches = starts.values().iter().zip(ends.values());
    let sessions = merged.starts.values().iter().zip(merged.ends.values());
    let mut of_users = BTreeSet::new();
    for (row, ((start, end), (begin, until))) in stretches.zip(sessions).enumerate() {
        assert!(begin <= start && end <= until);
        of_users.insert((row * 7 % 1_000, *begin));
    }
    assert!(of_users.len() >= 1_000);
    let mut group = c.benchmark_group("sessions");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("merge by text", |b| {
        b.iter(|| {
            let merged = merge(black_box(&keys), &starts, &ends).unwrap();
            assert_eq!(merged.starts.len(), starts.len());
        });
    });
    group.finish();
}

criterion_group!(parts, plan, rows, gate, sessions);
criterion_main!(parts);
