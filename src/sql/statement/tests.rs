//! What each statement is read as, and what is refused where.

use sqlparser::dialect::GenericDialect;

use super::*;
use crate::error::{Place, Refusal, refusal};
use crate::sql::parse::{Parsed, parse};

fn read(sql: &str) -> StreamingStatement {
    match parse(sql, &GenericDialect {}, 50).unwrap() {
        Parsed::Streaming(statement) => *statement,
        Parsed::DataFusion(_) | Parsed::Retaining(..) => panic!("not one of our statements: {sql}"),
    }
}

fn created(sql: &str) -> CreateStreamingTable {
    match read(sql) {
        StreamingStatement::Create(create) => *create,
        other => panic!("{sql}: {other:?}"),
    }
}

fn stored(sql: &str) -> Target {
    let statement = format!("CREATE STREAMING TABLE x {sql} AS SELECT * FROM STREAM t");
    created(&statement).target.unwrap()
}

fn refused(sql: &str) -> Refusal {
    let error = parse(sql, &GenericDialect {}, 50).unwrap_err();
    refusal(&error).unwrap().clone()
}

/// Checks rows of `text | message | hint`: what is refused, a part of its message and of its hint.
/// The text takes the place of `…` in the statement; `^` stands before the place, `\n` for a new line.
fn check(condition: &str, statement: &str, rows: &str) {
    for row in rows.lines().filter(|row| !row.trim().is_empty()) {
        let parts: Vec<&str> = row.split('|').map(str::trim).collect();
        let [text, message, hint] = parts[..] else {
            panic!("{row}");
        };
        let marked = statement.replace('…', text).replace("\\n", "\n");
        let (before, after) = marked.split_once('^').unwrap();
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        let place = Place {
            line: before.matches('\n').count() as u64 + 1,
            column: column as u64 + 1,
        };
        let got = refused(&format!("{before}{after}"));
        assert_eq!(got.condition, condition, "{row}: {got}");
        assert_eq!(got.place, Some(place), "{row}: {got}");
        assert!(got.message.contains(message), "{row}: {got}");
        assert!(got.hint.is_some_and(|got| got.contains(hint)), "{row}");
    }
}

const SYNTAX: &str = "PARSE_SYNTAX_ERROR";
const VALUE: &str = "INVALID_STREAM_OPTION";
const CREATE: &str = "CREATE STREAMING TABLE x … AS SELECT 1";
const PARTITIONED: &str =
    "CREATE STREAMING TABLE x STORED AS CSV LOCATION 'd/' … WITH (a = 1) AS SELECT 1";

#[test]
fn what_happens_to_a_table_that_exists_is_read_from_the_words_before_its_name() {
    for (head, existing) in [
        ("CREATE STREAMING TABLE", Existing::Refuse),
        ("CREATE STREAMING TABLE IF NOT EXISTS", Existing::Keep),
        ("CREATE OR REPLACE STREAMING TABLE", Existing::Replace),
        ("create or refresh streaming table", Existing::Refresh),
    ] {
        let create = created(&format!(
            "{head} S.\"X\" STORED AS CSV LOCATION 'd/' AS SELECT 1"
        ));
        assert_eq!(create.existing, existing, "{head}");
        assert_eq!(create.name, TableReference::partial("s", "X"), "{head}");
        assert!(create.target.is_some(), "{head}");
    }
}

#[test]
fn a_target_has_a_format_a_directory_and_columns() {
    for (words, format) in [
        ("STORED AS PARQUET LOCATION 'out/'", Format::Parquet),
        ("stored as csv location 'out/'", Format::Csv),
        ("STORED AS Json LOCATION 'out/'", Format::Json),
    ] {
        let wanted = Target {
            format,
            location: "out/".to_owned(),
            partitioned_by: Vec::new(),
            place: Some(Place {
                line: 1,
                column: 26,
            }),
        };
        assert_eq!(stored(words), wanted, "{words}");
    }
    let target = stored("STORED AS PARQUET LOCATION 's3://b/o/' PARTITIONED BY (Day, \"City\", a)");
    assert_eq!(target.location, "s3://b/o/");
    assert_eq!(target.partitioned_by, ["day", "City", "a"]);
}

