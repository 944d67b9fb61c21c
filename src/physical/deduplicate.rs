//! Lets the first row of each key through.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{filter, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::repartition::BatchPartitioner;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, Partitioning, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};

use super::aside::{Aside, Left};
use super::closing::ticks;
use super::stateful::{Added, Stateful};
use super::{epoch, one_child};
use crate::checkpoint::Piece;
use crate::config::shown_columns;
use crate::state::{Candidates, DedupState, Epoch, Fates, OperatorCounts, Reason};
use crate::time::{Closed, Instant, Span, Unit};

/// Which rows are alike, and how long a key is held.
#[derive(Debug, Clone)]
pub(super) struct DeduplicateInfo {
    /// Number of the operator in the query.
    pub id: usize,
    /// Columns that get through: so many of the input's first.
    pub outputs: usize,
    /// Key columns behind them.
    pub keys: usize,
    /// Unit of the event time, the column behind the keys.
    pub unit: Unit,
    /// Ticks after the event time of its row for which a key is held.
    pub hold: i64,
    /// Whether rows are judged late here.
    pub judges: bool,
    /// Whether the row as it reached its clause is behind the event time: rows that are not counted are kept.
    pub keeps_rows: bool,
}

impl DeduplicateInfo {
    /// Where the key columns are in the input; the event time is right behind them.
    fn key_range(&self) -> std::ops::Range<usize> {
        self.outputs..self.outputs + self.keys
    }
}

/// Input columns `outputs …, keys …, event time`, and the row as it reached its clause if it is kept; output columns `outputs …`.
#[derive(Debug)]
pub struct DeduplicateExec {
    input: Arc<dyn ExecutionPlan>,
    info: DeduplicateInfo,
    properties: Arc<PlanProperties>,
}

impl DeduplicateExec {
    pub(super) fn try_new(input: Arc<dyn ExecutionPlan>, info: DeduplicateInfo) -> Result<Self> {
        let columns: Vec<usize> = (0..info.outputs).collect();
        let schema = Arc::new(input.schema().project(&columns)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Final,
            input.boundedness(),
        );
        Ok(Self {
            input,
            info,
            properties: Arc::new(properties),
        })
    }

    fn key_columns(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        let schema = self.input.schema();
        let keys = self.info.key_range();
        keys.map(|at| Arc::new(Column::new(schema.field(at).name(), at)) as _)
            .collect()
    }

    /// The row as it reached its clause, if rows that are not counted are kept.
    fn row(&self) -> Option<Arc<dyn PhysicalExpr>> {
        let at = self.info.key_range().end + 1;
        let schema = self.input.schema();
        let field = schema.fields().get(at)?;
        let row = || Arc::new(Column::new(field.name(), at)) as _;
        self.info.keeps_rows.then(row)
    }

    fn key_types(&self) -> Vec<DataType> {
        let schema = self.input.schema();
        let keys = self.info.key_range();
        keys.map(|at| schema.field(at).data_type().clone())
            .collect()
    }

    fn state(&self, epoch: &Epoch) -> Result<Arc<DedupState>> {
        let id = self.info.id;
        epoch.state.dedup(id, |turn| {
            DedupState::try_new(self.label(), self.key_types(), turn)
        })
    }

    /// Times that the watermark has reached.
    fn reached(&self, watermark: Option<Instant>) -> Closed {
        watermark.map_or(Closed::None, |watermark| {
            Closed::Through(self.info.unit.floor(watermark))
        })
    }

    /// The rows of a batch that may get through; late ones, and those without a time, leave.
    fn candidates(
        &self,
        batch: &RecordBatch,
        closed: Closed,
        fates: &mut Fates,
        aside: Option<&Aside>,
    ) -> Result<Candidates> {
        let times = ticks(batch.column(self.info.key_range().end))?;
        let fits = |tick: i64| !closed.contains(tick);
        let stays: BooleanArray = times
            .iter()
            .map(|tick| Some(tick.is_some_and(fits)))
            .collect();
        let accepted = stays.true_count() as u64;
        let null = times.null_count() as u64;
        fates.add(Fates {
            accepted,
            null,
            late: (times.len() as u64).saturating_sub(accepted + null),
            rejected: 0,
        });
        if let Some(aside) = aside {
            let left = (0..stays.len()).filter(|row| !stays.value(*row));
            let left = left.map(|row| {
                let reason = match times.is_null(row) {
                    true => Reason::Null,
                    false => Reason::Late,
                };
                Left::windowless(row, reason)
            });
            aside.put(batch, &left.collect::<Vec<_>>(), self.info.unit)?;
        }
        let batch = filter_record_batch(batch, &stays)?;
        let times = Int64Array::new(times.values().clone(), None);
        let outputs: Vec<usize> = (0..self.info.outputs).collect();
        Ok(Candidates {
            keys: batch
                .columns()
                .get(self.info.key_range())
                .unwrap_or_default()
                .to_vec(),
            times: ticks_of(&filter(&times, &stays)?),
            rows: batch.project(&outputs)?,
        })
    }

    fn release(
        &self,
        partition: usize,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let batches = self.state(&*epoch(context)?)?.release(partition);
        Ok(Box::pin(MemoryStream::try_new(
            batches,
            self.schema(),
            None,
        )?))
    }
}

