//! An embedded database: a folder that keeps tables, streaming tables and what they are made of.
//!
//! ```text
//! LOCK                                    held by the one process that has it open
//! catalog                                 what there is, replaced at one stroke
//! tables/t1/<first>-<end>-<crc32>.parquet rows of CREATE TABLE and INSERT
//! tables/t1/<first>.first                 number of the first row that is kept, once rows were removed
//! queries/<id>/<number>.epoch             a streaming table: see `checkpoint`
//! ```
//!
//! The catalog has the format of a checkpoint's file, its owner is `catalog`. Its content is the id of the
//! database, the next number of an id, and the entries; the schema of a table is a section, an Arrow IPC stream
//! without rows. A folder that no entry names is left from a statement that did not come to its end, and is
//! removed when the database is opened.

mod rows;

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, ResolvedTableReference, Result, TableReference};
use serde::{Deserialize, Serialize};

pub use self::rows::KeptRows;
use crate::checkpoint::{self, Header, damaged, disk_failed};
use crate::disk::{Disk, Doubts, Lock};
use crate::error::Refusal;

/// Name of the catalog's file, and of its owner.
const CATALOG: &str = "catalog";

/// Folder of the rows of tables.
const TABLES: &str = "tables";

/// Folder of the checkpoints of streaming tables.
const QUERIES: &str = "queries";

/// What an entry is, and so what is done with it when the database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A table whose statement has its constraints and defaults.
    Table,
    /// A table that was made from rows: its schema is all there is to know.
    TableOfRows,
    /// A streaming table.
    Streaming,
    /// A view, an external table or a schema: its statement is run again.
    Statement,
}

/// One thing that the database knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Its resolved name.
    pub name: String,
    /// The same with quotes, as it can be read again.
    pub quoted: String,
    /// When it was made: later things have greater numbers.
    #[serde(default)]
    pub made: u64,
    /// When it went, of a view or an external table that a later view was made over: such a view keeps the meaning
    /// that its names had.
    #[serde(default)]
    pub gone: Option<u64>,
    /// Name of its folder, where it has one.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// The statement that made it.
    pub sql: String,
    /// Where its rows go, as an absolute path, if they go to a directory.
    #[serde(default)]
    pub location: Option<String>,
    /// Queries that it took the place of, and whose rows may still be where they went.
    #[serde(default)]
    pub former: Vec<Former>,
    /// Whether a streaming table has read rows as another query than that of the statement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mixed: bool,
    /// Its schema, where the entry is a table.
    #[serde(skip)]
    pub schema: Option<SchemaRef>,
    /// Which section of the catalog has its schema.
    pub section: Option<usize>,
}

/// A query whose rows are to go from where they went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// Its id.
    pub id: String,
    /// The directory that they went to, if it was one.
    pub location: Option<String>,
}

impl Entry {
    /// Whether rows or state are kept for it.
    pub fn keeps_rows(&self) -> bool {
        self.kind != Kind::Statement
    }

    /// Whether it is a view or an external table.
    fn is_table_of_statement(&self) -> bool {
        self.kind == Kind::Statement && !self.quoted.is_empty()
    }

    /// Its place when the database is opened: what is needed by others comes first.
    pub fn rank(&self) -> u8 {
        match self.kind {
            Kind::Statement if self.quoted.is_empty() => 0,
            Kind::Table | Kind::TableOfRows => 1,
            Kind::Statement | Kind::Streaming => 2,
        }
    }

    /// Something that its statement makes again.
    pub fn new(name: &ResolvedTableReference, kind: Kind, sql: impl Into<String>) -> Self {
        let quoted = TableReference::full(
            Arc::clone(&name.catalog),
            Arc::clone(&name.schema),
            Arc::clone(&name.table),
        );
        Self {
            quoted: quoted.to_quoted_string(),
            ..Self::named(name.to_string(), kind, sql)
        }
    }

    /// The same of something that is no table.
    pub fn named(name: impl Into<String>, kind: Kind, sql: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            quoted: String::new(),
            made: 0,
            gone: None,
            id: String::new(),
            kind,
            sql: sql.into(),
            location: None,
            former: Vec::new(),
            mixed: false,
            schema: None,
            section: None,
        }
    }
}

