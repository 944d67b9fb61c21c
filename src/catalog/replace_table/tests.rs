use std::collections::BTreeMap;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Float64Array, Int64Array, StringViewArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int8Type, Int64Type, Schema};

use super::slots::FULL;
use super::*;
use crate::splitmix::SplitMix;

/// Two columns of key, the second one as the bits of a float, and a value.
type Row = (Option<i64>, u64, i64);

const FLOATS: [f64; 4] = [0.0, -0.0, f64::NAN, 1.5];

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("f", DataType::Float64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("t", DataType::Utf8View, true),
    ]))
}

/// A text that is too long to be in its view.
fn text(value: i64) -> String {
    format!("the row of value {value}")
}

fn batch(rows: &[Row]) -> RecordBatch {
    let k: Int64Array = rows.iter().map(|row| row.0).collect();
    let f = Float64Array::from_iter_values(rows.iter().map(|row| f64::from_bits(row.1)));
    let v = Int64Array::from_iter_values(rows.iter().map(|row| row.2));
    let t = StringViewArray::from_iter_values(rows.iter().map(|row| text(row.2)));
    let columns: Vec<ArrayRef> = vec![Arc::new(k), Arc::new(f), Arc::new(v), Arc::new(t)];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn rows_of(batches: &[RecordBatch]) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in batches {
        assert!((1..=FULL).contains(&batch.num_rows()));
        let k = batch.column(0).as_primitive::<Int64Type>();
        let f = batch.column(1).as_primitive::<Float64Type>();
        let v = batch.column(2).as_primitive::<Int64Type>();
        let t = batch.column(3).as_string_view();
        for at in 0..batch.num_rows() {
            assert_eq!(t.value(at), text(v.value(at)));
            let key = k.is_valid(at).then(|| k.value(at));
            rows.push((key, f.value(at).to_bits(), v.value(at)));
        }
    }
    rows
}

fn by_key() -> ReplaceTable {
    ReplaceTable::new("t", schema(), Some(vec![0, 1]))
}

fn shown(table: &ReplaceTable) -> Vec<Row> {
    rows_of(&table.all().unwrap())
}

/// A list in which a row goes to the end when another one takes its place.
#[derive(Debug, Default, Clone)]
struct Model {
    next: u64,
    rows: BTreeMap<u64, Row>,
    at: BTreeMap<(Option<i64>, u64), u64>,
}

impl Model {
    fn of(rows: &[Row]) -> Self {
        let mut model = Self::default();
        model.put(rows);
        model
    }

    fn put(&mut self, rows: &[Row]) {
        for row in rows {
            if let Some(before) = self.at.insert((row.0, row.1), self.next) {
                self.rows.remove(&before);
            }
            self.rows.insert(self.next, *row);
            self.next += 1;
        }
    }

    fn rows(&self) -> Vec<Row> {
        self.rows.values().copied().collect()
    }
}

fn drawn(random: &mut SplitMix, keys: u64, most: u64) -> Vec<Row> {
    let rows = random.next() % (most + 1);
    let rows = (0..rows).map(|_| {
        let key = random.next() % keys;
        let float = FLOATS[(random.next() % 4) as usize];
        let value = (random.next() % 1_000_000) as i64;
        ((key > 0).then_some(key as i64), float.to_bits(), value)
    });
    rows.collect()
}

fn is_gone(row: &Row) -> bool {
    row.2 % 3 == 0
}

fn gone(batch: &RecordBatch) -> Result<Vec<bool>> {
    let values = batch.column(2).as_primitive::<Int64Type>().values();
    Ok(values
        .iter()
        .map(|value| is_gone(&(None, 0, *value)))
        .collect())
}

/// Epochs, corrections, restarts and looks at what an epoch would make, at random.
fn trial(seed: u64, keys: u64, most: u64, epochs: usize) {
    let mut random = SplitMix(seed);
    let (mut table, mut model, mut pieces) = (by_key(), Model::default(), Vec::new());
    for _ in 0..epochs {
        let rows = drawn(&mut random, keys, most);
        let once = Model::of(&rows).rows();
        match random.next() % 10 {
            0 => {
                let mut after = model.clone();
                after.put(&once);
                let added = once.chunks(FULL).map(batch).collect();
                let all = table.replaced(added).unwrap();
                assert_eq!(rows_of(&all), after.rows(), "seed {seed}");
            }
            1 => {
                let added = once.chunks(FULL).map(batch).collect();
                pieces = table.corrected(added, &gone).unwrap();
                table.restore(&pieces).unwrap();
                model.put(&once);
                let rows = model.rows().into_iter().filter(|row| !is_gone(row));
                model = Model::of(&rows.collect::<Vec<_>>());
            }
            2 => {
                table = by_key();
                table.restore(&pieces).unwrap();
            }
            _ => {
                let (first, second) = rows.split_at(rows.len() / 3);
                let epoch = vec![batch(first), batch(second)];
                table.replace(epoch.clone()).unwrap();
                pieces.extend(epoch);
                model.put(&rows);
            }
        }
        assert_eq!(shown(&table), model.rows(), "seed {seed}");
        assert_eq!(table.rows(), model.rows.len() as u64, "seed {seed}");
    }
}

