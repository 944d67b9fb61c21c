//! Runs on disk: where state goes when memory is short.
//!
//! A run is a section of a temporary file of the session's disk manager: an Arrow IPC stream of its own, packed with
//! LZ4, so that it can be read back without the others. A file takes runs until it is large; it goes away with
//! the last run in it. Nothing here survives the process: what does is the checkpoint's.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, RecordBatch, StructArray,
    UInt64Array,
};
use datafusion::arrow::buffer::{Buffer, OffsetBuffer};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::arrow::ipc::CompressionType;
use datafusion::arrow::ipc::reader::StreamDecoder;
use datafusion::arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use datafusion::common::{Result, internal_datafusion_err, internal_err};
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::spill_file::SpillFile;

/// Bytes behind which another file is begun: large, for each file is kept open, and small enough to go away.
const FILE_BYTES: u64 = 256 << 20;

/// A run on disk.
#[derive(Clone)]
pub(super) struct OnDisk {
    file: Arc<dyn SpillFile>,
    schema: SchemaRef,
    from: u64,
    /// Bytes on disk.
    pub len: u64,
    /// Bytes that it took in memory, as its owner counts them.
    pub bytes: usize,
    pub rows: usize,
}

impl std::fmt::Debug for OnDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnDisk")
            .field("from", &self.from)
            .field("len", &self.len)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl OnDisk {
    /// Reads the run.
    ///
    /// # Errors
    /// - the file cannot be read
    pub(super) fn load(&self) -> Result<RecordBatch> {
        let Some(path) = self.file.path() else {
            return internal_err!("state is only written to files that can be read again");
        };
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.from))?;
        let len = usize::try_from(self.len)
            .map_err(|_| internal_datafusion_err!("a run of {} bytes", self.len))?;
        let mut bytes = vec![0; len];
        file.read_exact(&mut bytes)?;
        match StreamDecoder::new().decode(&mut Buffer::from_vec(bytes))? {
            Some(batch) => Ok(RecordBatch::try_new(
                Arc::clone(&self.schema),
                batch.columns().to_vec(),
            )?),
            None => internal_err!("a section of a temporary file holds no run"),
        }
    }
}

/// The temporary files of one operator's state.
#[derive(Default)]
pub(super) struct SpillFiles {
    /// The one that takes more.
    current: Mutex<Option<Current>>,
}

impl std::fmt::Debug for SpillFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillFiles").finish_non_exhaustive()
    }
}

struct Current {
    file: Arc<dyn SpillFile>,
    len: u64,
}

impl SpillFiles {
    /// Writes runs, and tells where they are. None where the session has no files for that: its disk manager is
    /// disabled, or keeps files elsewhere than on a local disk.
    ///
    /// # Errors
    /// - the disk is full, or the disk manager's limit is reached
    pub(super) fn write(
        &self,
        of: &str,
        disk: &Arc<DiskManager>,
        runs: &[RecordBatch],
    ) -> Result<Option<Vec<OnDisk>>> {
        if !disk.tmp_files_enabled() {
            return Ok(None);
        }
        let mut slot = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out: where a write has failed, nothing more is written.
        let mut current = match slot.take() {
            Some(current) if current.len < FILE_BYTES => current,
            _ => Current {
                file: disk.create_tmp_file(of)?,
                len: 0,
            },
        };
        if current.file.path().is_none() {
            return Ok(None);
        }
        let mut writer = current.file.open_writer()?;
        let mut written = Vec::with_capacity(runs.len());
        let mut bytes = Vec::new();
        for run in runs {
            bytes.clear();
            encode(run, &mut bytes)?;
            writer.write_all(&bytes)?;
            let len = bytes.len() as u64;
            written.push(OnDisk {
                file: Arc::clone(&current.file),
                schema: run.schema(),
                from: current.len,
                len,
                bytes: 0,
                rows: run.num_rows(),
            });
            current.len += len;
        }
        writer.flush()?;
        writer.finish()?;
        *slot = Some(current);
        Ok(Some(written))
    }