/// What the catalog's file says.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Catalog {
    /// A part of every id: two databases may write to one directory.
    database: String,
    next_id: u64,
    entries: Vec<Entry>,
    #[serde(skip)]
    revision: u64,
}

impl Catalog {
    /// Lets entries go. Statements stay in the list as long as they are needed.
    fn let_go(&mut self, these: impl Fn(&Entry) -> bool) {
        for entry in self.entries.iter_mut().filter(|entry| entry.gone.is_none()) {
            if these(entry) {
                entry.gone = Some(self.revision);
            }
        }
    }

    /// Forgets what has gone and what no living view was made over.
    fn forget(&mut self) {
        let living = self.entries.iter().filter(|entry| entry.gone.is_none());
        let views: Vec<u64> = living
            .filter(|entry| entry.kind == Kind::Statement)
            .map(|entry| entry.made)
            .collect();
        self.entries.retain(|entry| match entry.gone {
            None => true,
            Some(gone) => {
                let over = |view: &u64| entry.made < *view && *view < gone;
                entry.is_table_of_statement() && views.iter().any(over)
            }
        });
    }
}

/// A database that is open.
pub struct Database {
    disk: Arc<dyn Disk>,
    /// Files that may not be durable. Rows, and epochs, wait for a catalog that they are in.
    doubts: Arc<Doubts>,
    catalog: Mutex<Catalog>,
    _lock: Lock,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Database {
    /// Folder of the checkpoints of streaming tables.
    pub const QUERIES: &str = QUERIES;

    /// Opens a database, or makes one with this id. On a full disk what is there can be read.
    ///
    /// # Errors
    /// - another process has it open
    /// - its catalog is damaged, or of another version
    /// - those of the disk
    pub fn open(disk: Arc<dyn Disk>, new_id: impl FnOnce() -> String) -> Result<Self> {
        let lock = disk.lock("LOCK").map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Refusal::new(
                "DATABASE_IN_USE",
                "55006",
                "Another process has this database open, and one at a time may.",
            )
            .hint("end the other process, or give another --data-dir")
            .into(),
            _ => disk_failed("LOCK", &error),
        })?;
        let (catalog, bytes) = match disk.read(CATALOG) {
            Ok(bytes) => (read(&bytes)?, Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                (Self::made(disk.as_ref(), new_id)?, None)
            }
            Err(error) => return Err(disk_failed(CATALOG, &error)),
        };
        for folder in [TABLES, QUERIES] {
            disk.create_dir(folder)
                .map_err(|error| disk_failed(folder, &error))?;
        }
        disk.sync_dir("")
            .map_err(|error| disk_failed("the database's folder", &error))?;
        let opened = Self {
            disk,
            doubts: Arc::default(),
            catalog: Mutex::new(catalog),
            _lock: lock,
        };
        match bytes {
            // A sync that failed may have left the file in place without making it durable.
            Some(bytes) => opened
                .doubts
                .publish_again(opened.disk.as_ref(), "", CATALOG, &bytes)
                .map_err(|error| disk_failed(CATALOG, &error))?,
            None => opened.publish(&opened.catalog())?,
        }
        opened.remove_others()?;
        Ok(opened)
    }

    /// A new catalog, unless there are things that only a lost one could have known. Folders that are there go:
    /// a sync that failed may have left their names in doubt, and they are to be given anew.
    fn made(disk: &dyn Disk, new_id: impl FnOnce() -> String) -> Result<Catalog> {
        for folder in [TABLES, QUERIES] {
            match disk.remove_dir(folder) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                    return Err(damaged(
                        CATALOG,
                        format!("is missing, and {folder} is not empty"),
                    ));
                }
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(disk_failed(folder, &error));
                }
                _ => {}
            }
        }
        Ok(Catalog {
            database: new_id(),
            ..Catalog::default()
        })
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        // It is changed whole, or not.
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk that it is on.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    /// Its files that may not be durable.
    pub fn doubts(&self) -> Arc<Doubts> {
        Arc::clone(&self.doubts)
    }

    /// All that it knows, in the order in which it was made; also what has gone and is still needed to make it.
    pub fn entries(&self) -> Vec<Entry> {
        self.catalog().entries.clone()
    }

    /// The entry of a resolved name.
    pub fn entry(&self, name: &str) -> Option<Entry> {
        let catalog = self.catalog();
        let living = |entry: &&Entry| entry.name == name && entry.gone.is_none();
        catalog.entries.iter().find(living).cloned()
    }

    /// Whether these are all the streaming tables that it knows: some may wait to be made again.
    pub fn are_all_streaming(&self, these: impl Fn(&str) -> bool) -> bool {
        let catalog = self.catalog();
        let mut known = catalog.entries.iter();
        known.all(|entry| {
            entry.kind != Kind::Streaming || entry.gone.is_some() || these(&entry.name)
        })
    }

    /// An id that nothing has or had.
    pub fn new_id(&self) -> String {
        let mut catalog = self.catalog();
        catalog.next_id += 1;
        format!("{}-{}", catalog.database, catalog.next_id)
    }

    /// Adds an entry, in the place of one of its name. What the old one kept is removed.
    ///
    /// # Errors
    /// - those of the disk; then nothing has changed
    pub fn put(&self, mut entry: Entry) -> Result<()> {
        let former = self.entry(&entry.name);
        let id = entry.id.clone();
        self.change(|catalog| {
            let known = catalog
                .entries
                .iter_mut()
                .find(|known| known.id == entry.id && known.name == entry.name);
            match known {
                Some(known) if entry.kind != Kind::Statement => {
                    entry.made = known.made;
                    *known = entry;
                }
                _ => {
                    catalog.let_go(|known| known.name == entry.name);
                    entry.made = catalog.revision;
                    catalog.entries.push(entry);
                }
            }
        })?;
        if let Some(former) = former.filter(|former| former.id != id) {
            self.remove_folders_of(&former);
        }
        Ok(())
    }

    /// Removes an entry, and what it kept; none of this name is fine.
    ///
    /// # Errors
    /// - those of the disk; then nothing has changed
    pub fn remove(&self, name: &str) -> Result<()> {
        self.remove_all(|entry| entry.name == name)
    }

    /// Removes a schema and all that is in it, in one change.
    ///
    /// # Errors
    /// - those of the disk; then nothing has changed
    pub fn remove_schema(&self, schema: &str) -> Result<()> {
        let (itself, within) = (format!("schema {schema}"), format!("{schema}."));
        self.remove_all(|entry| entry.name == itself || entry.name.starts_with(&within))
    }

    fn remove_all(&self, these: impl Fn(&Entry) -> bool) -> Result<()> {
        let mut former = self.entries();
        former.retain(|entry| entry.gone.is_none() && these(entry));
        if former.is_empty() {
            return Ok(());
        }
        self.change(|catalog| catalog.let_go(these))?;
        former
            .iter()
            .for_each(|entry| self.remove_folders_of(entry));
        Ok(())
    }

    /// Makes the folder for the rows of a new table.
    ///
    /// # Errors
    /// - those of the disk
    pub fn new_rows(&self, id: &str) -> Result<KeptRows> {
        let folder = format!("{TABLES}/{id}");
        let made = self
            .disk
            .create_dir(&folder)
            .and_then(|()| self.disk.sync_dir(TABLES));
        made.map_err(|error| disk_failed(&folder, &error))?;
        Ok(KeptRows::new(self.disk(), self.doubts(), folder))
    }

    /// The rows of a table that there is, and where more of them go.
    ///
    /// # Errors
    /// - a file is damaged or missing; the error names it
    /// - those of the disk
    pub fn rows(&self, id: &str) -> Result<(KeptRows, Vec<RecordBatch>)> {
        KeptRows::open(self.disk(), self.doubts(), format!("{TABLES}/{id}"))
    }

    fn change(&self, change: impl FnOnce(&mut Catalog)) -> Result<()> {
        let mut catalog = self.catalog();
        let mut changed = catalog.clone();
        changed.revision += 1;
        change(&mut changed);
        changed.forget();
        let (bytes, former) = (encoded(&changed)?, encoded(&catalog)?);
        // A sync that fails may leave the file in place.
        self.doubts
            .publish_or_put_back(self.disk.as_ref(), "", CATALOG, &bytes, former)
            .map_err(|error| disk_failed(CATALOG, &error))?;
        *catalog = changed;
        Ok(())
    }

    fn publish(&self, catalog: &Catalog) -> Result<()> {
        let bytes = encoded(catalog)?;
        self.doubts
            .publish(self.disk.as_ref(), "", CATALOG, &bytes)
            .map_err(|error| disk_failed(CATALOG, &error))
    }

    /// Removes folders that no entry names. If this catalog may go with a crash, the one before may name them.
    fn remove_others(&self) -> Result<()> {
        let may_go = self.doubts.are_in("");
        let known: BTreeSet<String> = self.entries().into_iter().map(|entry| entry.id).collect();
        for parent in [TABLES, QUERIES] {
            let found = self
                .disk
                .list(parent)
                .map_err(|error| disk_failed(parent, &error))?;
            let others = found
                .iter()
                .filter(|found| found.dir && !known.contains(&found.name));
            for other in others {
                if !may_go {
                    self.remove_folder(&format!("{parent}/{}", other.name));
                }
                self.pass_over(&other.name);
            }
        }
        Ok(())
    }

    /// Takes care that an id is not given again: its folder may not have been removed.
    fn pass_over(&self, id: &str) {
        let mut catalog = self.catalog();
        let number = id
            .strip_prefix(&catalog.database)
            .and_then(|rest| rest.strip_prefix('-')?.parse().ok());
        catalog.next_id = catalog.next_id.max(number.unwrap_or_default());
    }

    /// The error for a table that lacks rows which have been read.
    pub fn lacks_rows(id: &str, row: u64, reader: &str) -> DataFusionError {
        let folder = format!("{TABLES}/{id}");
        let what = format!("lacks the file that begins with row {row}, which {reader} has read");
        damaged(&folder, what)
    }

    fn remove_folders_of(&self, entry: &Entry) {
        match entry.kind {
            Kind::Table | Kind::TableOfRows => {
                self.remove_folder(&format!("{TABLES}/{}", entry.id))
            }
            Kind::Streaming => self.remove_folder(&format!("{QUERIES}/{}", entry.id)),
            Kind::Statement => {}
        }
    }

    /// Removes a folder of files. Best effort: what is left is removed when the database is opened.
    fn remove_folder(&self, folder: &str) {
        self.doubts.forget(folder);
        for file in self.disk.list(folder).unwrap_or_default() {
            self.disk.remove(&format!("{folder}/{}", file.name)).ok();
        }
        self.disk.remove_dir(folder).ok();
    }
}

