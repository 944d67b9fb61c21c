//! The leaf: one source's rows of the running epoch.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_datafusion_err, project_schema};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::StreamExt;

use super::epoch;
use crate::logical::StreamScan;

/// The event time of a stream, of its table's columns.
#[derive(Debug, Clone)]
pub struct EventTime {
    /// Over batches of the whole table's schema.
    pub expr: Arc<dyn PhysicalExpr>,
    /// The expression as a person reads it.
    pub text: String,
}

/// Reads the epoch's slice of a source, the columns that are needed, in as many partitions as the
/// session has.
pub struct StreamScanExec {
    name: String,
    provider: Arc<dyn TableProvider>,
    options: Vec<(String, String)>,
    columns: Vec<usize>,
    event_time: Option<EventTime>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for StreamScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamScanExec")
            .field("name", &self.name)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

impl StreamScanExec {
    /// Reads columns of a stream: indices into its table's schema, all if none are given.
    ///
    /// # Errors
    /// - an index is outside the schema
    pub fn try_new(
        stream: &StreamScan,
        projection: Option<&Vec<usize>>,
        partitions: usize,
        event_time: Option<EventTime>,
    ) -> Result<Self> {
        let table_schema = stream.provider.schema();
        let schema = project_schema(&table_schema, projection)?;
        let columns = projection
            .cloned()
            .unwrap_or_else(|| (0..table_schema.fields().len()).collect());
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions.max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            name: stream.name.clone(),
            provider: Arc::clone(&stream.provider),
            options: stream.options.clone(),
            columns,
            event_time,
            properties: Arc::new(properties),
        })
    }

    /// Name of the source.
    pub fn source_name(&self) -> &str {
        &self.name
    }

    /// The table that is read.
    pub fn provider(&self) -> &Arc<dyn TableProvider> {
        &self.provider
    }

    /// Options of the stream.
    pub fn options(&self) -> &[(String, String)] {
        &self.options
    }

    /// The event time of the stream, where its rows can be ordered by it.
    pub fn event_time(&self) -> Option<&EventTime> {
        self.event_time.as_ref()
    }

    /// Columns that are read, as indices into the table's schema.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }
}

impl DisplayAs for StreamScanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let schema = self.schema();
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        write!(
            f,
            "StreamScanExec: {}, columns=[{}]",
            self.name,
            names.join(", ")
        )
    }
}

impl ExecutionPlan for StreamScanExec {
    fn name(&self) -> &str {
        "StreamScanExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(self.properties.eq_properties.schema())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let epoch = epoch(&context)?;
        let partitions = self.properties.partitioning.partition_count();
        let mut batches = Vec::new();
        if let Some(slice) = epoch.sources.get(&self.name) {
            let positions = self
                .columns
                .iter()
                .map(|column| slice.columns.iter().position(|read| read == column))
                .collect::<Option<Vec<usize>>>()
                .ok_or_else(|| {
                    internal_datafusion_err!("a column of {} was not read", self.name)
                })?;
            if let Some(feed) = &slice.feed {
                let rows = futures::stream::try_unfold(Arc::clone(feed), move |feed| async move {
                    Ok(feed.next().await?.map(|batch| (batch, feed)))
                });
                let rows =
                    rows.map(move |batch: Result<RecordBatch>| Ok(batch?.project(&positions)?));
                return Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)));
            }
            for batch in slice.batches.iter().skip(partition).step_by(partitions) {
                batches.push(batch.project(&positions)?);
            }
        }
        Ok(Box::pin(MemoryStream::try_new(
            batches,
            self.schema(),
            None,
        )?))
    }
}
