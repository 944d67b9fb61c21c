//! All good rows of one file, whatever is read of it besides.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExpr;
use futures::StreamExt;
use object_store::ObjectMeta;

use super::super::ReadEnv;
use super::listing::Listing;
use super::{lines, open};
use crate::config::OnBadRecord;

/// A file that is being read from its first row to its last.
pub(super) struct WholeFile {
    listing: Arc<Listing>,
    meta: ObjectMeta,
    columns: Vec<usize>,
    on_bad_record: OnBadRecord,
    env: ReadEnv,
    stream: SendableRecordBatchStream,
    /// Good rows given.
    given: u64,
    /// Rows still to pass over, given before the file was read line by line.
    skip: u64,
    /// Records left out so far because they could not be read.
    pub bad: u64,
}

impl WholeFile {
    /// Opens a file; none if it has gone. See [`open::open`] for what is `wanted` of it.
    ///
    /// # Errors
    /// - it cannot be read; the error names it
    pub(super) async fn open(
        listing: &Arc<Listing>,
        meta: ObjectMeta,
        columns: &[usize],
        wanted: Option<Arc<dyn PhysicalExpr>>,
        on_bad_record: OnBadRecord,
        env: &ReadEnv,
    ) -> Result<Option<Self>> {
        let stream = match open::open(listing, &meta, columns, wanted, env).await {
            Ok(stream) => stream,
            Err(_) if listing.is_gone(&meta).await => return Ok(None),
            Err(error) => return Err(lines::explain(listing, &meta, columns, env, error).await),
        };
        Ok(Some(Self {
            listing: Arc::clone(listing),
            meta,
            columns: columns.to_vec(),
            on_bad_record,
            env: env.clone(),
            stream,
            given: 0,
            skip: 0,
            bad: 0,
        }))
    }

    /// The next rows; none at the end.
    ///
    /// # Errors
    /// - a record that cannot be read, unless such are left out; the error names the file and the line
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let batch = match self.stream.next().await {
                None => return Ok(None),
                Some(Ok(batch)) => batch,
                Some(Err(error)) => {
                    let (listing, meta) = (&self.listing, &self.meta);
                    let (columns, env) = (&self.columns, &self.env);
                    let salvaged = match self.on_bad_record {
                        OnBadRecord::Skip => lines::salvage(listing, meta, columns, env).await?,
                        OnBadRecord::Fail => None,
                    };
                    let Some(salvaged) = salvaged else {
                        return Err(lines::explain(listing, meta, columns, env, error).await);
                    };
                    // Good rows come in the same order: those that were given are passed over.
                    (self.bad, self.skip) = (salvaged.bad, self.given);
                    self.stream = salvaged.rows;
                    continue;
                }
            };
            let rows = batch.num_rows();
            let passed = usize::try_from(self.skip).unwrap_or(usize::MAX).min(rows);
            self.skip -= passed as u64;
            if passed < rows {
                self.given += (rows - passed) as u64;
                return Ok(Some(batch.slice(passed, rows - passed)));
            }
        }
    }
}
