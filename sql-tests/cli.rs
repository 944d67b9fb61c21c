//! The binary from outside: what goes to stdout, what to stderr, and the exit code.
//!
//! | family | catches |
//! |---|---|
//! | data | rows on stderr, messages on stdout, headers that repeat or are missing |
//! | failures | lost output before a failure, wrong exit codes, errors without a place |
//! | inputs | statements lost or run twice between -c, -f and stdin |
//! | streams | a streaming query that does not end with its input |
//! | services | a program that ends before its started queries, or not with a signal, or leaves a lock or rows |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader, Read, Write};
#[cfg(unix)]
use std::process::{Child, ChildStdin, ChildStdout};
use std::process::{Command, Output, Stdio};

/// The binary, with nothing of the user's own.
fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).env("TIDEGATE_HISTORY", "");
    command
}

/// Runs the binary with a text on stdin.
fn run(args: &[&str], stdin: &str) -> Output {
    let mut child = tidegate(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A process that has already failed does not read it.
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
}

const ORDERS: &str = "\
CREATE TABLE orders (event_time TIMESTAMP, amount DOUBLE);
INSERT INTO orders VALUES
  ('2026-10-01T09:10:00', 1.5), ('2026-10-01T09:50:00', 2.5), ('2026-10-01T11:30:00', 4.0);
";

#[test]
fn a_statement_prints_a_table_on_stdout_and_nothing_else() {
    let output = run(&["-c", "SELECT 1 AS a, NULL AS b"], "");
    assert_code(&output, 0);
    assert_eq!(
        stdout(&output),
        "+---+------+\n| a | b    |\n+---+------+\n| 1 | NULL |\n+---+------+\n"
    );
    assert_eq!(stderr(&output), "");
}

#[test]
fn csv_has_its_header_once_a_statement_and_without_rows() {
    let sql = "SELECT 1 AS a, NULL AS b; SELECT 2 AS c WHERE false";
    let output = run(&["--format", "csv", "-c", sql], "");
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "a,b\n1,\nc\n");
}

#[test]
fn ndjson_goes_on_over_statements() {
    let output = run(
        &[
            "--format",
            "ndjson",
            "-c",
            "SELECT 1 AS a; SELECT NULL AS b;",
            "-c",
            "SELECT 'c' AS c",
        ],
        "",
    );
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "{\"a\":1}\n{\"b\":null}\n{\"c\":\"c\"}\n");
}

#[test]
fn json_is_an_array_a_statement() {
    let sql = "SELECT * FROM (VALUES (1), (2)) AS t(a) ORDER BY a; SELECT 3 AS a WHERE false";
    let output = run(&["--format", "json", "-c", sql], "");
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "[{\"a\":1},{\"a\":2}]\n[]\n");
}

#[test]
fn what_writes_tells_so_on_stderr() {
    let output = run(&["--format", "csv", "-c", ORDERS], "");
    assert_code(&output, 0);
    assert_eq!(stdout(&output), "");
    assert_eq!(stderr(&output), "3 rows written\n");
    assert_eq!(stderr(&run(&["-q", "-c", ORDERS], "")), "");
}

#[test]
fn a_failure_ends_the_script_after_what_came_before() {
    let sql = "SELECT 1 AS a;\nSELEC 2;\nSELECT 3 AS a";
    let output = run(&["--format", "csv", "-c", sql], "");
    assert_code(&output, 1);
    assert_eq!(stdout(&output), "a\n1\n");
    let told = stderr(&output);
    assert!(told.starts_with("error: "), "{told}");
    assert!(told.contains("| SELEC 2\n"), "{told}");
    assert!(told.contains("| ^\n"), "{told}");
    assert!(told.ends_with("in -c, statement at line 2\n"), "{told}");
}

#[test]
fn a_failure_while_rows_come_is_a_failure() {
    let output = run(&["-c", "SELECT 1 / (v - 2) FROM (VALUES (2)) AS t(v)"], "");
    assert_code(&output, 1);
    assert!(stderr(&output).contains("zero"), "{}", stderr(&output));
}

#[test]
fn wrong_usage_and_unreadable_files_have_a_code_of_their_own() {
    for args in [
        &["--format", "xml"][..],
        &["--no-such-flag"],
        &["test"],
        &["-f", "no/such/file.sql"],
    ] {
        let output = run(args, "");
        assert_code(&output, 2);
        assert_eq!(stdout(&output), "");
        assert_ne!(stderr(&output), "");
    }
}