#[test]
fn with_stands_on_either_side_of_stored_as_or_nowhere() {
    let part = "STORED AS CSV LOCATION 'd/' PARTITIONED BY (a)";
    let with = "WITH (Output_Mode = 'append', n = 3)";
    for parts in [format!("{with} {part}"), format!("{part}\n{with}")] {
        let create = created(&format!(
            "CREATE STREAMING TABLE x {parts} AS WITH c AS (SELECT 1) SELECT * FROM c"
        ));
        let options = create.options.iter();
        let options: Vec<_> = options.map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(options, [("output_mode", "append"), ("n", "3")], "{parts}");
        let target = create.target.unwrap();
        assert_eq!(target.format, Format::Csv, "{parts}");
        assert_eq!(target.partitioned_by, ["a"], "{parts}");
    }
    let bare = created("CREATE STREAMING TABLE x AS SELECT 1");
    assert!(bare.options.is_empty());
    assert_eq!(bare.target, None);
}

#[test]
fn the_words_stay_ordinary_names() {
    for name in [
        "stored",
        "location",
        "partitioned",
        "full",
        "start",
        "stop",
        "every",
    ] {
        let create = created(&format!("CREATE STREAMING TABLE {name} AS SELECT 1"));
        assert_eq!(create.name, TableReference::bare(name));
        let StreamingStatement::Refresh { name: got, full } =
            read(&format!("REFRESH STREAMING TABLE {name}"))
        else {
            panic!("{name}");
        };
        assert_eq!((got, full), (TableReference::bare(name), false));
    }
}

#[test]
fn texts_are_kept_as_they_were_written() {
    let statement = "CREATE STREAMING TABLE größe -- why\n  STORED AS CSV LOCATION 'ä/'\nAS SELECT 'ö;'\n  FROM STREAM t";
    for around in [("", ""), ("  \n", " ; "), ("/* é */ ", " ;\n;")] {
        let create = created(&format!("{}{statement}{}", around.0, around.1));
        assert_eq!(create.statement, statement);
        assert_eq!(create.text, "SELECT 'ö;'\n  FROM STREAM t");
    }
}

#[test]
fn formats_are_shown_as_they_are_written_and_name_their_files() {
    let shown = [Format::Parquet, Format::Csv, Format::Json]
        .map(|format| format!("{format} {}", format.extension()));
    assert_eq!(shown, ["PARQUET parquet", "CSV csv", "JSON json"]);
}

#[test]
fn a_refresh_is_full_if_it_says_so() {
    for (sql, wanted) in [
        ("REFRESH STREAMING TABLE s.x", false),
        ("REFRESH STREAMING TABLE s.x full;", true),
    ] {
        let StreamingStatement::Refresh { name, full } = read(sql) else {
            panic!("{sql}");
        };
        assert_eq!(name, TableReference::partial("s", "x"), "{sql}");
        assert_eq!(full, wanted, "{sql}");
    }
}

#[test]
fn a_table_starts_with_or_without_an_interval() {
    for (tail, millis) in [
        ("", None),
        (" EVERY INTERVAL '10 seconds'", Some(10_000)),
        (" EVERY INTERVAL 10 SECONDS", Some(10_000)),
        (" EVERY INTERVAL '1' HOUR", Some(3_600_000)),
        (" every interval 1 minute 30 seconds;", Some(90_000)),
        (" EVERY INTERVAL '1:30' MINUTE TO SECOND", Some(90_000)),
        (" EVERY INTERVAL '1.5 seconds'", Some(1_500)),
        (" EVERY INTERVAL '1 day -1 hour'", Some(82_800_000)),
    ] {
        let sql = format!("ALTER STREAMING TABLE c.s.x START{tail}");
        let StreamingStatement::Start { name, every } = read(&sql) else {
            panic!("{sql}");
        };
        assert_eq!(name, TableReference::full("c", "s", "x"), "{sql}");
        assert_eq!(every, millis.map(Duration::from_millis), "{sql}");
    }
}

