//! A reader of what the job wrote: the binary without a data directory, which answers one query after the other.
//!
//! It lives as long as the test, since a look after every kill would otherwise be mostly the start of a process. It
//! keeps no list of files: each look lists the directory anew.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};

use crate::files::parquet_files;
use crate::job::Table;
use crate::process::{Running, tidegate};

/// A session of its own in a process of its own.
#[derive(Debug)]
pub(crate) struct Reader {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// Questions asked so far: they number the marks at which answers end.
    asked: u64,
    /// Ended when the reader is dropped.
    _process: Running,
}

impl Reader {
    /// Starts one.
    pub(crate) fn start() -> Self {
        let child = tidegate()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut process = Running(child.expect("the binary starts"));
        let mut reader = Self {
            stdin: process.0.stdin.take().expect("it is piped"),
            stdout: BufReader::new(process.0.stdout.take().expect("it is piped")),
            asked: 0,
            _process: process,
        };
        // DataFusion remembers the files of a directory for good.
        reader.answer("SET datafusion.runtime.list_files_cache_limit = '0';");
        reader
    }

    /// The lines that statements print, headers included. Ends the test when one of them fails.
    pub(crate) fn answer(&mut self, statements: &str) -> Vec<String> {
        self.asked += 1;
        let mark = format!("end of answer {}", self.asked);
        let question = format!("{statements}\nSELECT '{mark}' AS mark;\n");
        self.stdin
            .write_all(question.as_bytes())
            .and_then(|()| self.stdin.flush())
            .unwrap_or_else(|error| panic!("the reader has ended ({error}) before: {statements}"));
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let bytes = self.stdout.read_line(&mut line).expect("lines are text");
            assert_ne!(bytes, 0, "the reader failed (see stderr) at: {statements}");
            let line = line.trim_end_matches('\n');
            if line == mark {
                break;
            }
            lines.push(line.to_owned());
        }
        let header = lines.pop();
        assert_eq!(header.as_deref(), Some("mark"), "after: {statements}");
        lines
    }

    /// The rows of a table of this session, sorted.
    pub(crate) fn rows(&mut self, columns: &str, table: &str) -> Vec<String> {
        let mut rows = self.answer(&format!("SELECT {columns} FROM {table};"));
        assert!(!rows.is_empty(), "there is a header");
        rows.remove(0);
        rows.sort_unstable();
        rows
    }

    /// The rows in the Parquet files of a directory, sorted. Without a file there are none.
    pub(crate) fn rows_of_files(&mut self, table: &Table, folder: &Path) -> Vec<String> {
        if parquet_files(folder).is_empty() {
            return Vec::new();
        }
        self.answer(&format!(
            "CREATE EXTERNAL TABLE written STORED AS PARQUET LOCATION '{}/';",
            folder.display()
        ));
        let rows = self.rows(table.columns, "written");
        self.answer("DROP TABLE written;");
        rows
    }
}
