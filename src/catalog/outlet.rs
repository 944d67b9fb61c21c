//! A directory that a streaming table's rows are written to, and read from.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::datasource::file_format::FileFormat as Reading;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};

use super::definition::Definition;
use super::refused_table::RefusedTable;
use super::streaming_table::Outlet;
use crate::config::OutputMode;
use crate::disk::Disk;
use crate::error::Refusal;
use crate::sink::{DirectorySink, FileFormat, Sink};
use crate::sql::{Format, Target};

/// The sink and the table of a directory: `location` as an absolute path, which is `folder` on the disk. Columns
/// that name folders are the table's last ones.
///
/// # Errors
/// - a mode whose rows are not final
/// - columns that the format has no form for, or that cannot name folders
pub fn directory_outlet(
    definition: &Definition,
    target: &Target,
    location: &str,
    disk: Arc<dyn Disk>,
    folder: String,
) -> Result<Outlet> {
    if definition.mode != OutputMode::Append {
        return Err(Refusal::new(
            "UNSUPPORTED_OUTPUT_MODE",
            "0A000",
            format!(
                "Files are written once, and in {} mode rows are replaced.",
                definition.mode
            ),
        )
        .at(target.place)
        .hint("write output_mode = 'append', or leave STORED AS out: the table itself is upserted")
        .into());
    }
    let format = match target.format {
        Format::Parquet => FileFormat::Parquet,
        Format::Csv => FileFormat::Csv,
        Format::Json => FileFormat::Json,
    };
    DirectorySink::check(format, &definition.schema, &target.partitioned_by)?;
    let sink = DirectorySink::new(disk, folder, format, target.partitioned_by.clone());
    Ok(Outlet {
        sink: Arc::new(sink),
        location: Some(location.to_owned()),
        provider: Arc::new(reading(definition, target, location)?),
    })
}

/// What removes the rows of a former query from a directory; its format and columns do not matter.
pub fn cleaner(disk: Arc<dyn Disk>, folder: String) -> Arc<dyn Sink> {
    Arc::new(DirectorySink::new(
        disk,
        folder,
        FileFormat::Parquet,
        Vec::new(),
    ))
}

/// The outlet to a sink of the application: its rows are nowhere else, so that nobody can read them here.
pub fn application_outlet(
    table: &str,
    definition: &Definition,
    name: &str,
    sink: Arc<dyn Sink>,
) -> Outlet {
    let gone = Refusal::new(
        "ROWS_ARE_IN_SINK",
        "0A000",
        format!("The rows of {table} go to the sink '{name}' and are not kept here."),
    )
    .hint("read them where the sink puts them; emitted() has those of the last epoch");
    Outlet {
        sink,
        location: None,
        provider: Arc::new(RefusedTable::new(Arc::clone(&definition.schema), gone)),
    }
}

/// The directory as a table.
fn reading(definition: &Definition, target: &Target, location: &str) -> Result<ListingTable> {
    let is_folder = |field: &&Arc<Field>| target.partitioned_by.contains(field.name());
    let fields = definition.schema.fields();
    let in_files: Vec<_> = fields
        .iter()
        .filter(|field| !is_folder(field))
        .cloned()
        .collect();
    let folders = target.partitioned_by.iter().filter_map(|name| {
        let field = definition.schema.field_with_name(name).ok()?;
        Some((name.clone(), plain(field.data_type())))
    });
    let format: Arc<dyn Reading> = match target.format {
        Format::Parquet => Arc::new(ParquetFormat::default()),
        Format::Csv => Arc::new(CsvFormat::default().with_has_header(true)),
        Format::Json => Arc::new(JsonFormat::default()),
    };
    let options = ListingOptions::new(format)
        .with_file_extension(format!(".{}", target.format.extension()))
        .with_table_partition_cols(folders.collect());
    let config = ListingTableConfig::new(ListingTableUrl::parse(location)?)
        .with_listing_options(options)
        .with_schema(Arc::new(Schema::new(in_files)));
    ListingTable::try_new(config)
}

/// A type as the name of a folder gives it back.
fn plain(of: &DataType) -> DataType {
    match of {
        DataType::Dictionary(_, values) => plain(values),
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        other => other.clone(),
    }
}
