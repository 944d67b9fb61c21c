//! Merges runs, those that are of one window as it is merged when it closes and others with DataFusion's own
//! aggregate, and moves runs to other partitions.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::task::JoinSet;

use super::exchange::Exchange;
use super::windows::Windows;
use super::{GateInfo, TOGETHER, TOGETHER_BYTES};
use crate::config::OutputMode;
use crate::state::{FEW_ROWS, Fragments, GateState, Part, SharedSlices};

/// Runs that a slice may have before they are merged: more make a merge rarer, and a release read more.
const RUNS: usize = 32;

/// The same where every epoch seeks the groups that it touched in all runs.
const SEARCHED_RUNS: usize = 8;

/// What is needed to merge partial states: DataFusion's partial-to-partial aggregate.
#[derive(Debug)]
pub(crate) struct Reducer {
    pub group_by: PhysicalGroupBy,
    pub aggregates: Vec<Arc<AggregateFunctionExpr>>,
    /// Schema of the rows below the partial aggregate.
    pub raw_schema: SchemaRef,
}

/// Whether a memory pool had no room.
fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// A batch without the room that its columns had to grow: it stays for many epochs.
fn shrunk(batch: RecordBatch) -> Result<RecordBatch> {
    let (schema, mut columns, _) = batch.into_parts();
    for column in &mut columns {
        column.shrink_to_fit();
    }
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// Slices of one partition whose runs are merged by one task: those of few rows together.
#[derive(Debug)]
struct Share {
    partition: usize,
    slices: Vec<Fragments>,
    rows: usize,
    /// What the runs of the slices became, as far as there was room to merge them.
    merged: Vec<Vec<RecordBatch>>,
}

impl Share {
    /// Puts what was merged in its place. Whether that is all.
    fn put_back(self, state: &GateState) -> Result<bool> {
        let all = self.merged.len() == self.slices.len();
        for (fragments, merged) in self.slices.iter().zip(self.merged) {
            state.compacted(self.partition, fragments, merged)?;
        }
        Ok(all)
    }
}

/// The slices that have more runs than `limit`, one partition after the other.
fn shares(state: &GateState, partitions: usize, limit: usize) -> Result<Vec<Share>> {
    let mut shares: Vec<Share> = Vec::new();
    for partition in 0..partitions {
        for fragments in state.fragmented(partition, limit)? {
            let rows: usize = fragments.runs.iter().map(RecordBatch::num_rows).sum();
            match shares.last_mut() {
                Some(last) if last.partition == partition && last.rows < TOGETHER => {
                    last.slices.push(fragments);
                    last.rows += rows;
                }
                _ => shares.push(Share {
                    partition,
                    slices: vec![fragments],
                    rows,
                    merged: Vec::new(),
                }),
            }
        }
    }
    Ok(shares)
}

impl Reducer {
    /// Merges the runs of every slice that has too many: of many rows in several partitions side by side.
    pub(super) async fn compact(
        self: &Arc<Self>,
        state: &Arc<GateState>,
        partitions: usize,
        info: &Arc<GateInfo>,
        context: &Arc<TaskContext>,
    ) -> Result<()> {
        let limit = match info.mode {
            OutputMode::Update => SEARCHED_RUNS,
            OutputMode::Append | OutputMode::Complete => RUNS,
        };
        let shares = shares(state, partitions, limit)?;
        let rows: usize = shares.iter().map(|share| share.rows).sum();
        let fragmented: BTreeSet<usize> = shares.iter().map(|share| share.partition).collect();
        let at_once = fragmented.len();
        if at_once > 1 && rows > FEW_ROWS {
            return self.in_tasks(shares, at_once, state, info, context).await;
        }
        for share in shares {
            let merged = self.merged(share, state, info, context).await?;
            if !merged.put_back(state)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Merges shares in tasks, so many at once. The tasks only read: what they have merged is put in its place here,
    /// so that none of them changes the state when the caller has gone.
    async fn in_tasks(
        self: &Arc<Self>,
        shares: Vec<Share>,
        at_once: usize,
        state: &Arc<GateState>,
        info: &Arc<GateInfo>,
        context: &Arc<TaskContext>,
    ) -> Result<()> {
        let mut shares = shares.into_iter();
        let mut tasks: JoinSet<Result<Share>> = JoinSet::new();
        loop {
            for share in shares.by_ref().take(at_once.saturating_sub(tasks.len())) {
                let (reducer, state) = (Arc::clone(self), Arc::clone(state));
                let (info, context) = (Arc::clone(info), Arc::clone(context));
                tasks.spawn(async move { reducer.merged(share, &state, &info, &context).await });
            }
            let Some(merged) = tasks.join_next().await else {
                return Ok(());
            };
            let merged = merged.map_err(|error| DataFusionError::External(Box::new(error)))??;
            if !merged.put_back(state)? {
                // No more is begun.
                shares = Vec::new().into_iter();
            }
        }
    }

    /// Merges the slices of a share one after the other, until there is no room for one. The rest stay as they are,
    /// and are merged when there is room or when they are released.
    async fn merged(
        &self,
        mut share: Share,
        state: &GateState,
        info: &GateInfo,
        context: &Arc<TaskContext>,
    ) -> Result<Share> {
        for fragments in &share.slices {
            let merged = match state.as_window(fragments) {
                Some(window) => {
                    let one = self.as_one(window, info, context).await?;
                    one.map(|one| vec![one])
                }
                None => match self.merge(fragments.runs.clone(), context).await {
                    Ok(merged) => Some(merged),
                    Err(error) if is_exhausted(&error) => None,
                    Err(error) => return Err(error),
                },
            };
            match merged {
                Some(merged) => share.merged.push(merged),
                None => break,
            }
        }
        Ok(share)
    }

    /// The runs of one window as one. None where there is no room to merge them.
    async fn as_one(
        &self,
        window: SharedSlices,
        info: &GateInfo,
        context: &Arc<TaskContext>,
    ) -> Result<Option<RecordBatch>> {
        let memory = MemoryConsumer::new(info.name()).register(context.memory_pool());
        let Some(mut windows) = self.windows(info.keys, window, memory)? else {
            return Ok(None);
        };
        let one = windows.next().await.transpose()?;
        // Without room for their states the runs come as they are.
        if windows.next().await.is_some() {
            return Ok(None);
        }
        one.map(shrunk).transpose()
    }

    async fn merge(
        &self,
        runs: Vec<RecordBatch>,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<RecordBatch>> {
        let Some(schema) = runs.first().map(RecordBatch::schema) else {
            return Ok(runs);
        };
        let input = MemorySourceConfig::try_new_exec(&[runs], schema, None)?;
        let merge = AggregateExec::try_new(
            AggregateMode::PartialReduce,
            self.group_by.as_final(),
            self.aggregates.clone(),
            vec![None; self.aggregates.len()],
            input,
            Arc::clone(&self.raw_schema),
        )?;
        let merged = collect(Arc::new(merge), Arc::clone(context)).await?;
        let Some(first) = merged.first() else {
            return Ok(merged);
        };
        // One run; texts that do not fit one column stay in several.
        Ok(match concat_batches(&first.schema(), &merged) {
            Ok(one) => vec![one],
            Err(_) => merged,
        })
    }

    /// The windows of slices that they share, merged one after the other. Runs have so many keys. None where
    /// there is no memory to merge them in.
    pub(super) fn windows(
        &self,
        keys: usize,
        shared: SharedSlices,
        memory: MemoryReservation,
    ) -> Result<Option<BoxStream<'static, Result<RecordBatch>>>> {
        let run = shared.slices.iter().flatten().next();
        let Some(schema) = run.map(RecordBatch::schema) else {
            return Ok(Some(futures::stream::empty().boxed()));
        };
        let windows = Windows::try_new(schema, keys, &self.aggregates, shared, memory)?;
        Ok(windows.map(|windows| futures::stream::iter(windows).boxed()))
    }

    /// Partial state of the one group of an aggregate without GROUP BY, over no rows.
    pub(super) async fn of_nothing(&self, context: &Arc<TaskContext>) -> Result<RecordBatch> {
        let states = AggregateExec::try_new(
            AggregateMode::Partial,
            PhysicalGroupBy::new_single(vec![]),
            self.aggregates.clone(),
            vec![None; self.aggregates.len()],
            Arc::new(EmptyExec::new(Arc::clone(&self.raw_schema))),
            Arc::clone(&self.raw_schema),
        )?;
        let schema = AggregateExec::try_new(
            AggregateMode::Partial,
            self.group_by.clone(),
            self.aggregates.clone(),
            vec![None; self.aggregates.len()],
            Arc::new(EmptyExec::new(Arc::clone(&self.raw_schema))),
            Arc::clone(&self.raw_schema),
        )?
        .schema();
        let states = collect(Arc::new(states), Arc::clone(context)).await?;
        let states = states.first().map(RecordBatch::columns).unwrap_or_default();
        let slice: ArrayRef = Arc::new(Int64Array::from(vec![0_i64]));
        let columns = std::iter::once(slice)
            .chain(states.iter().cloned())
            .collect();
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    /// Spreads all runs of a gate over another number of partitions, by their keys.
    pub(super) fn spread(
        &self,
        state: &GateState,
        keys: Range<usize>,
        partitions: usize,
    ) -> Result<()> {
        let mut exchange = Exchange::new(keys, partitions);
        let mut parts: Vec<Vec<Part>> = Vec::new();
        parts.resize_with(partitions, Vec::new);
        let mut to = |partition: usize, part| {
            if let Some(parts) = parts.get_mut(partition) {
                parts.push(part);
            }
            Ok(())
        };
        let (mut together, mut bytes) = (Vec::new(), 0);
        for run in state.all_runs() {
            let run = run?;
            bytes += run.get_array_memory_size();
            together.push(run);
            if bytes >= TOGETHER_BYTES {
                exchange.route(&std::mem::take(&mut together), &mut to)?;
                bytes = 0;
            }
        }
        exchange.route(&together, &mut to)?;
        state.replace_all(parts)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::arrow::array::{Float64Array, StringArray};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
    use datafusion::functions_aggregate::average::avg_udaf;
    use datafusion::functions_aggregate::count::count_udaf;
    use datafusion::functions_aggregate::min_max::min_udaf;
    use datafusion::functions_aggregate::sum::sum_udaf;
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_plan::expressions::Column;

    use super::*;
    use crate::physical::Closing;
    use crate::state::{Epoch, GateShape, QueryState};
    use crate::time::{Closed, Span, Unit, WindowShape};

    const EPOCHS: i64 = 40;

    /// Count, sum, average and least of a column by slice and key.
    fn reducer() -> Arc<Reducer> {
        let raw_schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("key", DataType::Utf8, true),
            Field::new("v", DataType::Float64, true),
            Field::new("slice", DataType::Int64, false),
        ]));
        let column = |name: &str, at| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(name, at)) };
        let mut aggregates = Vec::new();
        for function in [count_udaf(), sum_udaf(), avg_udaf(), min_udaf()] {
            let name = format!("{}(v)", function.name());
            let aggregate = AggregateExprBuilder::new(function, vec![column("v", 1)])
                .schema(Arc::clone(&raw_schema))
                .alias(name)
                .build()
                .unwrap();
            aggregates.push(Arc::new(aggregate));
        }
        Arc::new(Reducer {
            group_by: PhysicalGroupBy::new_single(vec![
                (column("slice", 2), "slice".to_owned()),
                (column("key", 0), "0:key".to_owned()),
            ]),
            aggregates,
            raw_schema,
        })
    }

    /// The states of one epoch's rows: so many in each of two slices, with keys of which some come in each epoch.
    async fn states(reducer: &Reducer, epoch: i64, rows: i64) -> RecordBatch {
        let key = |row: i64| (row / 2 + epoch * 3) % (rows + 5);
        let keys = (0..rows * 2).map(|row| (key(row) != 3).then(|| format!("key {}", key(row))));
        let values =
            (0..rows * 2).map(|row| (row % 9 != 5).then_some((row * 37 + epoch) as f64 / 7.0));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(keys.collect::<StringArray>()),
            Arc::new(values.collect::<Float64Array>()),
            Arc::new(Int64Array::from_iter_values(
                (0..rows * 2).map(|row| row % 2 * 10),
            )),
        ];
        let schema = &reducer.raw_schema;
        let batch = RecordBatch::try_new(Arc::clone(schema), columns).unwrap();
        let input = MemorySourceConfig::try_new_exec(&[vec![batch]], Arc::clone(schema), None);
        let partial = AggregateExec::try_new(
            AggregateMode::Partial,
            reducer.group_by.clone(),
            reducer.aggregates.clone(),
            vec![None; reducer.aggregates.len()],
            input.unwrap(),
            Arc::clone(schema),
        );
        let states = collect(Arc::new(partial.unwrap()), Arc::default());
        let states = states.await.unwrap();
        concat_batches(&states[0].schema(), &states).unwrap()
    }

    fn info(shape: GateShape) -> Arc<GateInfo> {
        Arc::new(GateInfo {
            id: 0,
            label: String::new(),
            mode: OutputMode::Append,
            closing: Closing::Never,
            behind: Span::ZERO,
            shape,
            keys: 1,
            counts_late: false,
            windows: true,
            in_order: false,
        })
    }

    /// A gate of two partitions after some epochs.
    async fn gate(reducer: &Reducer, info: &GateInfo, rows: i64) -> Arc<GateState> {
        let (query, runtime) = (Arc::new(QueryState::default()), RuntimeEnv::default());
        let begin = || Epoch::new(0, None, false, HashMap::new(), Arc::clone(&query));
        let state = info.state(&begin());
        for number in 0..EPOCHS {
            let epoch = begin();
            for partition in 0..2 {
                let part = Part::whole(states(reducer, number + partition, rows).await);
                let absorbed = state.absorb(partition as usize, part, &epoch, &runtime);
                absorbed.unwrap();
            }
            state.commit(info.mode, Closed::None).unwrap();
        }
        state
    }

    fn runs(state: &GateState) -> Vec<RecordBatch> {
        state.all_runs().collect::<Result<_>>().unwrap()
    }

    /// The runs of every slice merged by DataFusion's aggregate.
    async fn reduced(reducer: &Reducer, state: &GateState) -> Vec<RecordBatch> {
        let mut reduced = Vec::new();
        let fragmented = (0..2).map(|partition| state.fragmented(partition, RUNS).unwrap());
        for fragments in fragmented.flatten() {
            assert_eq!(fragments.runs.len(), EPOCHS as usize);
            let merged = reducer.merge(fragments.runs, &Arc::default()).await;
            reduced.append(&mut merged.unwrap());
        }
        reduced
    }

    fn lines(runs: &[RecordBatch]) -> Vec<String> {
        let table = pretty_format_batches(runs).unwrap().to_string();
        let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn hopping() -> GateShape {
        GateShape::Hopping(WindowShape::new(Unit::Second, 20, 10, 0).unwrap())
    }

    #[tokio::test]
    async fn runs_of_a_window_become_one_as_by_the_aggregate() {
        let reducer = reducer();
        for shape in [GateShape::One, hopping()] {
            // Few rows are merged by the caller, many by tasks.
            for rows in [10, 300] {
                let info = info(shape);
                let state = gate(&reducer, &info, rows).await;
                let reduced = reduced(&reducer, &state).await;
                let compacted = reducer.compact(&state, 2, &info, &Arc::default()).await;
                compacted.unwrap();
                let runs = runs(&state);
                assert_eq!(runs.len(), 4);
                assert_eq!(lines(&runs), lines(&reduced));
            }
        }
    }

    #[tokio::test]
    async fn without_room_runs_stay_as_they_are_until_there_is_some() {
        let (reducer, info) = (reducer(), info(GateShape::One));
        let state = gate(&reducer, &info, 20).await;
        let reduced = reduced(&reducer, &state).await;
        for power in 4..24 {
            let pool = Arc::new(GreedyMemoryPool::new(1 << power));
            let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc();
            let context = TaskContext::default().with_runtime(runtime.unwrap());
            let compacted = reducer.compact(&state, 2, &info, &Arc::new(context)).await;
            compacted.unwrap();
            if power == 4 {
                assert_eq!(runs(&state).len(), 4 * EPOCHS as usize);
            }
        }
        assert_eq!(lines(&runs(&state)), lines(&reduced));
    }
}