#[test]
fn a_table_stops() {
    let StreamingStatement::Stop { name } = read("alter streaming table \"X\" stop;") else {
        panic!("not a STOP");
    };
    assert_eq!(name, TableReference::bare("X"));
}

#[test]
fn alter_of_anything_else_is_left_to_datafusion() {
    let parsed = parse("ALTER TABLE t ADD COLUMN start INT", &GenericDialect {}, 50);
    assert!(matches!(parsed, Ok(Parsed::DataFusion(_))), "{parsed:?}");
}

#[test]
fn mistakes_around_stored_as_are_named_at_their_place() {
    check(
        SYNTAX,
        CREATE,
        r"
        ^STORED PARQUET LOCATION 'd/'                   | AS and a format        | STORED AS PARQUET
        STORED AS ^LOCATION 'd/'                        | A format must follow   | STORED AS PARQUET
        STORED AS ^'parquet' LOCATION 'd/'              | A format must follow   | STORED AS PARQUET
        STORED AS CSV ^WITH (a = 1)                     | A LOCATION must follow | STORED AS CSV LOCATION 'dir/'
        STORED AS CSV ^PARTITIONED BY (a) LOCATION 'd/' | A LOCATION must follow | STORED AS CSV LOCATION 'dir/'
        STORED AS CSV LOCATION ^d                       | directory in quotes    | LOCATION 'dir/'
        STORED AS CSV LOCATION 'd/' ^(a INT)            | AS and a query         | name AS SELECT
        ^LOCATION 'd/'                                  | behind STORED AS       | STORED AS PARQUET LOCATION
        WITH (a = 1)\n^LOCATION 'd/'                    | behind STORED AS       | STORED AS PARQUET LOCATION
        STORED AS CSV LOCATION 'd/' ^LOCATION 'e/'      | LOCATION stands once   | STORED AS PARQUET LOCATION
        STORED AS CSV LOCATION 'd/' ^STORED AS CSV      | STORED AS is given     | keep one
        WITH (a = 1) STORED AS CSV LOCATION 'd/' ^WITH  | WITH is given twice    | one WITH
        ",
    );
    check(
        VALUE,
        CREATE,
        r"
        STORED AS\n^AVRO LOCATION 'd/'        | cannot be stored as AVRO    | PARQUET, CSV or JSON
        STORED AS ^arrow LOCATION 'd/'        | cannot be stored as arrow   | PARQUET, CSV or JSON
        STORED AS CSV LOCATION ^''            | location is empty           | LOCATION 'dir/'
        STORED AS CSV LOCATION ^' '           | location is empty           | LOCATION 'dir/'
        STORED AS CSV LOCATION ^'a/b.csv'     | 'a/b.csv' does not end in / | final /: 'a/b.csv/'
        STORED AS CSV LOCATION\n ^'a/ '       | 'a/ ' does not end in /     | final /: 'a/'
        ",
    );
}

