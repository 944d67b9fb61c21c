//! The result of a streaming table, and the records of the epochs that made it.

mod pieces;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::Result;

use self::pieces::{
    CORRECTED, EMITTED, EPOCHS, HIDDEN, HISTORY, KEPT, LATE, RESULT, TOTALS, columns_of,
    epoch_piece, from_json, json_row, log_pieces, number_of_first, retained_rows, signed,
};
use super::correcting::{Corrected, Correcting};
use super::late_columns::in_columns;
use super::replace_table::ReplaceTable;
use crate::checkpoint::{Piece, Restored, Until, Whole};
use crate::query::{EpochProgress, EpochRows, EpochSink, Totals};
use crate::sink::Sink;
use crate::source::{AppendLog, behind, conform};

/// Where the rows of the result are.
#[derive(Debug)]
pub(super) enum Rows {
    /// Append mode: rows accumulate.
    Append(Arc<AppendLog>),
    /// Update and complete mode: rows are replaced.
    Replace(Arc<ReplaceTable>),
    /// Rows leave for a sink; the table is what is read there.
    Sink {
        /// Where they go.
        sink: Arc<dyn Sink>,
        /// Id of the query, as the sink knows it.
        query: String,
        /// What reads them.
        provider: Arc<dyn TableProvider>,
    },
}

/// The rows of the result, and the records of the epochs that made them.
#[derive(Debug)]
pub(super) struct TableResult {
    pub schema: SchemaRef,
    pub rows: Rows,
    pub limit: Option<u64>,
    /// Rows that were not counted, if they are kept.
    pub late: Option<Arc<AppendLog>>,
    shown: Mutex<Shown>,
    /// Queries whose rows are to go from where they went before any of this one come, and who takes them away.
    former: Vec<(Arc<dyn Sink>, String)>,
    /// Whether the sinks have been told how far the query is.
    begun: Mutex<bool>,
    /// How many rows of each source committed epochs have read, where a source's rows are numbered.
    reached: Mutex<BTreeMap<String, u64>>,
    /// What the last correction had seen.
    corrected: Mutex<Option<Corrected>>,
    /// Whether the checkpoint has rows that were not counted in other columns than the table: the next epoch writes
    /// them again.
    widened: AtomicBool,
}

/// What is shown of the epochs.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Records of the last epochs, oldest first.
    pub history: VecDeque<EpochProgress>,
    /// The last epoch, and its rows.
    pub emitted: Option<(u64, Vec<RecordBatch>)>,
    /// Whether those rows are still to be handed to the sink.
    undelivered: bool,
    pub totals: Totals,
}

impl TableResult {
    pub(super) fn new(schema: SchemaRef, rows: Rows, limit: Option<u64>) -> Self {
        Self {
            schema,
            rows,
            limit,
            late: None,
            shown: Mutex::default(),
            former: Vec::new(),
            begun: Mutex::default(),
            reached: Mutex::default(),
            corrected: Mutex::default(),
            widened: AtomicBool::default(),
        }
    }

    /// The result of a query that takes the place of others.
    pub(super) fn in_place_of(mut self, former: Vec<(Arc<dyn Sink>, String)>) -> Self {
        self.former = former;
        self
    }

    /// The result of a query that keeps the rows which it does not count.
    pub(super) fn with_late(mut self, late: Option<Arc<AppendLog>>) -> Self {
        self.late = late;
        self
    }

    pub(super) fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how many rows of its sources have been read.
    pub(super) fn reach(&self, rows: Vec<(String, u64)>) {
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.extend(rows);
    }

    /// How many rows of a source have been read for good.
    pub(super) fn reached(&self, source: &str) -> u64 {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.get(source).copied().unwrap_or_default()
    }

