use datafusion::arrow::array::{ArrayRef, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};

use super::super::slots::FULL;
use super::*;
use crate::splitmix::SplitMix;

/// What epochs made of it.
struct Work {
    /// Rows of the epochs.
    rows: usize,
    /// Rows that were written into slots.
    written: usize,
    /// Slots that there were at most.
    most: usize,
    /// Rows at the end.
    left: usize,
}

/// Adds epochs of these keys to a table that has some.
fn work(known: i64, epochs: impl Iterator<Item = Vec<i64>>) -> Work {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
    let (key, mut keyed) = (Key::new(vec![0]), Keyed::default());
    let mut add = |keys: Vec<i64>| {
        let last = keyed.slots.last();
        let rows: ArrayRef = Arc::new(Int64Array::from(keys));
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![rows]).unwrap();
        let rows = Ready::of(&schema, &[rows], &key).unwrap();
        keyed.add(&schema, rows).unwrap();
        let (stored, written) = keyed.slots.stored_behind(last);
        assert!(stored <= 2 * keyed.rows() + FULL, "{stored} rows");
        (written, keyed.slots.count(), keyed.rows())
    };
    add((0..known).collect());
    let mut work = Work {
        rows: 0,
        written: 0,
        most: 0,
        left: 0,
    };
    for keys in epochs {
        work.rows += keys.len();
        let (written, slots, left) = add(keys);
        work.written += written;
        work.most = work.most.max(slots);
        work.left = left;
    }
    work
}

fn check(what: &str, known: i64, left: usize, epochs: impl Iterator<Item = Vec<i64>>) {
    let work = work(known, epochs);
    let most = work.rows * (work.rows.ilog2() as usize + 1);
    assert_eq!(work.left, left, "{what}");
    assert!(work.written < most, "{what}: {} written", work.written);
    assert!(work.most <= 48, "{what}: {} slots", work.most);
}

#[test]
fn an_epoch_costs_the_rows_that_it_touches() {
    let mut random = SplitMix(1);
    let mut below = |limit: i64| (random.next() % limit.unsigned_abs()) as i64;
    check("new keys", 0, 10_000, (0..10_000).map(|key| vec![key]));
    check(
        "new keys beside others",
        100_000,
        110_000,
        (100_000..110_000).map(|key| vec![key]),
    );
    check("one key", 100_000, 100_000, (0..10_000).map(|_| vec![7]));
    check("few keys", 5, 5, (0..10_000).map(|epoch| vec![epoch % 5]));
    let many = (0..10_000).map(|_| vec![below(100_000)]);
    check("one of many", 100_000, 100_000, many);
    let some = (0..10_000).map(|_| vec![below(2_000)]);
    check("one of some", 2_000, 2_000, some);
    // Five in eleven of the keys, and others every time.
    let half = (0..40_i64).map(|epoch| {
        let keys = (0..20_000_i64).filter(|key| (*key + epoch) % 11 < 5);
        keys.collect::<Vec<i64>>()
    });
    check("half of all", 20_000, 20_000, half);
}
