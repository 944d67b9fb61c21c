//! Files that are not what was written: a bit, an end, another file in its place, none.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use datafusion::common::DataFusionError;
use tidegate::catalog::Database;
use tidegate::checkpoint::{Checkpoint, Restored};
use tidegate::disk::{Disk, SimDisk};
use tidegate::prelude::*;

use crate::case::Case;
use crate::job::{Done, Job, Step, block, open, run};
use crate::seen::{Expected, Seen, SeenTable, rows_of};

/// Checkpoints that are kept.
const KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// A job that has been done, and its files.
#[derive(Debug)]
pub(crate) struct Whole<'a> {
    job: &'a Job,
    expected: Expected,
    disk: SimDisk,
    files: BTreeMap<String, Vec<u8>>,
}

impl<'a> Whole<'a> {
    /// Does the job.
    pub(crate) fn of(job: &'a Job) -> Self {
        let disk = SimDisk::new(0);
        block(async {
            let ctx = open(Arc::new(disk.clone()), 1).await.expect("it is opened");
            job.run(&ctx, &mut Done::default()).await.expect("it runs");
        });
        let paths = disk.files().into_iter();
        let ours = |path: &String| !path.starts_with("out/") && path != "LOCK";
        let files = paths.filter(ours).map(|path| {
            let bytes = disk.read(&path).expect("a file is read");
            (path, bytes)
        });
        Self {
            files: files.collect(),
            expected: Expected::of(job),
            job,
            disk,
        }
    }

