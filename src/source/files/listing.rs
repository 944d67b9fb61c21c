//! Which files a table over files has.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, FieldRef, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::listing::helpers::parse_partitions_for_path;
use datafusion::datasource::listing::{ListingTable, ListingTableUrl, PartitionedFile};
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use super::super::ReadEnv;

/// A table over files: where they are and how they are read.
pub(super) struct Listing {
    pub paths: Vec<ListingTableUrl>,
    pub store: Arc<dyn ObjectStore>,
    pub format: Arc<dyn FileFormat>,
    /// Columns that the files have, in the table's order.
    pub file_fields: Vec<FieldRef>,
    /// Columns told by the path; they come behind the others.
    pub partition_fields: Vec<FieldRef>,
    pub schema: SchemaRef,
    extension: String,
}

/// Endings that tell a compressed file, and what it is compressed with.
const COMPRESSED: [(&str, FileCompressionType); 5] = [
    (".gz", FileCompressionType::GZIP),
    (".gzip", FileCompressionType::GZIP),
    (".zst", FileCompressionType::ZSTD),
    (".bz2", FileCompressionType::BZIP2),
    (".xz", FileCompressionType::XZ),
];

impl Listing {
    pub(super) fn of(table: &ListingTable, env: &ReadEnv) -> Result<Self> {
        let schema = table.schema();
        let options = table.options();
        let partitions = options.table_partition_cols.len();
        let fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        let (file_fields, partition_fields) =
            fields.split_at(fields.len().saturating_sub(partitions));
        let first = table
            .table_paths()
            .first()
            .map(ListingTableUrl::object_store);
        let url = first
            .ok_or_else(|| datafusion::common::plan_datafusion_err!("the table has no path"))?;
        Ok(Self {
            paths: table.table_paths().clone(),
            store: env.task.runtime_env().object_store(url)?,
            format: Arc::clone(&options.format),
            file_fields: file_fields.to_vec(),
            partition_fields: partition_fields.to_vec(),
            schema,
            extension: options.file_extension.clone(),
        })
    }

    /// All files that there are now, in no order. The store is asked each time: DataFusion's cache of
    /// listings would hide what has come since.
    pub(super) async fn files(&self, _env: &ReadEnv) -> Result<Vec<ObjectMeta>> {
        let mut files = Vec::new();
        for path in &self.paths {
            if path.is_collection() {
                let mut found = self.store.list(Some(path.prefix()));
                while let Some(file) = found.try_next().await? {
                    if path.contains(&file.location, false) && self.has_extension(&file) {
                        files.push(file);
                    }
                }
            } else {
                match self.store.head(path.prefix()).await {
                    Ok(file) => files.push(file),
                    // It is not there yet.
                    Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(files)
    }

    /// A file's name as a person writes it.
    pub(super) fn shown(&self, file: &ObjectMeta) -> String {
        self.shown_path(file.location.as_ref())
    }

    /// A path in the store as a person writes it.
    pub(super) fn shown_path(&self, path: &str) -> String {
        let local = self.paths.iter().any(|path| path.scheme() == "file");
        format!("{}{path}", if local { "/" } else { "" })
    }

    /// Whether a file that was listed is not there any more.
    pub(super) async fn is_gone(&self, file: &ObjectMeta) -> bool {
        let found = self.store.head(&file.location).await;
        matches!(found, Err(object_store::Error::NotFound { .. }))
    }

    fn has_extension(&self, file: &ObjectMeta) -> bool {
        let name = file.location.as_ref();
        name.ends_with(&self.extension)
            || uncompressed(name).is_some_and(|name| name.ends_with(&self.extension))
    }

    /// How a file is compressed: told by its name, else as the table says.
    pub(super) fn compression(&self, file: &ObjectMeta) -> FileCompressionType {
        let name = file.location.as_ref();
        let by_name = COMPRESSED.iter().find(|(ending, _)| name.ends_with(ending));
        if let Some((_, compression)) = by_name {
            return *compression;
        }
        let declared = if let Some(csv) = self.format.downcast_ref::<CsvFormat>() {
            Some(csv.options().compression)
        } else {
            self.format
                .downcast_ref::<JsonFormat>()
                .map(|json| json.options().compression)
        };
        declared.map_or(FileCompressionType::UNCOMPRESSED, FileCompressionType::from)
    }

    /// A file with the values that its path tells.
    pub(super) fn partitioned(&self, file: &ObjectMeta) -> Result<PartitionedFile> {
        let partitioned = PartitionedFile::new_from_meta(file.clone());
        if self.partition_fields.is_empty() {
            return Ok(partitioned);
        }
        let names = || {
            self.partition_fields
                .iter()
                .map(|field| field.name().as_str())
        };
        let values = self
            .paths
            .iter()
            .find_map(|path| parse_partitions_for_path(path, &file.location, names()));
        let values = values.unwrap_or_default();
        let values = self
            .partition_fields
            .iter()
            .enumerate()
            .map(|(at, field)| value_of(field, values.get(at).map(AsRef::as_ref)))
            .collect::<Result<Vec<_>>>()?;
        Ok(partitioned.with_partition_values(values))
    }
}

fn value_of(field: &Field, text: Option<&str>) -> Result<ScalarValue> {
    match text {
        Some(text) => ScalarValue::try_from_string(text.to_owned(), field.data_type()),
        None => ScalarValue::try_from(field.data_type()),
    }
}

/// A name without the ending that tells its compression.
fn uncompressed(name: &str) -> Option<&str> {
    COMPRESSED
        .iter()
        .find_map(|(ending, _)| name.strip_suffix(ending))
}