#[test]
fn mistakes_around_partitioned_by_are_named_at_their_place() {
    check(
        SYNTAX,
        CREATE,
        r"
        ^PARTITIONED BY (a)               | behind the LOCATION | LOCATION 'dir/' PARTITIONED BY
        WITH (a = 1)\n^PARTITIONED BY (a) | behind the LOCATION | LOCATION 'dir/' PARTITIONED BY
        ",
    );
    check(
        SYNTAX,
        PARTITIONED,
        r#"
        PARTITIONED BY (a) ^PARTITIONED BY (b) | stands once    | LOCATION 'dir/' PARTITIONED BY
        ^PARTITIONED (a)                       | BY and columns | PARTITIONED BY (column)
        ^PARTITIONED BY a                      | in parentheses | PARTITIONED BY (column)
        ^PARTITIONED BY (a                     | in parentheses | PARTITIONED BY (column)
        ^PARTITIONED BY ()                     | is empty       | PARTITIONED BY (column)
        ^PARTITIONED BY (a, )                  | is empty       | PARTITIONED BY (column)
        PARTITIONED BY (a, ^"")                | is empty       | PARTITIONED BY (column)
        PARTITIONED BY (^'a')                  | name alone     | PARTITIONED BY (column)
        PARTITIONED BY (a,\n ^b INT)           | name alone     | PARTITIONED BY (column)
        "#,
    );
    check(
        VALUE,
        PARTITIONED,
        r#"
        PARTITIONED BY (a, b, ^A)     | column a is given twice | keep one
        PARTITIONED BY ("A",\n ^"A")  | column A is given twice | keep one
        "#,
    );
}

#[test]
fn mistakes_around_the_query_are_named_at_their_place() {
    check(
        SYNTAX,
        "CREATE STREAMING TABLE …",
        r"
        x STORED AS CSV ^AS SELECT 1                         | A LOCATION must follow | LOCATION 'dir/'
        x STORED AS CSV LOCATION ^'d/'                       | AS and a query         | name AS SELECT
        x STORED AS CSV LOCATION 'd/' ^AS                    | query is missing       | name AS SELECT
        x STORED AS CSV LOCATION 'd/' AS ^DROP TABLE x       | defined by a query     | name AS SELECT
        ",
    );
    check(
        SYNTAX,
        "CREATE OR … x AS SELECT 1",
        r"
        REPLACE STREAMING TABLE ^IF NOT EXISTS | leaves a table alone | one of them
        REFRESH STREAMING TABLE ^IF NOT EXISTS | leaves a table alone | one of them
        ",
    );
}

#[test]
fn mistakes_behind_refresh_and_alter_are_named_at_their_place() {
    check(
        SYNTAX,
        "…",
        r"
        REFRESH STREAMING ^TABLE             | name of a streaming table | STREAMING TABLE name
        REFRESH STREAMING TABLE x ^FULLY     | Nothing is expected here  | end the statement
        REFRESH STREAMING TABLE x FULL ^FULL | Nothing is expected here  | end the statement
        ALTER STREAMING ^TABLE               | name of a streaming table | STREAMING TABLE name
        ALTER STREAMING TABLE ^x             | START, STOP or CORRECT must follow | START EVERY INTERVAL
        ",
    );
    check(
        SYNTAX,
        "ALTER STREAMING TABLE x …",
        r"
        \n^RENAME TO y                | START, STOP or CORRECT must follow | write START, START EVERY
        STOP ^NOW                     | Nothing is expected here: NOW      | or CORRECT
        START ^INTERVAL 1 HOUR        | Nothing is expected here: INTERVAL | START EVERY INTERVAL
        START ^EVERY                  | takes an INTERVAL                  | START EVERY INTERVAL
        START EVERY ^'1 hour'         | takes an INTERVAL                  | START EVERY INTERVAL
        START EVERY INTERVAL 1 DAY ^x | Nothing is expected here: x        | START EVERY INTERVAL
        ",
    );
    check(
        VALUE,
        "ALTER STREAMING TABLE x START EVERY …",
        r"
        ^INTERVAL 0 SECONDS   | not longer than zero: 0 seconds  | more than zero
        ^INTERVAL '-5' MINUTE | not longer than zero: -5 minutes | more than zero
        ^INTERVAL -5 MINUTES  | not longer than zero: -5 minutes | more than zero
        \n^INTERVAL 1 MONTH   | months or years                  | INTERVAL 31 DAYS
        ",
    );
    check(
        "CANNOT_PARSE_INTERVAL",
        "ALTER STREAMING TABLE x START EVERY …",
        r"
        ^INTERVAL '5'       | no unit                | START EVERY INTERVAL
        ^INTERVAL           | no unit                | START EVERY INTERVAL
        ^INTERVAL 'a while' | not a length of time   | START EVERY INTERVAL
        ",
    );
}