    /// Each byte of each file with a bit turned, and each file cut at each length, or at one in so many: whoever
    /// reads the file says so, or it is one that need not be read.
    pub(crate) fn every_byte(&self, stride: usize) {
        let started = Instant::now();
        let (mut positions, mut unread) = (0_u64, 0_u64);
        let restored: BTreeMap<&str, String> = self
            .files
            .keys()
            .filter_map(|path| {
                Some((
                    path.as_str(),
                    restored(&self.disk.fork(), id_of(path, "queries/")?).expect("whole"),
                ))
            })
            .collect();
        for (path, bytes) in &self.files {
            for at in (0..bytes.len()).step_by(stride) {
                for cut in [false, true] {
                    let _case =
                        Case(|| format!("{}: {path}, byte {at}, cut: {cut}", self.job.name));
                    positions += 1;
                    let disk = self.disk.fork();
                    let rot = |bytes: &mut Vec<u8>| match cut {
                        true => bytes.truncate(at),
                        false => bytes[at] ^= 1 << (at % 8),
                    };
                    disk.corrupt(path, rot).expect("a file is changed");
                    match read(&disk, path) {
                        Err(error) => names(&error, path),
                        Ok(found) => {
                            unread += 1;
                            assert_eq!(
                                Some(&found),
                                restored.get(path.as_str()),
                                "not what it was"
                            );
                        }
                    }
                }
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "{}: {} files, {positions} damages, {unread} of them where nobody reads, {seconds:.1} s",
            self.job.name,
            self.files.len()
        );
    }

    /// Files that are empty, missing, in the place of others, and damaged in some places: all is opened, what can
    /// be read is right, and what cannot be says so and can be mended.
    pub(crate) fn all_of_it(&self, places: usize) {
        let started = Instant::now();
        let mut cases = 0_u64;
        let mut one = |what: &str, paths: &[&str], disk: SimDisk| {
            let _case = Case(|| format!("{}: {paths:?} {what}", self.job.name));
            block(self.opens(&disk, paths));
            cases += 1;
        };
        for (path, bytes) in &self.files {
            for at in (0..places).map(|place| place * bytes.len() / places) {
                let disk = self.disk.fork();
                disk.corrupt(path, |bytes| bytes[at] ^= 1 << (at % 8))
                    .expect("changed");
                one(&format!("with a bit turned at {at}"), &[path], disk);
            }
            for length in [0, bytes.len() / 2] {
                let disk = self.disk.fork();
                disk.corrupt(path, |bytes| bytes.truncate(length))
                    .expect("changed");
                one(&format!("cut at {length}"), &[path], disk);
            }
            let disk = self.disk.fork();
            disk.remove(path).expect("removed");
            one("removed", &[path], disk);
            for (other, content) in self.files.range(path.clone()..).skip(1) {
                let disk = self.disk.fork();
                disk.corrupt(path, |bytes| bytes.clone_from(content))
                    .expect("changed");
                disk.corrupt(other, |now| now.clone_from(bytes))
                    .expect("changed");
                one("exchanged", &[path, other], disk);
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "{}: opened with damage, {cases} cases, {seconds:.1} s",
            self.job.name
        );
    }

    async fn opens(&self, disk: &SimDisk, paths: &[&str]) {
        let expected = &self.expected;
        let ctx = match open(Arc::new(disk.clone()), 1).await {
            Ok(ctx) => ctx,
            Err(error) => return names_one(&error, paths),
        };
        for unopened in ctx.unopened() {
            names_one(&unopened.error.into(), paths);
        }
        let whole = match rows_of(&ctx, "t").await {
            Ok(rows) => Some(rows) == expected.last().input,
            Err(error) => {
                names_one(&error, paths);
                false
            }
        };
        let of_t = paths.iter().any(|path| path.starts_with("tables/"));
        assert!(whole || of_t, "t is not what it was");
        for at in 0..self.job.tables.len() {
            self.reads(&ctx, disk, at, whole, paths).await;
        }
        if whole {
            drop(ctx);
            let ctx = open(Arc::new(disk.clone()), 1).await;
            let ctx = ctx.expect("it is opened when it is mended");
            let seen = Seen::of(self.job, &ctx, disk).await;
            expected.check_last(&seen.expect("it is read"));
        }
    }

    /// Reads a streaming table, refreshes it, and begins it anew if it says that it is damaged.
    async fn reads(
        &self,
        ctx: &StreamContext,
        disk: &SimDisk,
        at: usize,
        whole: bool,
        paths: &[&str],
    ) {
        let (job, table, last) = (
            self.job,
            &self.job.tables[at],
            &self.expected.last().tables[at],
        );
        let seen = SeenTable::of(table, ctx, disk).await;
        let refreshed = job.step(ctx, Step::Refresh(at), &mut Done::default()).await;
        match (&seen, &refreshed) {
            (Err(error), _) => names_one(error, paths),
            // Its files are there, and nothing is known of it.
            (Ok(seen), Err(_)) if seen.figures[0] == 0 => assert_eq!(seen.rows, last.rows),
            (Ok(seen), _) => self.expected.check_table(job, seen),
        }
        if let Err(error) = &refreshed {
            names_one(error, paths);
        }
        if !whole {
            return;
        }
        if refreshed.is_err() {
            let sql = format!("REFRESH STREAMING TABLE {} FULL", table.name);
            run(ctx, &sql).await.expect("it is mended");
        }
        let seen = SeenTable::of(table, ctx, disk).await;
        assert_eq!(&seen.expect("it is read"), last);
    }
}

/// The id in a path below a folder.
fn id_of<'a>(path: &'a str, below: &str) -> Option<&'a str> {
    path.strip_prefix(below)?.split('/').next()
}

/// Reads what a file belongs to, as it is read when a database is opened; what of it can be compared.
fn read(disk: &SimDisk, path: &str) -> Result<String, DataFusionError> {
    if let Some(id) = id_of(path, "queries/") {
        return restored(disk, id);
    }
    let database = Database::open(Arc::new(disk.clone()), || "another".to_owned())?;
    match id_of(path, "tables/") {
        Some(id) => database.rows(id).map(|_| "rows".to_owned()),
        None => Ok("the catalog".to_owned()),
    }
}

/// The newest checkpoint of a query, as a text.
fn restored(disk: &SimDisk, id: &str) -> Result<String, DataFusionError> {
    let disk = Arc::new(disk.clone());
    let (_, restored) = Checkpoint::open(disk, Arc::default(), "queries", id, KEPT)?;
    let Restored {
        number,
        content,
        pieces,
    } = restored;
    Ok(format!("{number} {content} {pieces:?}"))
}

/// An error names a file.
#[track_caller]
fn names(error: &DataFusionError, path: &str) {
    names_one(error, &[path]);
}

/// An error names one of some files, or a folder that one is in.
#[track_caller]
fn names_one(error: &DataFusionError, paths: &[&str]) {
    let text = error.to_string();
    let named = paths.iter().any(|path| {
        let folder = path.rsplit_once('/').map_or(*path, |(folder, _)| folder);
        text.contains(folder)
    });
    assert!(named, "{text}");
}
