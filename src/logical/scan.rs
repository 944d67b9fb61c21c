//! A table read as a stream, as DataFusion's `TableScan` sees it.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraints, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, TableSource};

use crate::error::Place;

/// Source of a `TableScan` whose rows come epoch by epoch.
///
/// DataFusion's projection pushdown works on it as on any table. Filters are never pushed into it: a
/// row that a filter drops still moves the watermark.
pub struct StreamScan {
    /// Resolved name of the table: two scans of one name read the same rows in the same epoch.
    pub name: String,
    /// The table.
    pub provider: Arc<dyn TableProvider>,
    /// Options of `WITH (…)` behind the stream's name.
    pub options: Vec<(String, String)>,
    /// The event time of its WATERMARK clauses, of the table's columns; given by the analyzer where there is one.
    pub event_time: Option<Expr>,
    /// Where the word STREAM stands in the text.
    pub place: Option<Place>,
}

impl fmt::Debug for StreamScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamScan")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl StreamScan {
    /// The same stream, named by another text.
    #[must_use]
    pub fn without_place(&self) -> Self {
        Self {
            place: None,
            ..self.copied()
        }
    }

    /// The same stream, its event time known.
    #[must_use]
    pub fn with_event_time(&self, event_time: Option<Expr>) -> Self {
        Self {
            event_time,
            ..self.copied()
        }
    }

    fn copied(&self) -> Self {
        Self {
            name: self.name.clone(),
            provider: Arc::clone(&self.provider),
            options: self.options.clone(),
            event_time: self.event_time.clone(),
            place: self.place,
        }
    }
}

impl TableSource for StreamScan {
    fn schema(&self) -> SchemaRef {
        self.provider.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.provider.constraints()
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        None
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.provider.get_column_default(column)
    }
}

/// Source of a `TableScan` that was given options of a stream without the word STREAM: they hold if the
/// table turns out to be one that is always a stream, and say nothing if it is finite.
pub struct OptionScan {
    /// The table.
    pub table: Arc<dyn TableSource>,
    /// Options of `WITH (…)` behind its name.
    pub options: Vec<(String, String)>,
    /// Where the options stand in the text.
    pub place: Option<Place>,
}

impl fmt::Debug for OptionScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptionScan")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl TableSource for OptionScan {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.table.constraints()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.table.get_column_default(column)
    }
}

/// The options behind a scan's source, if it was given some.
pub fn option_scan(source: &Arc<dyn TableSource>) -> Option<&OptionScan> {
    let source: &dyn Any = source.as_ref();
    source.downcast_ref::<OptionScan>()
}

/// The stream behind a scan's source, if it is one.
pub fn stream_scan(source: &Arc<dyn TableSource>) -> Option<&StreamScan> {
    let source: &dyn Any = source.as_ref();
    source.downcast_ref::<StreamScan>()
}

/// Whether a node is the scan of a stream.
pub fn is_stream_scan(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::TableScan(scan) if stream_scan(&scan.source).is_some())
}

/// Sources of the streams that a plan reads, subqueries included, in the order of the plan.
///
/// # Errors
/// - none of its own: the walk cannot fail
pub fn stream_scans(plan: &LogicalPlan) -> Result<Vec<Arc<dyn TableSource>>> {
    let mut sources = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && stream_scan(&scan.source).is_some()
        {
            sources.push(Arc::clone(&scan.source));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(sources)
}
