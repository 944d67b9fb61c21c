//! A seeded stream of events: what is in it, and what the counts of its answers must add up to.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::common::Result;

/// 2026-01-01T00:00:00Z in microseconds.
const BEGIN: i64 = 1_767_225_600_000_000;
/// Microseconds.
pub(crate) const SECOND: i64 = 1_000_000;
/// The delay of every query, in microseconds.
const DELAY: i64 = 60 * SECOND;
const KINDS: [&str; 5] = ["view", "click", "cart", "order", "return"];

/// What is generated; times in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) rows: usize,
    /// Rows a second of event time.
    pub(crate) rate: usize,
    /// An ordinary row is less than this behind the newest one.
    pub(crate) disorder: u64,
    /// Share of rows that are up to ten minutes behind instead.
    pub(crate) stragglers: f64,
    pub(crate) keys: usize,
    pub(crate) users: u64,
    pub(crate) seed: u64,
}

/// How far a straggler may be behind, in seconds.
const STRAGGLE: u64 = 600;

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// From 0 to 1, 1 not included.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Makes the rows, in order of arrival.
pub(crate) struct Generator {
    workload: Workload,
    rng: Rng,
    /// Zipf's distribution with exponent 1 over the keys, cumulated.
    shares: Vec<f64>,
    made: usize,
}

impl Generator {
    pub(crate) fn new(workload: &Workload) -> Self {
        let weights = (1..=workload.keys).map(|rank| 1.0 / rank as f64);
        let shares = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self {
            workload: workload.clone(),
            rng: Rng(workload.seed),
            shares: shares.collect(),
            made: 0,
        }
    }

    /// The next rows, at most so many; none at the end.
    ///
    /// `ts TIMESTAMP(6), key BIGINT, user VARCHAR, price DOUBLE, kind VARCHAR`
    pub(crate) fn batch(&mut self, most: usize) -> Result<Option<RecordBatch>> {
        let rows = most.min(self.workload.rows - self.made);
        if rows == 0 {
            return Ok(None);
        }
        let times: Vec<i64> = (0..rows).map(|_| self.time()).collect();
        let keys: Vec<i64> = (0..rows).map(|_| self.key()).collect();
        let (rng, users) = (&mut self.rng, self.workload.users);
        let user = |_| Some(format!("user-{:06}", rng.below(users)));
        let users: StringArray = (0..rows).map(user).collect();
        // Quarters, so that sums do not depend on the order of rows.
        let prices: Vec<f64> = (0..rows).map(|_| rng.below(40_000) as f64 / 4.0).collect();
        let kinds: StringArray = (0..rows)
            .map(|_| Some(KINDS[rng.below(5) as usize]))
            .collect();
        Ok(Some(RecordBatch::try_from_iter([
            (
                "ts",
                Arc::new(TimestampMicrosecondArray::from(times)) as ArrayRef,
            ),
            ("key", Arc::new(Int64Array::from(keys))),
            ("user", Arc::new(users)),
            ("price", Arc::new(Float64Array::from(prices))),
            ("kind", Arc::new(kinds)),
        ])?))
    }

    fn time(&mut self) -> i64 {
        let straggler = self.rng.share() < self.workload.stragglers;
        let behind = if straggler {
            STRAGGLE
        } else {
            self.workload.disorder
        };
        let behind = match behind * SECOND as u64 {
            0 => 0,
            most => self.rng.below(most) as i64,
        };
        let row = self.made as i64;
        self.made += 1;
        BEGIN + row * SECOND / self.workload.rate as i64 - behind
    }

    fn key(&mut self) -> i64 {
        let total = self.shares.last().copied().unwrap_or(0.0);
        let share = self.rng.share() * total;
        self.shares.partition_point(|sum| *sum <= share) as i64
    }
}

/// Which windows a row is in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Windows {
    /// Size and slide in microseconds; the slide divides the size.
    Hopping(i64, i64),
    /// Gap in microseconds. A session counts a row once; late is judged by the row alone.
    Sessions(i64),
}

/// Counts rows and windows as one epoch of so many rows after the other does.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    windows: Windows,
    epoch_rows: usize,
    rows: usize,
    greatest: i64,
    watermark: i64,
    /// Rows whose every window had closed before their epoch.
    pub(crate) late: usize,
    /// What the counts of a streaming answer sum to; a row counts once per open window.
    pub(crate) in_stream: i64,
    /// What the counts of a batch answer sum to.
    pub(crate) in_batch: i64,
}

impl Expected {
    pub(crate) fn new(windows: Windows, epoch_rows: usize) -> Self {
        Self {
            windows,
            epoch_rows,
            rows: 0,
            greatest: i64::MIN,
            watermark: i64::MIN,
            late: 0,
            in_stream: 0,
            in_batch: 0,
        }
    }

    pub(crate) fn add(&mut self, times: &[i64]) {
        for time in times {
            let (all, open) = self.windows_of(*time);
            self.late += usize::from(open == 0);
            self.in_stream += open;
            self.in_batch += all;
            self.greatest = self.greatest.max(*time);
            self.rows += 1;
            if self.rows.is_multiple_of(self.epoch_rows) {
                self.watermark = self.greatest - DELAY;
            }
        }
    }

    /// How many windows a row is in, and how many of them are open.
    fn windows_of(&self, time: i64) -> (i64, i64) {
        match self.windows {
            Windows::Sessions(gap) => (1, i64::from(time + gap > self.watermark)),
            Windows::Hopping(size, slide) => {
                let last_end = time.div_euclid(slide) * slide + size;
                let all = size / slide;
                // Ends from the last one back, each a slide before the next.
                let ahead = last_end - self.watermark.max(last_end - size);
                let open = (ahead + slide - 1).div_euclid(slide);
                (all, open.clamp(0, all))
            }
        }
    }
}
