//! A directory that a streaming table's rows are written to, and read from.

use std::path::{Component, absolute};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Result, internal_datafusion_err};
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
        provider: Arc::new(reading(definition, target, format, location)?),
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

/// The directory as a table. Its columns are of the types that the files give back.
fn reading(
    definition: &Definition,
    target: &Target,
    format: FileFormat,
    location: &str,
) -> Result<ListingTable> {
    let is_folder = |field: &&Arc<Field>| target.partitioned_by.contains(field.name());
    let fields = definition.schema.fields();
    let in_files: Vec<Field> = fields
        .iter()
        .filter(|field| !is_folder(field))
        .map(|field| format.read_field(field))
        .collect();
    let folders = target.partitioned_by.iter().filter_map(|name| {
        let field = definition.schema.field_with_name(name).ok()?;
        Some((name.clone(), plain(field.data_type())))
    });
    let reading: Arc<dyn Reading> = match format {
        FileFormat::Parquet => Arc::new(ParquetFormat::default()),
        FileFormat::Csv => Arc::new(CsvFormat::default().with_has_header(true)),
        FileFormat::Json => Arc::new(JsonFormat::default()),
    };
    let options = ListingOptions::new(reading)
        .with_file_extension(format!(".{}", format.extension()))
        .with_table_partition_cols(folders.collect());
    let config = ListingTableConfig::new(url(location)?)
        .with_listing_options(options)
        .with_schema(Arc::new(Schema::new(in_files)));
    ListingTable::try_new(config)
}

/// The directory as DataFusion names it. Every sign of its name is itself, also `*`, `?` and `[`.
fn url(location: &str) -> Result<ListingTableUrl> {
    let mut path = absolute(location)?;
    if path.components().any(|part| part == Component::ParentDir) {
        // The way up from a link is that of the folder behind it.
        path = path.canonicalize()?;
    }
    let names = path.components().filter_map(|part| match part {
        Component::Prefix(drive) => drive.as_os_str().to_str(),
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let mut url = ListingTableUrl::parse("file:///")?.get_url().clone();
    url.path_segments_mut()
        .map_err(|()| internal_datafusion_err!("{location} has no name as a URL"))?
        .clear()
        .extend(names)
        // A directory ends in a slash.
        .push("");
    if url.to_file_path().ok().as_ref() != Some(&path) {
        let message = format!("The directory {location:?} has no name as a URL.");
        let refusal = Refusal::new("INVALID_LOCATION", "42602", message);
        return Err(refusal
            .hint("take a name without control characters")
            .into());
    }
    ListingTableUrl::try_new(url, None)
}

/// A type as the name of a folder gives it back.
fn plain(of: &DataType) -> DataType {
    match of {
        DataType::Dictionary(_, values) => plain(values),
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        other => other.clone(),
    }
}