/// The bytes of a catalog's file.
fn encoded(catalog: &Catalog) -> Result<Vec<u8>> {
    let (mut catalog, mut sections) = (catalog.clone(), Vec::new());
    for entry in &mut catalog.entries {
        entry.section = None;
        if let Some(schema) = &entry.schema {
            entry.section = Some(sections.len());
            sections.push(checkpoint::schema_to_bytes(schema)?);
        }
    }
    let content = serde_json::to_value(&catalog);
    let header = Header {
        owner: CATALOG.to_owned(),
        number: catalog.revision,
        content: content.map_err(|error| DataFusionError::External(error.into()))?,
        ..Header::default()
    };
    let (parts, _) = checkpoint::encode(header, sections)?;
    Ok(parts.concat())
}

/// The catalog in the bytes of its file.
fn read(bytes: &[u8]) -> Result<Catalog> {
    let (header, sections) = checkpoint::decode(CATALOG, bytes)?;
    if header.owner != CATALOG {
        return Err(damaged(CATALOG, "is another file of Tidegate"));
    }
    let mut catalog: Catalog = serde_json::from_value(header.content)
        .map_err(|error| damaged(CATALOG, format!("cannot be read: {error}")))?;
    catalog.revision = header.number;
    for entry in &mut catalog.entries {
        let section = entry.section.and_then(|at| sections.get(at));
        entry.schema = section
            .map(|bytes| checkpoint::schema_from_bytes(bytes))
            .transpose()?;
    }
    Ok(catalog)
}
