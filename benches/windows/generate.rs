//! A seeded stream of events, written as Parquet, and the counts that its answers must add up to.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::common::Result;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;

/// 2026-01-01T00:00:00Z in microseconds.
const BEGIN: i64 = 1_767_225_600_000_000;
/// Microseconds.
const SECOND: i64 = 1_000_000;
/// Event time between two rows, in microseconds: 10,000 rows a second.
const STEP: i64 = 100;
/// An ordinary row is less than this far behind; one row in a thousand less than the second.
const BEHIND: [u64; 2] = [30_000_000, 600_000_000];
/// The delay of every query, in microseconds.
const DELAY: i64 = 60 * SECOND;
const KEYS: usize = 10_000;
const USERS: u64 = 100_000;
const KINDS: [&str; 5] = ["view", "click", "cart", "order", "return"];
const FILE_ROWS: usize = 1_000_000;
const ROW_GROUP_ROWS: usize = 131_072;

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// The event times of what was written, in order of arrival.
pub(crate) struct Events(Vec<i64>);

/// What the counts of an answer sum to; a row counts once per window.
pub(crate) struct Count {
    /// Rows whose every window had closed before their epoch.
    pub(crate) late: usize,
    pub(crate) in_stream: i64,
    pub(crate) in_batch: i64,
}

impl Events {
    /// Writes `rows` events into files of a folder, named in order of arrival.
    pub(crate) fn write(folder: &Path, rows: usize) -> Result<Self> {
        let (mut rng, shares, mut times) = (Rng(42), zipf(), Vec::with_capacity(rows));
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .build();
        for first in (0..rows).step_by(FILE_ROWS) {
            let file = File::create(folder.join(format!("events-{first:012}.parquet")))?;
            times.extend((first..rows.min(first + FILE_ROWS)).map(|row| time(row, &mut rng)));
            let batch = batch(&times[first..], &shares, &mut rng)?;
            let properties = Some(properties.clone());
            let mut writer = ArrowWriter::try_new(file, batch.schema(), properties)?;
            writer.write(&batch)?;
            writer.close()?;
        }
        Ok(Self(times))
    }

    /// Counts rows and windows as one epoch of `epoch_rows` after the other does; sizes in seconds.
    pub(crate) fn count(&self, size: i64, slide: i64, epoch_rows: usize) -> Count {
        let (size, slide, windows) = (size * SECOND, slide * SECOND, size / slide);
        let (mut late, mut in_stream, mut watermark) = (0, 0, i64::MIN);
        for epoch in self.0.chunks(epoch_rows) {
            for time in epoch {
                let last_end = time.div_euclid(slide) * slide + size;
                let ends = (0..windows).map(|back| last_end - back * slide);
                let open = ends.filter(|end| *end > watermark).count();
                late += usize::from(open == 0);
                in_stream += open as i64;
            }
            watermark = epoch.iter().fold(watermark, |w, time| w.max(time - DELAY));
        }
        let in_batch = self.0.len() as i64 * windows;
        Count {
            late,
            in_stream,
            in_batch,
        }
    }
}

fn time(row: usize, rng: &mut Rng) -> i64 {
    let behind = BEHIND[usize::from(rng.below(1_000) == 0)];
    BEGIN + row as i64 * STEP - rng.below(behind) as i64
}

fn batch(times: &[i64], shares: &[f64], rng: &mut Rng) -> Result<RecordBatch> {
    let rows = 0..times.len();
    let keys: Int64Array = rows.clone().map(|_| Some(key(shares, rng))).collect();
    let user = |_| Some(format!("user-{}", rng.below(USERS)));
    let users: StringArray = rows.clone().map(user).collect();
    // Quarters, so that sums do not depend on the order of rows.
    let price = |_| Some(rng.below(40_000) as f64 / 4.0);
    let prices: Float64Array = rows.clone().map(price).collect();
    let kind = |_| Some(KINDS[rng.below(5) as usize]);
    let kinds: StringArray = rows.map(kind).collect();
    let times = TimestampMicrosecondArray::from(times.to_vec());
    Ok(RecordBatch::try_from_iter([
        ("ts", Arc::new(times) as ArrayRef),
        ("key", Arc::new(keys)),
        ("user", Arc::new(users)),
        ("price", Arc::new(prices)),
        ("kind", Arc::new(kinds)),
    ])?)
}

/// Zipf's distribution with exponent 1 over [`KEYS`] keys, cumulated.
fn zipf() -> Vec<f64> {
    let weights = (1..=KEYS).map(|rank| 1.0 / rank as f64);
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

fn key(shares: &[f64], rng: &mut Rng) -> i64 {
    let total = shares.last().copied().unwrap_or(0.0);
    let share = rng.below(1 << 53) as f64 / (1_u64 << 53) as f64 * total;
    shares.partition_point(|sum| *sum <= share) as i64
}

/// One row of `ticks (ts TIMESTAMP(6), v BIGINT)`, a tenth of a second after the one before.
pub(crate) fn one_row(number: usize) -> Result<RecordBatch> {
    let number = number as i64;
    let times = TimestampMicrosecondArray::from(vec![BEGIN + number * SECOND / 10]);
    let values = Int64Array::from(vec![number]);
    let columns = [
        ("ts", Arc::new(times) as ArrayRef, true),
        ("v", Arc::new(values), true),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}
