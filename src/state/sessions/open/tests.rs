use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Int64Type;

use super::super::{key_columns, merge};
use super::*;
use crate::splitmix::SplitMix;

/// A key, the bounds of a stretch or of its session, and rows in it.
type Line = (String, i64, i64, i64);

fn run(lines: &[Line]) -> Part {
    let keys = StringArray::from_iter_values(lines.iter().map(|line| &line.0));
    let numbers = |of: fn(&Line) -> i64| -> Arc<dyn Array> {
        Arc::new(Int64Array::from_iter_values(lines.iter().map(of)))
    };
    let columns = [
        ("start", numbers(|line| line.1)),
        ("end", numbers(|line| line.2)),
        ("key", Arc::new(keys) as _),
        ("rows", numbers(|line| line.3)),
    ];
    Part::whole(RecordBatch::try_from_iter(columns).unwrap())
}

fn lines(runs: &[RecordBatch]) -> Vec<Line> {
    let lines = runs.iter().flat_map(|run| {
        let keys = run.column(2).as_string::<i32>();
        let number = |at: usize, row| run.column(at).as_primitive::<Int64Type>().value(row);
        let rows = (0..run.num_rows()).map(move |row| {
            let key = keys.value(row).to_owned();
            (key, number(0, row), number(1, row), number(3, row))
        });
        rows.collect::<Vec<_>>()
    });
    let mut lines: Vec<Line> = lines.collect();
    lines.sort();
    lines
}

/// The same lines with the bounds of their sessions, found by looking at all of them.
fn merged(lines: &[Line]) -> Vec<Line> {
    let run = run(lines).batch;
    let bound = |at| super::super::bound(&run, at).unwrap();
    let merged = merge(key_columns(&run, 1), bound(0), bound(1)).unwrap();
    let bounds = merged.starts.values().iter().zip(merged.ends.values());
    let lines = lines.iter().zip(bounds);
    lines
        .map(|(line, (start, end))| (line.0.clone(), *start, *end, line.3))
        .collect()
}

/// Some rows whose stretches have not closed at `after`.
fn some(random: &mut SplitMix, after: i64, rows: u64) -> Vec<Line> {
    let mut below = |most: u64| (random.next() % most) as i64;
    let rows = (0..rows).map(|_| {
        let start = after - 20 + below(80);
        let end = (start + 1 + below(30)).max(after + 1);
        (format!("user {}", below(300)), start, end, 1 + below(5))
    });
    rows.collect()
}

fn sum_of(lines: &[Line]) -> u64 {
    lines.iter().map(|line| line.3.unsigned_abs()).sum()
}

/// What is open, against the lines that are.
fn check(open: &mut OpenSessions, held: &[Line]) {
    let expected = merged(held);
    let mut sessions: Vec<(String, i64, i64)> = Vec::new();
    sessions.extend(expected.iter().map(|line| (line.0.clone(), line.1, line.2)));
    sessions.sort();
    sessions.dedup();
    assert_eq!(open.count().unwrap(), sessions.len());
    let first = sessions.iter().map(|session| session.2).min();
    assert_eq!(open.first_end().unwrap(), first);
    assert_eq!((open.held(), open.accepted()), (held.len(), sum_of(held)));
    let mut list: Vec<(i64, i64)> = Vec::new();
    let of_list = open.list().unwrap();
    list.extend(of_list.iter().map(|session| (session.begin, session.end)));
    list.sort_unstable();
    let mut bounds: Vec<(i64, i64)> = Vec::new();
    bounds.extend(sessions.iter().map(|session| (session.1, session.2)));
    bounds.sort_unstable();
    assert_eq!(list, bounds);
    let accepted: u64 = of_list.iter().map(|session| session.rows).sum();
    assert_eq!(accepted, sum_of(held));
    let mut runs = held.to_vec();
    runs.sort();
    let rows = lines(&open.runs().unwrap());
    // Rows may have the bounds of their sessions by now.
    assert_eq!(lines(&merged_rows(&rows)), lines(&merged_rows(&runs)));
}

fn merged_rows(lines: &[Line]) -> Vec<RecordBatch> {
    vec![run(&merged(lines)).batch]
}