    /// What the last correction had seen; none if there was no correction.
    pub(super) fn corrected(&self) -> Option<Corrected> {
        *self
            .corrected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of rows that have been emitted into it, or that it has where they are replaced.
    pub(super) fn count(&self) -> u64 {
        match &self.rows {
            Rows::Append(log) => log.rows(),
            Rows::Replace(table) => table.rows(),
            Rows::Sink { .. } => self.shown().totals.output_rows,
        }
    }

    /// An epoch's rows as they are kept: with the result's columns, and no more than there is room for. What could not
    /// be kept, or not be handed on, is refused here, while the epoch can be undone.
    fn taken(&self, rows: EpochRows) -> Result<EpochRows> {
        let late = rows.late;
        let rows = rows
            .emitted
            .iter()
            .map(|batch| conform(batch, &self.schema));
        let rows = rows.collect::<Result<Vec<_>>>()?;
        if let Rows::Replace(table) = &self.rows {
            table.check(&rows)?;
        }
        let room = match &self.rows {
            Rows::Replace(_) => None,
            Rows::Append(_) | Rows::Sink { .. } => {
                self.limit.map(|limit| limit.saturating_sub(self.count()))
            }
        };
        let emitted = within(rows, room);
        if let Rows::Sink { sink, .. } = &self.rows {
            sink.check(&self.schema, &emitted)?;
        }
        Ok(EpochRows { emitted, late })
    }

    /// Takes an epoch's rows; returns its record with the number of rows that were taken.
    pub(super) fn commit(
        &self,
        rows: EpochRows,
        progress: EpochProgress,
        correcting: Option<&Correcting>,
    ) -> Result<EpochProgress> {
        let (rows, late) = (rows.emitted, rows.late);
        if let Some(log) = &self.late {
            log.append(&late)?;
        }
        match (&self.rows, correcting) {
            (Rows::Append(log), None) => log.append(&rows)?,
            (Rows::Append(log), Some(correcting)) => log.append_over(&rows, correcting.hidden())?,
            (Rows::Replace(table), None) => table.replace(rows.clone())?,
            (Rows::Replace(table), Some(correcting)) => {
                table.restore(&correcting.written_over(table, &rows)?)?;
            }
            (Rows::Sink { .. }, _) => {}
        }
        self.widened.store(false, Ordering::SeqCst);
        if let Some(correcting) = correcting {
            *self
                .corrected
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(correcting.corrected());
        }
        let progress = counted(&rows, progress);
        let mut shown = self.shown();
        shown.emitted = Some((progress.epoch, rows));
        shown.undelivered = true;
        shown.totals.add(&progress);
        shown.history.push_back(progress.clone());
        if shown.history.len() > HISTORY {
            shown.history.pop_front();
        }
        Ok(progress)
    }

    /// Whether rows go to a sink, or are to be removed from one.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self.rows, Rows::Sink { .. }) || !self.former.is_empty()
    }

