//! What EXPLAIN ANALYZE shows of a run.

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};

use super::progress::EpochProgress;

/// Counts of all epochs of a run.
#[derive(Debug)]
pub(super) struct RunMetrics {
    epochs: Count,
    input_rows: Count,
    late_rows: Count,
    null_rows: Count,
    rejected_rows: Count,
    pub(super) output_rows: Count,
}

impl RunMetrics {
    pub(super) fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let counter = |name| MetricBuilder::new(metrics).global_counter(name);
        Self {
            epochs: counter("epochs"),
            input_rows: counter("input_rows"),
            late_rows: counter("late_rows"),
            null_rows: counter("null_rows"),
            rejected_rows: counter("rejected_rows"),
            output_rows: MetricBuilder::new(metrics).output_rows(0),
        }
    }

    pub(super) fn add(&self, epoch: &EpochProgress) {
        let rows = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
        self.epochs.add(1);
        self.input_rows.add(rows(epoch.input_rows));
        self.late_rows.add(rows(epoch.late_rows));
        self.null_rows.add(rows(epoch.null_rows));
        self.rejected_rows.add(rows(epoch.rejected_rows));
    }
}
