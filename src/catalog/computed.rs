//! Tables that are computed when they are read: what a table function gives whose answer is work.
//!
//! Naming the function does nothing; planning the query looks up what is needed; the work is done when the rows are
//! asked for, so that EXPLAIN never does it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

/// Does the work; may be called several times. It is made in a function that is not `async`: that its future may be sent
/// to other threads would be proved there with all that is in it, which takes the compiler half a minute.
pub(super) type Work = Box<dyn Fn(Arc<TaskContext>) -> SendableRecordBatchStream + Send + Sync>;

/// What a table function was asked.
#[async_trait]
pub(super) trait Computed: fmt::Debug + Send + Sync + 'static {
    /// Columns of the answer.
    fn schema(&self) -> &SchemaRef;

    /// Looks up in a session what the answer needs, and says how it is computed.
    ///
    /// # Errors
    /// - what is asked for is not there, or cannot be answered
    async fn plan(&self, session: &SessionState) -> Result<Work>;
}

/// The rows of an answer that is one batch.
pub(super) fn one_batch(
    schema: &SchemaRef,
    batch: impl Future<Output = Result<RecordBatch>> + Send + 'static,
) -> SendableRecordBatchStream {
    let rows = futures::stream::once(batch);
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows))
}

/// The answer to a question, as a table.
#[derive(Debug)]
pub(super) struct ComputedTable<C>(pub C);

#[async_trait]
impl<C: Computed> TableProvider for ComputedTable<C> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.0.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let session = session.as_any().downcast_ref::<SessionState>();
        let session =
            session.ok_or_else(|| internal_datafusion_err!("a session of another kind"))?;
        let rows = Rows {
            schema: self.schema(),
            work: self.0.plan(session).await?,
        };
        Ok(Arc::new(StreamingTableExec::try_new(
            self.schema(),
            vec![Arc::new(rows)],
            projection,
            None,
            false,
            limit,
        )?))
    }
}

/// The rows of an answer, computed by who asks for them.
struct Rows {
    schema: SchemaRef,
    work: Work,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Rows")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        (self.work)(context)
    }
}