    /// Hands the last epoch's rows to the sink, if they were not.
    pub(super) async fn deliver(&self, next: u64) -> Result<()> {
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if !begun {
            for (sink, former) in &self.former {
                sink.begin(former, 0).await?;
            }
            if let Rows::Sink { sink, query, .. } = &self.rows {
                sink.begin(query, next).await?;
            }
            *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
        let Rows::Sink { sink, query, .. } = &self.rows else {
            return Ok(());
        };
        let waiting = {
            let shown = self.shown();
            shown.emitted.clone().filter(|_| shown.undelivered)
        };
        if let Some((epoch, rows)) = waiting {
            let delivered = sink.deliver(query, epoch, &self.schema, &rows).await;
            if delivered.is_err() {
                // Where the rows go may not be as the sink knows it: it looks again.
                *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = false;
            }
            delivered?;
            self.shown().undelivered = false;
        }
        Ok(())
    }

    /// The pieces of a checkpoint with an epoch's rows and its record.
    fn pieces(
        &self,
        rows: &EpochRows,
        progress: &EpochProgress,
        correcting: Option<&Correcting>,
    ) -> Result<Vec<Piece>> {
        let (rows, late) = (&rows.emitted, &rows.late);
        let progress = counted(rows, progress.clone());
        let mut totals = self.shown().totals;
        totals.add(&progress);
        let mut pieces = vec![
            Piece::replacing(TOTALS, vec![json_row(&totals)?]),
            epoch_piece(&progress)?,
        ];
        if let Some(log) = &self.late {
            pieces.extend(self.late_pieces(log, late)?);
        }
        pieces.extend(self.correction_pieces(correcting)?);
        match &self.rows {
            Rows::Replace(table) if correcting.is_some() => {
                let all = correcting.map(|correcting| correcting.written_over(table, rows));
                let all = all.transpose()?.unwrap_or_default();
                pieces.push(Piece::replacing(RESULT, all));
                pieces.push(Piece::replacing(EMITTED, rows.to_vec()));
            }
            Rows::Append(log) => pieces.extend(log_pieces(&KEPT, log, rows)?),
            Rows::Sink { .. } => pieces.push(Piece::replacing(EMITTED, rows.to_vec())),
            Rows::Replace(table) if table.has_key() => {
                let mut result = Piece::new(RESULT, rows.to_vec());
                let (table, added) = (Arc::clone(table), rows.to_vec());
                result.whole = Some(Whole {
                    rows: table.rows(),
                    all: Box::new(move || table.replaced(added.clone())),
                });
                pieces.extend([result, Piece::replacing(EMITTED, rows.to_vec())]);
            }
            Rows::Replace(_) => pieces.push(Piece::replacing(RESULT, rows.to_vec())),
        }
        Ok(pieces)
    }

    /// The pieces of the rows that were not counted; all of them where they have come into other columns.
    fn late_pieces(&self, log: &AppendLog, late: &[RecordBatch]) -> Result<Vec<Piece>> {
        let mut pieces = log_pieces(&LATE, log, late)?;
        if self.widened.load(Ordering::SeqCst)
            && let Some(rows) = pieces.first_mut()
        {
            *rows = Piece::replacing(LATE.rows, [log.snapshot(), late.to_vec()].concat());
        }
        Ok(pieces)
    }

    /// The pieces that say what was corrected: none where nothing ever was.
    fn correction_pieces(&self, correcting: Option<&Correcting>) -> Result<Vec<Piece>> {
        let last = correcting.map(Correcting::corrected).or(self.corrected());
        let Some(last) = last else {
            return Ok(Vec::new());
        };
        let mut pieces = vec![Piece::replacing(CORRECTED, vec![json_row(&last)?])];
        if let Rows::Append(log) = &self.rows {
            let numbers = correcting.map_or(&[][..], Correcting::hidden);
            let numbers = numbers.iter().map(|row| signed(*row));
            let numbers = Int64Array::from_iter_values(numbers);
            let numbers = RecordBatch::try_from_iter([(HIDDEN, Arc::new(numbers) as ArrayRef)])?;
            let mut hidden = Piece::new(HIDDEN, vec![numbers]);
            let base = signed(log.base());
            hidden.until = Some(Until {
                column: 0,
                gone: Box::new(move |row| row < base),
            });
            pieces.push(hidden);
        }
        Ok(pieces)
    }

    /// Goes back to what a checkpoint holds.
    pub(super) fn restore(&self, restored: &Restored) -> Result<()> {
        let piece = |name: &str| restored.pieces.get(name).cloned().unwrap_or_default();
        let totals = piece(TOTALS)
            .first()
            .map(|row| from_json::<Totals>(row, 0))
            .transpose()?;
        let mut history = VecDeque::new();
        for batch in piece(EPOCHS) {
            for row in 0..batch.num_rows() {
                history.push_back(from_json::<EpochProgress>(&batch.project(&[1])?, row)?);
            }
        }
        while history.len() > HISTORY {
            history.pop_front();
        }
        let result = piece(RESULT);
        let mut emitted = piece(EMITTED);
        if let Some(log) = &self.late {
            let kept = piece(LATE.rows);
            let others = |batch: &RecordBatch| batch.schema() != *log.schema();
            self.widened
                .store(kept.iter().any(others), Ordering::SeqCst);
            let rows = kept.iter().map(|batch| in_columns(batch, log.schema()));
            let rows = rows.collect::<Result<Vec<_>>>()?;
            let stored: u64 = rows.iter().map(|batch| batch.num_rows() as u64).sum();
            let end = columns_of::<1>(&LATE.end.map(piece).unwrap_or_default())?;
            let end = end.first().map_or(stored, |[end]| end.unsigned_abs());
            let start = end.saturating_sub(stored);
            let (first, arrivals) = retained_rows(&piece(LATE.first), &piece(LATE.arrived))?;
            log.restore(start, first.max(start), &rows, arrivals)?;
        }
        let corrected = piece(CORRECTED);
        let corrected = corrected.first().map(|row| from_json::<Corrected>(row, 0));
        *self
            .corrected
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = corrected.transpose()?;
        match &self.rows {
            Rows::Append(log) => {
                let hidden = columns_of::<1>(&piece(HIDDEN))?.into_iter();
                let hidden: Vec<u64> = hidden.map(|[row]| row.unsigned_abs()).collect();
                log.hide(&hidden);
                let start = number_of_first(&result, totals.as_ref());
                let (first, arrivals) = retained_rows(&piece(KEPT.first), &piece(KEPT.arrived))?;
                log.restore(start, first.max(start), &result, arrivals)?;
                let last = history
                    .back()
                    .map_or(0, |last: &EpochProgress| last.output_rows);
                emitted = behind(
                    &result,
                    log.rows().saturating_sub(last.saturating_add(start)),
                );
            }
            Rows::Replace(table) => {
                table.restore(&result)?;
                if !table.has_key() {
                    emitted = result;
                }
            }
            Rows::Sink { .. } => {}
        }
        let mut shown = self.shown();
        shown.emitted = history.back().map(|last| (last.epoch, emitted));
        shown.undelivered = shown.emitted.is_some();
        shown.history = history;
        shown.totals = totals.unwrap_or_default();
        drop(shown);
        // The sink may be ahead of what is restored.
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = false;
        Ok(())
    }
}

/// The columns of the rows that were not counted, as a checkpoint has them; none where it has no such row.
pub(super) fn late_columns(restored: &Restored) -> Option<SchemaRef> {
    let rows = restored.pieces.get(LATE.rows)?.first()?;
    Some(rows.schema())
}

/// A record with the number of rows that were taken.
fn counted(rows: &[RecordBatch], mut progress: EpochProgress) -> EpochProgress {
    progress.output_rows = rows.iter().map(|batch| batch.num_rows() as u64).sum();
    progress
}

/// The first rows, so many as there is room for.
fn within(rows: Vec<RecordBatch>, room: Option<u64>) -> Vec<RecordBatch> {
    let Some(mut room) = room else {
        return rows;
    };
    let mut kept = Vec::new();
    for batch in rows {
        let length = usize::try_from(room)
            .unwrap_or(usize::MAX)
            .min(batch.num_rows());
        if length > 0 {
            kept.push(batch.slice(0, length));
        }
        room -= length as u64;
    }
    kept
}

/// One run of a query: epochs go to the result, and their records to whoever asked for it.
#[derive(Debug)]
pub(super) struct Refreshing {
    pub result: Arc<TableResult>,
    records: Mutex<Vec<EpochProgress>>,
    /// What the run writes over the result, if it is one that does.
    correcting: Option<Correcting>,
}

impl Refreshing {
    pub(super) fn new(result: Arc<TableResult>) -> Self {
        Self {
            result,
            records: Mutex::default(),
            correcting: None,
        }
    }

