//! The rows that a log had when a query first started: one part, in memory.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, internal_err};

use super::{EventTime, Extent, Histogram, Place, Snapshot, Stretch, Taken};
use crate::source::append_log::LogReader;
use crate::source::position::{ReadUntil, RowsInOrder};
use crate::source::{AppendTable, Arrival, Position, Reader};

/// Rows of a log from one number to another.
pub(super) struct RowsSnapshot {
    table: Arc<dyn TableProvider>,
    first: u64,
    end: u64,
    /// Rows that were read before the snapshot was opened.
    read: u64,
    by: String,
    extent: Extent,
    current: Option<(LogReader, u64)>,
}

impl RowsSnapshot {
    /// The rows that are there now, or those of a position.
    ///
    /// # Errors
    /// - the event time cannot be computed
    pub(super) fn take(
        provider: &Arc<dyn TableProvider>,
        table: &AppendTable,
        from: Option<Position>,
        time: &EventTime,
    ) -> Result<Taken> {
        let log = table.log();
        let (first, end, read, begun) = match from {
            Some(Position::Ordered(rows)) => (rows.first, rows.end, rows.read, true),
            _ => (log.base(), log.rows(), 0, false),
        };
        let schema = provider.schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let ticks = time.of(&schema, &all)?;
        let (mut extent, mut counts) = (Extent::default(), Histogram::default());
        for batch in log.between(first, end) {
            let places = ticks.of(&batch)?;
            extent.add(places.iter());
            if !begun {
                counts.add(places.iter().flatten());
            }
        }
        let snapshot = Self {
            table: Arc::clone(provider),
            first,
            end,
            read,
            by: time.by().to_owned(),
            extent,
            current: None,
        };
        Ok(Taken {
            snapshot: Box::new(snapshot),
            counts: (!begun).then_some(counts),
        })
    }
}

#[async_trait]
impl Snapshot for RowsSnapshot {
    fn extents(&self) -> Vec<Extent> {
        vec![self.extent]
    }

    async fn begin(
        &mut self,
        _part: usize,
        columns: &[usize],
        _stretch: &Stretch,
        _counted: bool,
    ) -> Result<()> {
        let Some(table) = self.table.downcast_ref::<AppendTable>() else {
            return internal_err!("a snapshot of rows is one of a log");
        };
        let reader = table.read(columns, Some(Position::Rows(self.first)));
        self.current = Some((reader, self.end.saturating_sub(self.first)));
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some((reader, left)) = &mut self.current else {
            return Ok(None);
        };
        if *left > 0
            && let Arrival::Rows(batch) = reader.next().await?
        {
            let rows = usize::try_from(*left)
                .unwrap_or(usize::MAX)
                .min(batch.num_rows());
            *left -= rows as u64;
            return Ok(Some(batch.slice(0, rows)));
        }
        self.current = None;
        Ok(None)
    }

    fn position(&self, read: u64, from: Option<Place>) -> Position {
        match from {
            None => Position::Rows(self.end),
            Some(from) => Position::Ordered(RowsInOrder {
                first: self.first,
                end: self.end,
                read: self.read.saturating_add(read),
                until: ReadUntil {
                    by: self.by.clone(),
                    from,
                },
            }),
        }
    }
}
