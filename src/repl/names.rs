//! The names a session knows: tables with their columns, and functions.

use std::sync::Arc;
use std::time::Duration;

use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::common::utils::quote_identifier;
use datafusion::logical_expr::TableType;

use crate::context::StreamContext;

/// A catalog may have to ask another machine; the prompt does not wait longer for one.
const PATIENCE: Duration = Duration::from_millis(500);

/// DataFusion's own schema of tables about tables.
const INFORMATION_SCHEMA: &str = "information_schema";

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name as it is written in SQL, in quotes where it needs them.
    pub(crate) name: String,
    /// Its type as Arrow writes it.
    pub(crate) data_type: String,
    /// Whether it may hold nulls.
    pub(crate) nullable: bool,
}

/// A table, view or streaming table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// Its name as it is written in SQL: in quotes where it needs them, with catalog and schema where
    /// they are not the session's own.
    pub(crate) name: String,
    /// What it is, for people.
    pub(crate) kind: &'static str,
    /// Its columns, in order.
    pub(crate) columns: Vec<Column>,
}

/// What a session knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Tables by name, without those of `information_schema`.
    pub(crate) tables: Vec<Table>,
    /// Functions by name.
    pub(crate) functions: Vec<String>,
}

impl Names {
    /// The names that `context` knows now; without tables if its catalogs take too long.
    pub(crate) async fn of(context: &StreamContext) -> Self {
        let functions = functions(context);
        match tokio::time::timeout(PATIENCE, tables(context)).await {
            Ok(tables) => Self { tables, functions },
            Err(_) => Self {
                tables: Vec::new(),
                functions,
            },
        }
    }

    /// The table of a name, in any case.
    pub(crate) fn table(&self, name: &str) -> Option<&Table> {
        self.tables
            .iter()
            .find(|table| table.name.eq_ignore_ascii_case(name))
    }
}

/// All tables of all catalogs, sorted by name.
pub(crate) async fn tables(context: &StreamContext) -> Vec<Table> {
    let session = context.session();
    let mut tables = Vec::new();
    for catalog_name in session.catalog_names() {
        let Some(catalog) = session.catalog(&catalog_name) else {
            continue;
        };
        for schema_name in catalog.schema_names() {
            if schema_name == INFORMATION_SCHEMA {
                continue;
            }
            if let Some(schema) = catalog.schema(&schema_name) {
                tables.extend(tables_of(context, &catalog_name, &schema_name, &schema).await);
            }
        }
    }
    tables.sort_by(|left, right| left.name.cmp(&right.name));
    tables
}

async fn tables_of(
    context: &StreamContext,
    catalog_name: &str,
    schema_name: &str,
    schema: &Arc<dyn SchemaProvider>,
) -> Vec<Table> {
    let config = context.session().copied_config();
    let home = &config.options().catalog;
    let streaming = context.streaming_tables();
    let mut tables = Vec::new();
    for name in schema.table_names() {
        // A table that has gone meanwhile, or cannot be opened, has no columns to tell of.
        let Ok(Some(provider)) = schema.table(&name).await else {
            continue;
        };
        let is_streaming = streaming.contains(&name);
        let reference = match (
            catalog_name == home.default_catalog,
            schema_name == home.default_schema,
        ) {
            (true, true) => TableReference::bare(name),
            (true, false) => TableReference::partial(schema_name, name),
            (false, _) => TableReference::full(catalog_name, schema_name, name),
        };
        tables.push(table(&reference, is_streaming, provider.as_ref()));
    }
    tables
}

fn table(reference: &TableReference, streaming: bool, provider: &dyn TableProvider) -> Table {
    let kind = match provider.table_type() {
        _ if streaming => "streaming table",
        TableType::Base => "table",
        TableType::View => "view",
        TableType::Temporary => "temporary table",
    };
    let columns = provider
        .schema()
        .fields()
        .iter()
        .map(|field| Column {
            name: quote_identifier(field.name()).into_owned(),
            data_type: field.data_type().to_string(),
            nullable: field.is_nullable(),
        })
        .collect();
    Table {
        name: reference.to_quoted_string(),
        kind,
        columns,
    }
}

fn functions(context: &StreamContext) -> Vec<String> {
    let state = context.session().state();
    let mut functions: Vec<String> = state
        .scalar_functions()
        .keys()
        .chain(state.aggregate_functions().keys())
        .chain(state.window_functions().keys())
        .chain(state.table_functions().keys())
        .filter(|name| name.chars().all(super::lex::is_word))
        .cloned()
        .collect();
    functions.sort();
    functions.dedup();
    functions
}