#[test]
fn commands_files_and_stdin_run_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.sql");
    std::fs::write(&file, "-- the second\nSELECT 2 AS a;\n").unwrap();
    let file = file.to_str().unwrap();
    let output = run(
        &[
            "--format",
            "ndjson",
            "-c",
            "SELECT 1 AS a",
            "-f",
            file,
            "-f",
            "-",
            "-c",
            "SELECT 4 AS a",
        ],
        "SELECT 3 AS a",
    );
    assert_code(&output, 0);
    assert_eq!(
        stdout(&output),
        "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n{\"a\":4}\n"
    );
}

#[test]
fn a_failure_in_a_file_names_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.sql");
    std::fs::write(&file, "SELECT 1;\n\nSELECT nothing;\n").unwrap();
    let file = file.to_str().unwrap();
    let output = run(&["-f", file], "");
    assert_code(&output, 1);
    let place = format!("in {file}, statement at line 3\n");
    assert!(stderr(&output).ends_with(&place), "{}", stderr(&output));
}

#[test]
fn a_statement_on_stdin_runs_before_the_next_is_written() {
    let mut child = tidegate(&["--format", "ndjson"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for number in 1..=2 {
        writeln!(stdin, "SELECT {number}\nAS a;").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("{{\"a\":{number}}}\n"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn commands_work_in_scripts() {
    let script = format!("{ORDERS}.mode csv\n.tables\n.schema orders\n.quit\nSELECT 1;\n");
    let output = run(&["-q"], &script);
    assert_code(&output, 0);
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(
        lines[..3],
        ["table,kind", "orders,table", "table,column,type,nullable"]
    );
    assert!(lines[3].starts_with("orders,event_time,"), "{lines:?}");
    assert!(lines[4].starts_with("orders,amount,Float64,"), "{lines:?}");
    assert_eq!(lines.len(), 5);
}

#[test]
fn a_picture_is_as_wide_as_it_is_told_and_has_colours_on_a_terminal_only() {
    let script = format!(
        "{ORDERS}CREATE STREAMING TABLE hourly AS SELECT window.start AS hour, count(*) AS n FROM STREAM orders \
         WATERMARK event_time DELAY OF INTERVAL 1 HOUR GROUP BY window(event_time, '1 hour');\n\
         REFRESH STREAMING TABLE hourly;\n.mode csv\n.watermark hourly\n"
    );
    for columns in [40, 100] {
        let mut child = tidegate(&["-q"])
            .env("COLUMNS", columns.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = stdout(&output);
        let picture = text.split_once("hourly  its only epoch\n").unwrap().1;
        let widths = picture.lines().map(|line| line.chars().count());
        let widest = widths.max().unwrap();
        assert!((columns - 3..=columns).contains(&widest), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(text.contains("1 open window with 1 row"));
    }
    let output = run(&["-c", ".watermark hourly 1 2 3"], "");
    assert_code(&output, 1);
    assert!(stderr(&output).contains("error: .watermark takes a streaming table"));
    let output = run(&["-c", ".watermark nowhere"], "");
    assert_code(&output, 1);
    assert!(stderr(&output).contains("[STREAMING_TABLE_NOT_FOUND]"));
}

#[test]
fn an_unknown_command_names_the_nearest() {
    let output = run(&["-c", ".tabels"], "");
    assert_code(&output, 1);
    assert!(stderr(&output).contains("did you mean .tables?"));
    assert!(stderr(&output).contains(".help"));
}

#[test]
fn a_file_that_reads_itself_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("self.sql");
    std::fs::write(&file, format!(".read {}\n", file.display())).unwrap();
    let output = run(&["-f", file.to_str().unwrap()], "");
    assert_code(&output, 1);
    assert!(stderr(&output).contains("is not read"));
}

#[test]
fn a_reader_that_leaves_early_ends_it_quietly() {
    let sql = "SELECT * FROM generate_series(1, 100000000)";
    let mut child = tidegate(&["--format", "csv", "-c", sql])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    assert!(child.wait().unwrap().success());
    let mut told = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    assert_eq!(told, "");
}

#[test]
fn a_streaming_query_ends_with_its_input_and_closes_every_window() {
    // 09:00        10:00        11:00        12:00
    //   | 1.5   2.5  |            |   4.0      |
    let script = format!(
        "{ORDERS}
SELECT window.start AS hour, count(*) AS orders, sum(amount) AS revenue
FROM STREAM orders WATERMARK event_time DELAY OF INTERVAL 1 HOUR
GROUP BY window(event_time, '1 hour');"
    );
    let output = run(&["-q", "--format", "csv"], &script);
    assert_code(&output, 0);
    let mut lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines.remove(0), "hour,orders,revenue");
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["2026-10-01T09:00:00,2,4.0", "2026-10-01T11:00:00,1,4.0"]
    );
}

#[test]
fn a_window_is_text_in_csv() {
    let script = format!(
        "{ORDERS}
SELECT window, count(*) AS orders
FROM STREAM orders WATERMARK event_time DELAY OF INTERVAL 1 HOUR
WHERE amount = 4.0
GROUP BY window(event_time, '1 hour');"
    );
    let output = run(&["-q", "--format", "csv"], &script);
    assert_code(&output, 0);
    assert_eq!(
        stdout(&output),
        "window,orders\n\"{start: 2026-10-01T11:00:00, end: 2026-10-01T12:00:00}\",1\n"
    );
}

/// A program that reads statements from a pipe, on a directory.
#[cfg(unix)]
struct Service {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

#[cfg(unix)]
impl Service {
    fn start(folder: &std::path::Path, script: &str) -> Self {
        let folder = folder.to_str().unwrap();
        let mut child = tidegate(&["--format", "ndjson", "--data-dir", folder])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(script.as_bytes()).unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            stdin,
            stdout,
        }
    }

    /// Asks again and again until the answer is this line.
    fn ask_until(&mut self, sql: &str, line: &str) {
        let mut answer = String::new();
        while answer.trim_end() != line {
            writeln!(self.stdin, "{sql};").unwrap();
            answer.clear();
            assert!(self.stdout.read_line(&mut answer).unwrap() > 0);
        }
    }

    /// Ends the script, waits until the program says that it stays, and sends it a signal. What it told since,
    /// and its exit code.
    fn end_with(self, signal: &str) -> (String, Option<i32>) {
        let Self {
            mut child, stdin, ..
        } = self;
        drop(stdin);
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("running; ") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0);
        }
        send(&child, signal);
        let mut told = String::new();
        stderr.read_to_string(&mut told).unwrap();
        (told, child.wait().unwrap().code())
    }
}

#[cfg(unix)]
fn send(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(sent.success());
}

#[cfg(unix)]
const STARTED: &str = "\
CREATE STREAMING TABLE hourly AS
SELECT window.start AS hour, sum(amount) AS revenue
FROM STREAM orders WATERMARK event_time DELAY OF INTERVAL 1 HOUR
GROUP BY window(event_time, '1 hour');
ALTER STREAMING TABLE hourly START;
";

#[cfg(unix)]
#[test]
fn a_service_stays_until_a_signal_ends_it_and_its_rows_stay() {
    let folder = tempfile::tempdir().unwrap();
    let count = "SELECT count(*) AS n FROM hourly";
    let mut service = Service::start(folder.path(), &format!("{ORDERS}{STARTED}"));
    service.ask_until(count, "{\"n\":1}");
    assert_eq!(service.end_with("-TERM"), (String::new(), Some(0)));
    // The next one opens the same directory; nothing runs there until it is started again.
    let more = "ALTER STREAMING TABLE hourly START;
INSERT INTO orders VALUES ('2026-10-01T15:00:00', 1.0);\n";
    let mut service = Service::start(folder.path(), more);
    service.ask_until(count, "{\"n\":2}");
    assert_eq!(service.end_with("-INT"), (String::new(), Some(0)));
    let output = run(
        &[
            "--format",
            "csv",
            "--data-dir",
            folder.path().to_str().unwrap(),
        ],
        "SELECT * FROM hourly ORDER BY hour;\n",
    );
    assert_code(&output, 0);
    assert_eq!(
        stdout(&output),
        "hour,revenue\n2026-10-01T09:00:00,4.0\n2026-10-01T11:00:00,4.0\n"
    );
}

#[test]
fn a_service_whose_query_fails_says_so() {
    let script = "CREATE TABLE t (v BIGINT); INSERT INTO t VALUES (2);
CREATE STREAMING TABLE q AS SELECT 1 / (v - 2) AS n FROM STREAM t;
ALTER STREAMING TABLE q START;";
    let output = run(&["-q", "-c", script], "");
    assert_code(&output, 1);
    let told = stderr(&output);
    assert!(
        told.starts_with("error: q is not refreshed any more: "),
        "{told}"
    );
    assert!(told.contains("zero"), "{told}");
}

#[test]
fn a_query_that_was_stopped_keeps_nobody() {
    let script = "CREATE TABLE t (v BIGINT); CREATE STREAMING TABLE q AS SELECT v FROM STREAM t;
ALTER STREAMING TABLE q START EVERY INTERVAL 1 DAY; ALTER STREAMING TABLE q STOP;";
    assert_code(&run(&["-c", script], ""), 0);
}

#[cfg(unix)]
#[test]
fn sigterm_cancels_a_statement_and_has_a_code_of_its_own() {
    let sql = format!("{ORDERS}{STARTED}SELECT * FROM generate_series(1, 100000000000)");
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let mut child = tidegate(&["--format", "csv", "-c", &sql])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut String::new()).unwrap();
        send(&child, signal);
        std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}
