//! A round: one job from nothing to its end, over as many processes as it takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files::Files;
use crate::job::{Job, TABLES, TableRows};
use crate::process::{self, Ending, tidegate};
use crate::rows::{missing, none};

/// What is in the directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Found {
    /// Rows, of all tables.
    pub(crate) rows: usize,
    /// Tables all of whose rows are there.
    pub(crate) complete: usize,
}

/// The processes of one job, and what they have written.
#[derive(Debug)]
pub(crate) struct Round {
    /// What the round writes, but for its data directory if that is shared.
    folder: PathBuf,
    data: PathBuf,
    script: PathBuf,
    /// The directory of each table.
    outs: Vec<PathBuf>,
    files: Files,
    /// The rows that were there at the last check.
    rows: TableRows,
}

impl Round {
    /// A round with a data directory of its own.
    pub(crate) fn begin(job: &Job, name: &str) -> Self {
        let data = job.folder().join(name).join("data");
        Self::begin_on(job, name, &data)
    }

    /// A round on a data directory that others may have used; the tables of the job must not be in it.
    pub(crate) fn begin_on(job: &Job, name: &str, data: &Path) -> Self {
        let folder = job.folder().join(name);
        let out = folder.join("out");
        fs::create_dir_all(&out).expect("a directory is made");
        let script = folder.join("job.sql");
        fs::write(&script, job.script(Some(&out))).expect("the script is written");
        Self {
            data: data.to_owned(),
            script,
            outs: TABLES.iter().map(|table| out.join(table.name)).collect(),
            folder,
            files: Files::default(),
            rows: TableRows::default(),
        }
    }

    /// Runs the job to its end, or until it is killed. Files are watched meanwhile; `look` is called with the id of
    /// the process.
    pub(crate) fn run(&mut self, limit: Option<Duration>, mut look: impl FnMut(u32)) -> Ending {
        let mut command = tidegate();
        command.arg("--data-dir").arg(&self.data);
        command.arg("-f").arg(&self.script);
        let (files, outs) = (&mut self.files, &self.outs);
        let ending = process::run(command, limit, |id| {
            files.look(outs);
            look(id);
        });
        files.look(outs);
        ending
    }

    /// Runs the job to its end, undisturbed, and returns how long that took and what it left.
    pub(crate) fn finish(&mut self, job: &mut Job) -> (Duration, Found) {
        match self.run(None, |_| ()) {
            Ending::Finished(took) => (took, self.check_whole(job)),
            Ending::Killed => panic!("nobody killed it"),
        }
    }

    /// What is there is a part of what must come out, and what was there is there still. No process runs.
    pub(crate) fn check(&mut self, job: &mut Job) -> Found {
        let mut found = Found::default();
        for (at, table) in TABLES.iter().enumerate() {
            let rows = job.reader.rows_of_files(table, &self.outs[at]);
            let expected = &job.expected[at];
            none(
                "doubled, or never to come out",
                table.name,
                &missing(&rows, expected),
            );
            none("taken back", table.name, &missing(&self.rows[at], &rows));
            found.rows += rows.len();
            found.complete += usize::from(rows.len() == expected.len());
            self.rows[at] = rows;
        }
        found
    }

    /// What is there is what must come out. The job has ended by itself.
    pub(crate) fn check_whole(&mut self, job: &mut Job) -> Found {
        let found = self.check(job);
        for (at, table) in TABLES.iter().enumerate() {
            let lost = missing(&job.expected[at], &self.rows[at]);
            none("lost", table.name, &lost);
        }
        found
    }

    /// The files that were seen.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Removes what the round wrote.
    pub(crate) fn remove(self) {
        fs::remove_dir_all(&self.folder).expect("the round's directory is removed");
    }
}
