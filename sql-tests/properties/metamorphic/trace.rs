//! What a streaming table did, refresh by refresh, and the same after a change whose effect is known.

use crate::arrivals::Feed;
use crate::follow::{same, sorted};
use crate::model::Figures;
use crate::query::{Cell, Mode, Rows};
use crate::scenario::Rng;
use crate::session::{Checked, Session};
use crate::text;

/// What a streaming table did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) refreshes: Vec<Refresh>,
    table: Rows,
}

/// What one refresh did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refresh {
    pub(super) epochs: Vec<Figures>,
    /// Rows emitted in the last epoch.
    emitted: Rows,
}

/// Defines `q`, feeds it and notes what it did.
pub(super) async fn trace(definition: &str, feed: &Feed) -> Checked<Trace> {
    let session = Session::open(feed.partitions).await?;
    session.create("t").await?;
    session.run(definition).await?;
    let mut rng = Rng::new(feed.seed);
    let mut refreshes = Vec::new();
    for round in &feed.rounds {
        session.feed("t", round, &mut rng).await?;
        let epochs = session.refresh("q").await?;
        let last = epochs.last().ok_or("a refresh has at least one epoch")?;
        let emitted = session.rows(&text::emitted(last.epoch)).await?;
        refreshes.push(Refresh { epochs, emitted });
    }
    let table = session.rows("SELECT * FROM q").await?;
    Ok(Trace { refreshes, table })
}

impl Trace {
    /// The same with every time later.
    pub(super) fn later(mut self, by: i64, times: &[usize]) -> Self {
        for refresh in &mut self.refreshes {
            for figures in &mut refresh.epochs {
                figures.watermark = figures.watermark.map(|watermark| watermark + by);
            }
            refresh.emitted = later_rows(&refresh.emitted, by, times);
        }
        self.table = later_rows(&self.table, by, times);
        self
    }

    /// The same without the refreshes that `with_empty_rounds` put in, numbered as if they had not been.
    pub(super) fn without_empty_rounds(mut self, places: &[usize], mode: Mode) -> Checked<Self> {
        for place in places {
            self.idle(*place, mode)?;
            self.refreshes.remove(*place);
            let after = self.refreshes.iter_mut().skip(*place);
            for figures in after.flat_map(|refresh| &mut refresh.epochs) {
                figures.epoch -= 1;
            }
        }
        Ok(self)
    }

    /// The same with other names of keys.
    pub(super) fn renamed(mut self) -> Self {
        for refresh in &mut self.refreshes {
            refresh.emitted = renamed_rows(&refresh.emitted);
        }
        self.table = renamed_rows(&self.table);
        self
    }

    /// Takes the two refreshes of a round that was split for one. What update mode showed of a group before
    /// its last rows came is not compared.
    pub(super) fn joined(mut self, place: usize, mode: Mode) -> Checked<Self> {
        if place + 1 >= self.refreshes.len() {
            return Err("the round was split in two".to_owned());
        }
        let first = self.refreshes.remove(place);
        let [before] = first.epochs.as_slice() else {
            return Err("a round that is not cut is one epoch".to_owned());
        };
        for figures in self.refreshes[place..]
            .iter_mut()
            .flat_map(|refresh| &mut refresh.epochs)
        {
            figures.epoch -= 1;
        }
        let second = &mut self.refreshes[place];
        if mode == Mode::Append {
            second.emitted = sorted(
                first
                    .emitted
                    .into_iter()
                    .chain(second.emitted.clone())
                    .collect(),
            );
        }
        for figures in &mut second.epochs {
            figures.input += before.input;
            figures.late += before.late;
            figures.null += before.null;
            figures.rejected += before.rejected;
            if mode == Mode::Append {
                figures.output += before.output;
            }
        }
        if mode == Mode::Update {
            self.forget_emitted(place);
        }
        Ok(self)
    }

    /// Leaves out what one refresh emitted.
    pub(super) fn forget_emitted(&mut self, place: usize) {
        let refresh = &mut self.refreshes[place];
        refresh.emitted.clear();
        for figures in &mut refresh.epochs {
            figures.output = 0;
        }
    }

    /// Checks that a refresh without rows was one epoch that left everything as the one before had.
    fn idle(&self, place: usize, mode: Mode) -> Checked<()> {
        let (before, emitted) = match place.checked_sub(1).map(|before| &self.refreshes[before]) {
            Some(before) => (before.epochs.last().copied(), before.emitted.clone()),
            None => (None, Rows::new()),
        };
        // In complete mode every group comes out again.
        let emitted = match mode {
            Mode::Complete => emitted,
            Mode::Append | Mode::Update => Rows::new(),
        };
        let expected = Figures {
            epoch: before.map_or(0, |before| before.epoch + 1),
            input: 0,
            late: 0,
            null: 0,
            rejected: 0,
            output: emitted.len(),
            open_windows: before.map_or(0, |before| before.open_windows),
            open_rows: before.map_or(0, |before| before.open_rows),
            watermark: before.and_then(|before| before.watermark),
        };
        let epochs = vec![expected];
        let expected = Refresh { epochs, emitted };
        same("an empty epoch", &self.refreshes[place], &expected)
    }
}

fn later_rows(rows: &Rows, by: i64, times: &[usize]) -> Rows {
    let mut rows = rows.clone();
    for row in &mut rows {
        for place in times {
            if let Cell::Int(time) = &mut row[*place] {
                *time += by;
            }
        }
    }
    sorted(rows)
}

/// A key under another name: longer, in the same order.
pub(super) fn other_name(key: &str) -> String {
    format!("n{key}")
}

fn renamed_rows(rows: &Rows) -> Rows {
    let mut rows = rows.clone();
    for cell in rows.iter_mut().flatten() {
        if let Cell::Text(key) = cell {
            *key = other_name(key);
        }
    }
    rows
}