#[test]
fn what_is_shown_is_what_a_list_would_show() {
    for (at, most) in (0..).zip([1, 5, 60]) {
        for (seed, keys) in (10 * at..).zip([2, 30, 3_000]) {
            trial(seed, keys, most, 200);
        }
    }
    trial(100, 3_000, 20_000, 12);
    trial(101, 40_000, 20_000, 12);
}

#[test]
fn a_look_shows_what_was_there_when_it_began() {
    let Kept::ByKey(_, kept) = by_key().kept else {
        panic!("it has a key");
    };
    let key = Key::new(vec![0, 1]);
    let add = |rows: &[Row]| {
        let rows = Ready::of(&schema(), &[batch(rows)], &key).unwrap();
        written(&kept).add(&schema(), rows).unwrap();
    };
    add(&[(Some(1), 0, 10), (Some(2), 0, 20), (None, 0, 30)]);
    let first = read(&kept).snapshot();
    add(&[(Some(2), 0, 21)]);
    let second = read(&kept).snapshot();
    add(&[(Some(1), 0, 11), (None, 0, 31)]);
    let values = |rows: &super::slots::Slots| {
        let rows = rows_of(&rows.batches().unwrap());
        rows.into_iter().map(|row| row.2).collect::<Vec<_>>()
    };
    assert_eq!(values(&first), [10, 20, 30]);
    assert_eq!(values(&second), [10, 30, 21]);
    assert_eq!(values(&read(&kept).snapshot()), [21, 11, 31]);
}

#[test]
fn without_a_column_of_key_the_last_row_is_the_only_one() {
    let table = ReplaceTable::new("t", schema(), Some(Vec::new()));
    table.replace(vec![batch(&[(None, 0, 1)])]).unwrap();
    table.replace(vec![batch(&[(Some(4), 0, 2)])]).unwrap();
    table.replace(vec![batch(&[])]).unwrap();
    assert_eq!(shown(&table), [(Some(4), 0, 2)]);
    let all = table.replaced(vec![batch(&[(None, 0, 3)])]).unwrap();
    assert_eq!(rows_of(&all), [(None, 0, 3)]);
    table
        .restore(&[batch(&[(None, 0, 1)]), batch(&[(None, 0, 5)])])
        .unwrap();
    assert_eq!((shown(&table), table.rows()), (vec![(None, 0, 5)], 1));
}

#[test]
fn without_a_key_all_rows_are_replaced() {
    let table = ReplaceTable::new("t", schema(), None);
    table
        .replace(vec![batch(&[(None, 0, 1), (None, 0, 2)])])
        .unwrap();
    assert_eq!((table.rows(), table.has_key()), (2, false));
    table.replace(vec![batch(&[(None, 0, 3)])]).unwrap();
    assert_eq!(shown(&table), [(None, 0, 3)]);
    table.replace(Vec::new()).unwrap();
    assert_eq!(table.rows(), 0);
}

#[test]
fn two_rows_of_a_doubtful_key_in_one_epoch_are_refused() {
    let table = by_key().with_doubtful(Some("k".to_owned()));
    let (one, other) = (
        batch(&[(None, 0, 1), (Some(1), 0, 2)]),
        batch(&[(None, 0, 3)]),
    );
    table.check(std::slice::from_ref(&one)).unwrap();
    table.check(std::slice::from_ref(&other)).unwrap();
    let error = table.check(&[one, other]).unwrap_err().to_string();
    assert!(error.contains("a group where k is null"), "{error}");
}

#[test]
fn values_that_do_not_fit_one_column_stay_apart() {
    let short = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("d", short, true),
    ]));
    let table = ReplaceTable::new("t", Arc::clone(&schema), Some(vec![0]));
    // A column of such keys has room for 128 values.
    for key in 0..300 {
        let value = text(key);
        let values: DictionaryArray<Int8Type> = [value.as_str()].into_iter().collect();
        let keys = Int64Array::from(vec![key]);
        let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(values)];
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        table.replace(vec![rows]).unwrap();
    }
    let mut found = Vec::new();
    for batch in table.all().unwrap() {
        let texts = cast(batch.column(1), &DataType::Utf8).unwrap();
        let texts = texts.as_string::<i32>();
        found.extend((0..texts.len()).map(|at| texts.value(at).to_owned()));
    }
    assert_eq!(found, (0..300).map(text).collect::<Vec<_>>());
}
