//! The flights of January as a history of files in any order, and databases as they were some epochs ago.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::csv::WriterBuilder;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;

use super::splitmix::SplitMix;
use super::*;

pub(super) const FLIGHTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/sql-tests/data/nyc_january.parquet"
);

/// The flights in the order in which they were reported.
pub(super) async fn flights() -> RecordBatch {
    let ctx = StreamContext::new().unwrap();
    run(
        &ctx,
        &format!("CREATE EXTERNAL TABLE flights STORED AS PARQUET LOCATION '{FLIGHTS}'"),
    )
    .await;
    let frame = ctx.sql("SELECT * FROM flights ORDER BY seq").await.unwrap();
    let batches = frame.collect().await.unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Format {
    Parquet,
    Csv,
    Json,
    CsvGz,
}

impl Format {
    pub(super) fn ending(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Json => "json",
            Format::Csv | Format::CsvGz => "csv",
        }
    }

    pub(super) fn stored(self) -> &'static str {
        match self {
            Format::Parquet => "PARQUET",
            Format::Json => "JSON",
            Format::Csv | Format::CsvGz => "CSV",
        }
    }

    fn write(self, path: &Path, rows: &RecordBatch) {
        let file = File::create(path).unwrap();
        match self {
            Format::Parquet => {
                // Several row groups, of which a stretch needs some.
                let groups = WriterProperties::builder().set_max_row_group_row_count(Some(500));
                let properties = Some(groups.build());
                let mut writer = ArrowWriter::try_new(file, rows.schema(), properties).unwrap();
                writer.write(rows).unwrap();
                writer.close().unwrap();
            }
            Format::Json => {
                let mut writer = LineDelimitedWriter::new(file);
                writer.write(rows).unwrap();
                writer.finish().unwrap();
            }
            Format::Csv | Format::CsvGz => {
                let mut writer = WriterBuilder::new().with_header(true).build(file);
                writer.write(rows).unwrap();
            }
        }
        if self == Format::CsvGz {
            assert!(Command::new("gzip").arg(path).status().unwrap().success());
        }
    }
}

/// Writes rows as so many files, each a run of them, whose times of modification are in a random order.
pub(super) fn scatter(dir: &Path, rows: &RecordBatch, files: usize, format: Format, seed: u64) {
    eprintln!("seed {seed}");
    fs::create_dir_all(dir).unwrap();
    let mut numbers = SplitMix(seed);
    let mut order: Vec<u64> = (0..files as u64).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, (numbers.next() % (at as u64 + 1)) as usize);
    }
    let (length, all) = (rows.num_rows().div_ceil(files), rows.num_rows());
    for (file, order) in order.into_iter().enumerate() {
        let start = (file * length).min(all);
        let part = rows.slice(start, length.min(all - start));
        let name = format!("{file:03}.{}", format.ending());
        format.write(&dir.join(&name), &part);
        let path = fs::read_dir(dir).unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            let found = path.file_name()?.to_str()?.starts_with(&name);
            found.then_some(path)
        });
        set_modified(&path.unwrap(), order);
    }
}

/// Sets a file's time of modification, in seconds after an arbitrary moment.
pub(super) fn set_modified(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// Files `NNNN.epoch` of a database, with their numbers.
fn epoch_files(dir: &Path) -> Vec<(u64, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(epoch_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "epoch") {
            let number = path.file_stem().unwrap().to_str().unwrap().parse();
            found.push((number.unwrap(), path));
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}

/// A copy of a database as it was when so many epochs had committed.
pub(super) fn copy_after(from: &Path, to: &Path, epochs: u64) {
    copy(from, to);
    for (number, path) in epoch_files(to) {
        if number > epochs {
            fs::remove_file(path).unwrap();
        }
    }
}