    /// The run that writes over the result.
    pub(super) fn correcting(mut self, correcting: Option<Correcting>) -> Self {
        self.correcting = correcting;
        self
    }

    /// The records of the epochs that have committed.
    pub(super) fn take_records(&self) -> Vec<EpochProgress> {
        std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl EpochSink for Refreshing {
    fn prepare(&self, rows: EpochRows) -> Result<EpochRows> {
        let mut rows = self.result.taken(rows)?;
        if let Some(correcting) = &self.correcting {
            let written = conform(correcting.rows(), &self.result.schema)?;
            rows.emitted.push(written);
        }
        Ok(rows)
    }

    fn pieces(&self, rows: &EpochRows, progress: &EpochProgress) -> Result<Vec<Piece>> {
        self.result.pieces(rows, progress, self.correcting.as_ref())
    }

    fn restore(&self, restored: &Restored) -> Result<()> {
        self.result.restore(restored)
    }

    fn reached(&self, rows: Vec<(String, u64)>) {
        self.result.reach(rows);
    }

    async fn ready(&self, next: u64) -> Result<()> {
        self.result.deliver(next).await
    }

    async fn commit(&self, rows: EpochRows, progress: EpochProgress) -> Result<()> {
        let correcting = self.correcting.as_ref();
        let progress = self.result.commit(rows, progress, correcting)?;
        let next = progress.epoch.saturating_add(1);
        self.records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(progress);
        self.result.deliver(next).await
    }
}