/// Epochs of so many rows, against the sessions of all rows that are open.
fn epochs(seed: u64, rows: u64, epochs: i64) {
    println!("seed {seed}, {rows} rows");
    let mut random = SplitMix(seed);
    let (mut open, mut held) = (OpenSessions::new(1), Vec::new());
    let mut after = 0;
    for _ in 0..epochs {
        let new = some(&mut random, after, rows);
        let (first, second) = new.split_at(new.len() / 2);
        let next = after + (random.next() % 12) as i64;
        let closed = Closed::Through(next);
        for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
            open.add(run(part));
        }
        let all: Vec<Line> = held.iter().cloned().chain(new).collect();
        let expected = merged(&all);
        let (mut gone, mut stay) = (Vec::new(), Vec::new());
        for (row, whole) in all.iter().zip(expected) {
            match closed.contains(whole.2) {
                true => gone.push(whole),
                false => stay.push(row.clone()),
            }
        }
        gone.sort();
        let reads = random.next() % 3;
        if reads > 0 {
            assert_eq!(open.count_closing(closed).unwrap(), gone.len());
            assert_eq!(lines(&open.closing(closed).unwrap()), gone);
        }
        if random.next().is_multiple_of(4) {
            open.abort();
            check(&mut open, &held);
            continue;
        }
        let settled = open.commit(closed).unwrap();
        assert_eq!(settled.removed, gone.len() as u64);
        assert_eq!(settled.left, sum_of(&gone));
        (held, after) = (stay, next);
        check(&mut open, &held);
        if open.is_fragmented(8).unwrap() {
            let whole = open.everything().unwrap();
            assert_eq!(lines(&whole), {
                let mut all = merged(&held);
                all.sort();
                all
            });
            open = OpenSessions::of(whole.into_iter().map(Part::whole).collect(), 1).unwrap();
            check(&mut open, &held);
        }
    }
    let left = open.closing(Closed::All).unwrap();
    let mut all = merged(&held);
    all.sort();
    assert_eq!(lines(&left), all);
    open.commit(Closed::All).unwrap();
    check(&mut open, &[]);
}

#[test]
fn epochs_close_the_sessions_of_all_rows_that_are_open() {
    for seed in 0..8 {
        epochs(seed, 12, 40);
    }
    // So many rows leave that the others are moved.
    epochs(8, 400, 60);
    // Runs of one row are joined.
    epochs(9, 1, 300);
}

#[test]
fn an_epoch_that_runs_is_not_seen_among_the_sessions() {
    let line = |key: &str, start, end| (key.to_owned(), start, end, 1);
    let mut open = OpenSessions::new(1);
    open.add(run(&[line("a", 0, 10), line("b", 5, 9)]));
    assert!(open.list().unwrap().is_empty());
    open.commit(Closed::None).unwrap();
    let before = open.list().unwrap();
    assert_eq!(before.len(), 2);
    // It extends one session, begins another, and closes one.
    open.add(run(&[line("a", 8, 30), line("c", 20, 40)]));
    assert_eq!(open.list().unwrap(), before);
    assert_eq!(open.count_closing(Closed::Through(9)).unwrap(), 1);
    assert_eq!(open.list().unwrap(), before);
    open.commit(Closed::Through(9)).unwrap();
    let ends = open.list().unwrap().into_iter().map(|session| session.end);
    assert_eq!(ends.collect::<Vec<_>>(), [30, 40]);
}

#[test]
fn rows_without_a_key_are_one_list_of_sessions() {
    let run = run(&[("".to_owned(), 0, 10, 1), ("".to_owned(), 30, 40, 1)]);
    let run = run.batch.project(&[0, 1, 3]).unwrap();
    let bridge = run.slice(0, 1);
    let mut open = OpenSessions::of(vec![Part::whole(run)], 0).unwrap();
    assert_eq!(open.count().unwrap(), 2);
    let schema = bridge.schema();
    let long = with_sessions(&bridge, vec![10].into(), vec![30].into()).unwrap();
    open.add(Part::whole(long));
    let rows = open.closing(Closed::Through(39)).unwrap();
    assert!(rows.is_empty());
    open.commit(Closed::Through(39)).unwrap();
    assert_eq!(
        (open.count().unwrap(), open.first_end().unwrap()),
        (1, Some(40))
    );
    let rows = open.closing(Closed::Through(40)).unwrap();
    let rows = concat_batches(&schema, &rows).unwrap();
    let ends = rows.column(1).as_primitive::<Int64Type>();
    assert_eq!(ends.values().to_vec(), [40, 40, 40]);
}

#[test]
fn keys_that_have_gone_are_forgotten() {
    let mut open = OpenSessions::new(1);
    let mut most = 0;
    for epoch in 0..60_i64 {
        let lines = (0..1_000).map(|key| (format!("{epoch} {key}"), epoch, epoch + 1, 1));
        open.add(run(&lines.collect::<Vec<_>>()));
        let settled = open.commit(Closed::Through(epoch)).unwrap();
        most = most.max(settled.bytes);
    }
    assert_eq!((open.held(), open.count().unwrap()), (1_000, 1_000));
    let alone = run(&[("0 0".to_owned(), 0, 1, 1)]).bytes;
    assert!(most < 30_000 * alone, "{most} bytes");
    assert!(open.index.as_ref().unwrap().keys() < 20_000);
}