fn ticks_of(array: &datafusion::arrow::array::ArrayRef) -> Int64Array {
    use datafusion::arrow::array::AsArray;
    array.as_primitive().clone()
}

#[async_trait]
impl Stateful for DeduplicateExec {
    fn label(&self) -> String {
        format!("Deduplicate {}", self.info.id)
    }

    fn intakes(&self) -> usize {
        self.input.output_partitioning().partition_count()
    }

    fn fit(&self, context: &TaskContext) -> Result<()> {
        let epoch = &*epoch(context)?;
        let state = self.state(epoch)?;
        if let Some(keys) = epoch.state.saved_piece(&self.label()) {
            state.restore(&keys, self.reached(epoch.started_at))?;
            epoch.state.forget_piece(&self.label());
        }
        let partitions = self.intakes();
        if state.partitions() == partitions || state.partitions() == 0 {
            return Ok(());
        }
        let (keys, expiries) = state.take_all()?;
        if partitions == 1 || keys.is_empty() {
            return state.put(0, &keys, &expiries).map(|_| ());
        }
        let fields: Vec<Field> = self
            .key_types()
            .into_iter()
            .chain([DataType::Int64])
            .enumerate()
            .map(|(at, data_type)| Field::new(at.to_string(), data_type, true))
            .collect();
        let count = keys.len();
        let columns = keys.into_iter().chain([Arc::new(expiries) as _]).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let hashed = (0..count)
            .map(|at| Arc::new(Column::new(&at.to_string(), at)) as _)
            .collect();
        let mut partitioner = BatchPartitioner::try_new(
            Partitioning::Hash(hashed, partitions),
            Time::default(),
            0,
            1,
        )?;
        partitioner.partition(batch, |partition, batch| {
            let (keys, expiries) = batch.columns().split_at(count);
            match expiries.first() {
                Some(expiries) => {
                    state.put(partition, keys, &ticks_of(expiries))?;
                    Ok(())
                }
                None => Ok(()),
            }
        })
    }

    async fn absorb(&self, partition: usize, context: Arc<TaskContext>) -> Result<()> {
        let epoch = epoch(&context)?;
        let state = self.state(&epoch)?;
        if state.absorbed(partition) {
            return Ok(());
        }
        let closed = if self.info.judges {
            self.reached(epoch.started_at)
        } else {
            Closed::None
        };
        let runtime = context.runtime_env();
        let mut input = self.input.execute(partition, Arc::clone(&context))?;
        let aside = Aside::new(self.row().as_ref(), &self.label(), &epoch);
        let mut fates = Fates::default();
        let mut candidates = Vec::new();
        while let Some(batch) = input.next().await {
            candidates.push(self.candidates(&batch?, closed, &mut fates, aside.as_ref())?);
        }
        state.note(fates, epoch.turn());
        state.absorb(
            partition,
            &self.schema(),
            &candidates,
            self.info.hold,
            &epoch,
            &runtime,
        )
    }

    fn added(&self, epoch: &Epoch) -> Result<Added> {
        Ok(Added::Keys(self.state(epoch)?.added()?))
    }

    fn pieces(&self, epoch: &Epoch, added: Added) -> Result<Vec<Piece>> {
        let Added::Keys(added) = added else {
            return internal_err!("a deduplication is given the keys that it has added");
        };
        let closed = self.reached(epoch.reached());
        Ok(vec![self.state(epoch)?.piece(&self.label(), added, closed)])
    }

    fn made_of(&self) -> Vec<(String, String)> {
        let schema = self.input.schema();
        let keys = schema
            .fields()
            .get(self.info.key_range())
            .unwrap_or_default();
        let hold =
            Span::from_nanos(i128::from(self.info.hold) * i128::from(self.info.unit.nanos()));
        vec![
            ("keys".to_owned(), shown_columns(keys)),
            ("held behind the event time".to_owned(), hold.to_string()),
        ]
    }

    fn commit(&self, epoch: &Epoch) -> Result<OperatorCounts> {
        let closed = if epoch.closing {
            Closed::All
        } else {
            self.reached(epoch.reached())
        };
        Ok(self.state(epoch)?.commit(closed))
    }
}

impl DisplayAs for DeduplicateExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let keys: Vec<String> = self.key_columns().iter().map(ToString::to_string).collect();
        write!(
            f,
            "DeduplicateExec: keys=[{}], state=evicted when its time closes",
            keys.join(", ")
        )
    }
}

impl ExecutionPlan for DeduplicateExec {
    fn name(&self) -> &str {
        "DeduplicateExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(self.properties.eq_properties.schema())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::KeyPartitioned(self.key_columns())])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::try_new(
            one_child(children)?,
            self.info.clone(),
        )?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if self.state(&*epoch(&context)?)?.absorbed(partition) {
            return self.release(partition, &context);
        }
        let node = Self::try_new(Arc::clone(&self.input), self.info.clone())?;
        let stream = futures::stream::once(async move {
            node.absorb(partition, Arc::clone(&context)).await?;
            node.release(partition, &context)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream.try_flatten(),
        )))
    }
}
