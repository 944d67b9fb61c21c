//! The rows of each group, of every kind apart.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::streaming::StreamingTable as PartitionTable;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::LogicalPlan;

use super::closing::{Windows, in_windows};
use super::figures::Figures;
use super::groups::{Groups, Keys, counted_schema};
use super::plans::{aggregate_of, clause_of, counted, late_leaf, narrow, over_clause, widen};
use super::rest::Rest;
use super::snapshot::Snapshot;

/// What of the input of each group arrived, and of that what did not reach the published row for a known reason.
pub(super) struct Counts {
    pub recount: Groups,
    unread: Option<Groups>,
    /// In the order of [`LATE`].
    late: [Option<Groups>; 5],
}

impl Counts {
    pub(super) async fn of(
        snapshot: &Snapshot,
        keys: &Keys,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let input = aggregate_of(&snapshot.query)?.input.as_ref().clone();
        let recount = groups_of(snapshot, keys, input, false, context).await?;
        let unread = match &snapshot.unread {
            Some(unread) => {
                let input = aggregate_of(unread)?.input.as_ref().clone();
                Some(groups_of(snapshot, keys, input, false, context).await?)
            }
            None => None,
        };
        let mut late = [const { None }; 5];
        if let Some(rows) = &snapshot.late {
            let [corrected, of_guard] = rows.corrected.each_ref().map(Vec::as_slice);
            let seen = snapshot.corrected.and_then(|seen| seen.watermark);
            // A session says by itself whether it holds them: there they are counted once.
            let kept_open: &[RecordBatch] = match snapshot.shape.is_session() {
                true => &[],
                false => of_guard,
            };
            let all = [
                (rows.late.as_slice(), Windows::Missed),
                (rows.guarded.as_slice(), Windows::OpenBy(None)),
                (kept_open, Windows::OpenBy(seen)),
                (corrected, Windows::Missed),
                (of_guard, Windows::ClosedBy(seen)),
            ];
            for (groups, (rows, windows)) in late.iter_mut().zip(all) {
                if let Some(input) = late_input(snapshot, rows, windows)? {
                    *groups = Some(groups_of(snapshot, keys, input, false, context).await?);
                }
            }
        }
        Ok(Self {
            recount,
            unread,
            late,
        })
    }

    /// All but the recount.
    pub(super) fn parts(&self) -> Vec<(Part, &Groups)> {
        let late = LATE.into_iter().zip(&self.late);
        let all = std::iter::once((Part::Unread, &self.unread)).chain(late);
        all.filter_map(|(part, groups)| Some((part, groups.as_ref()?)))
            .collect()
    }
}

/// What the rows of a table of late rows are: late, guarded, guarded in windows that were open when the others of their
/// time were corrected, and those that were put in.
const LATE: [Part; 5] = [
    Part::Late,
    Part::Guarded,
    Part::Guarded,
    Part::CorrectedLate,
    Part::CorrectedGuarded,
];

/// What rows that were counted apart are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Unread,
    Late,
    Guarded,
    /// Of the late and the guarded ones, those that a correction has put in.
    CorrectedLate,
    CorrectedGuarded,
}

impl Part {
    /// Where a window counts them.
    pub(super) fn of_window(self, figures: &mut Figures) -> &mut i64 {
        match self {
            Self::Unread => &mut figures.unread,
            Self::Late => &mut figures.late,
            Self::Guarded => &mut figures.guarded,
            Self::CorrectedLate | Self::CorrectedGuarded => &mut figures.corrected,
        }
    }

    /// Where a session counts them, which says by itself whether it holds what was corrected.
    pub(super) fn of_session(self, figures: &mut Figures) -> &mut i64 {
        match self {
            Self::CorrectedLate => &mut figures.late,
            Self::CorrectedGuarded => &mut figures.guarded,
            other => other.of_window(figures),
        }
    }
}

/// The groups of the query over this input of its aggregate, counted.
pub(super) async fn groups_of(
    snapshot: &Snapshot,
    keys: &Keys,
    input: LogicalPlan,
    having: bool,
    context: &Arc<TaskContext>,
) -> Result<Groups> {
    let plan = counted(
        &snapshot.query,
        input,
        &snapshot.shape,
        snapshot.watermark,
        having,
    )?;
    let rows = snapshot.run(&plan, context).await?;
    Groups::new(keys, &counted_schema(&snapshot.schema), &rows)
}

/// The input of the aggregate that some late rows are, in the windows that are meant.
fn late_input(
    snapshot: &Snapshot,
    rows: &[RecordBatch],
    windows: Windows,
) -> Result<Option<LogicalPlan>> {
    let (Some(late), Some(clause)) = (&snapshot.late, clause_of(&snapshot.query)) else {
        return Ok(None);
    };
    if rows.iter().all(|batch| batch.num_rows() == 0) {
        return Ok(None);
    }
    let leaf = late_leaf(clause.input.schema(), &late.schema, rows.to_vec())?;
    let aggregate = aggregate_of(&snapshot.query)?;
    let input = over_clause(&aggregate.input, &leaf)?;
    in_windows(input, aggregate, &snapshot.shape, windows).map(Some)
}

/// What must be published of all groups: the query over what was read, without what was late.
pub(super) async fn expected(
    snapshot: &Snapshot,
    keys: &Keys,
    context: &Arc<TaskContext>,
) -> Result<Groups> {
    let aggregate = aggregate_of(&snapshot.read)?;
    let mut gone = Vec::new();
    if let Some(late) = &snapshot.late {
        let seen = snapshot.corrected.and_then(|seen| seen.watermark);
        let [_, of_guard] = &late.corrected;
        let all = [
            (&late.late, Windows::Missed),
            (&late.guarded, Windows::OpenBy(None)),
            (of_guard, Windows::OpenBy(seen)),
        ];
        for (rows, windows) in all {
            if let Some(input) = late_input(snapshot, rows, windows)? {
                let plan = narrow(input, aggregate)?;
                gone.push(snapshot.state.create_physical_plan(&plan).await?);
            }
        }
    }
    let mut input = aggregate.input.as_ref().clone();
    if !gone.is_empty() {
        let all = snapshot
            .state
            .create_physical_plan(&narrow(input, aggregate)?)
            .await?;
        let rest = Rest::new(all, gone);
        let table = PartitionTable::try_new(rest.schema_ref(), vec![Arc::new(rest)])?;
        input = widen(Arc::new(table), aggregate)?;
    }
    groups_of(snapshot, keys, input, true, context).await
}
