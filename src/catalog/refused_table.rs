//! What stands in the place of a table whose rows cannot be read: it says so.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::error::Refusal;

/// A table that every reader and writer is refused, with the reason.
#[derive(Debug)]
pub struct RefusedTable {
    schema: SchemaRef,
    damage: Refusal,
}

impl RefusedTable {
    /// The table of this schema, and why it cannot be read.
    pub fn new(schema: SchemaRef, damage: Refusal) -> Self {
        Self { schema, damage }
    }

    /// Why it cannot be read.
    pub fn damage(&self) -> &Refusal {
        &self.damage
    }
}

#[async_trait]
impl TableProvider for RefusedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(self.damage.clone().into())
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        _input: Arc<dyn ExecutionPlan>,
        _insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(self.damage.clone().into())
    }
}