    /// Lets go of the file that would take more: there is no run in it.
    pub(super) fn close(&self) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Adds a run to `bytes`, without what it shares with others.
fn encode(run: &RecordBatch, bytes: &mut Vec<u8>) -> Result<()> {
    let lz4 = Some(CompressionType::LZ4_FRAME);
    let options = IpcWriteOptions::default().try_with_compression(lz4)?;
    let mut writer = StreamWriter::try_new_with_options(bytes, &run.schema(), options)?;
    writer.write(&without_others(run)?)?;
    writer.finish()?;
    Ok(())
}

/// A copy that shares no memory with the batch that a run was cut from.
pub(super) fn copied(run: &RecordBatch) -> Result<RecordBatch> {
    let all = UInt64Array::from_iter_values(0..run.num_rows() as u64);
    without_others(&take_record_batch(run, &all)?)
}

/// A batch without bytes of other rows: views share the buffers of the batch that they were cut from.
fn without_others(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(alone).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}

fn alone(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        DataType::List(field) => list_alone::<i32>(column, field)?,
        DataType::LargeList(field) => list_alone::<i64>(column, field)?,
        DataType::Struct(fields) if !fields.is_empty() => {
            let column = column.as_struct();
            let columns = column.columns().iter().map(alone).collect::<Result<_>>()?;
            Arc::new(StructArray::try_new(
                fields.clone(),
                columns,
                column.nulls().cloned(),
            )?)
        }
        _ => Arc::clone(column),
    })
}

fn list_alone<O: OffsetSizeTrait>(column: &ArrayRef, field: &FieldRef) -> Result<ArrayRef> {
    let lists = column.as_list::<O>();
    let offsets = lists.value_offsets();
    let (Some(from), Some(to)) = (offsets.first(), offsets.last()) else {
        return Ok(Arc::clone(column));
    };
    let values = lists.values();
    let values = values.slice(from.as_usize(), to.as_usize() - from.as_usize());
    Ok(Arc::new(GenericListArray::<O>::try_new(
        Arc::clone(field),
        OffsetBuffer::from_lengths(offsets.windows(2).map(|pair| match pair {
            [from, to] => to.as_usize() - from.as_usize(),
            _ => 0,
        })),
        alone(&values)?,
        lists.nulls().cloned(),
    )?))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, ListArray, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let texts: Vec<String> = (0..rows)
            .map(|row| format!("a text that is not inlined {row}"))
            .collect();
        let lists = (0..rows).map(|row| match row % 3 {
            0 => None,
            rest => Some((0..rest).map(Some).collect::<Vec<_>>()),
        });
        let columns: [(&str, ArrayRef); 3] = [
            ("slice", Arc::new(Int64Array::from_iter_values(0..rows))),
            (
                "text",
                Arc::new(StringViewArray::from_iter_values(texts.iter())),
            ),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn runs_come_back_one_by_one_and_the_file_goes_with_the_last() {
        let runtime = RuntimeEnvBuilder::new().build().unwrap();
        let disk = &runtime.disk_manager;
        let all = batch(3_000);
        let cuts: Vec<RecordBatch> = (0..30).map(|at| all.slice(at * 100, 100)).collect();
        let files = SpillFiles::default();
        let mut written = files.write("test", disk, &cuts[..10]).unwrap().unwrap();
        written.extend(files.write("test", disk, &cuts[10..]).unwrap().unwrap());
        assert_eq!(disk.spilling_progress().active_files_count, 1);
        // Cuts are written without the rows of others.
        assert!(written.iter().all(|one| one.len < 8_192), "{written:?}");
        for at in [29, 0, 15] {
            assert_eq!(written[at].load().unwrap(), cuts[at]);
        }
        files.close();
        assert_eq!(disk.spilling_progress().active_files_count, 1);
        drop(written);
        assert_eq!(disk.spilling_progress().active_files_count, 0);
    }

    #[test]
    fn a_copy_has_the_rows_and_not_the_memory_of_others() {
        let all = batch(3_000);
        let cut = all.slice(1_000, 10);
        let copy = copied(&cut).unwrap();
        assert_eq!(copy, cut);
        assert!(copy.get_array_memory_size() < all.get_array_memory_size() / 4);
    }
}
