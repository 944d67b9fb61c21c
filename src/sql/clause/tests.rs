//! Which words open a clause, what they are lowered to, and what is refused where.

use sqlparser::dialect::GenericDialect;

use super::*;
use crate::sql::tokens::tokenize;

fn lowered(sql: &str) -> Result<String, Refusal> {
    let tokens = lower(tokenize(sql, &GenericDialect {}).unwrap())?;
    let words: Vec<String> = tokens
        .iter()
        .filter(|token| token.token != Token::EOF)
        .map(|token| token.token.to_string())
        .collect();
    Ok(words.join(" "))
}

fn refused(sql: &str) -> (String, Option<(u64, u64)>) {
    let refusal = lowered(sql).unwrap_err();
    (
        refusal.message,
        refusal.place.map(|place| (place.line, place.column)),
    )
}

#[test]
fn a_clause_takes_the_relation_before_it_whatever_its_form() {
    for (relation, tail) in [
        ("t", ""),
        ("c.s.t", " x"),
        ("\"T\"", " AS x (a, b)"),
        ("f ( 1 , g ( 2 ) )", ""),
        ("( SELECT * FROM t )", " AS x"),
        ("( a JOIN b ON a.k = b.k )", ""),
    ] {
        let sql = format!(
            "SELECT * FROM {relation} WATERMARK ts DELAY OF INTERVAL 1 SECOND{tail} WHERE k = 1"
        );
        let relation = relation.replace('.', " . ");
        let text = lowered(&sql).unwrap();
        let start = format!(
            "SELECT * FROM TABLE ( {WATERMARK_CALL} ( ( SELECT * FROM {relation} ) , ts , NULL , '1000000000' , 1 ,"
        );
        assert!(text.starts_with(&start), "{text}");
    }
}

#[test]
fn a_stream_is_lowered_first_and_carries_its_options() {
    assert_eq!(
        lowered("FROM STREAM t WITH (epoch_by = 'b', n = 3)").unwrap(),
        format!(
            "FROM TABLE ( {STREAM_CALL} ( ( SELECT * FROM t ) , 1 , 6 , 'epoch_by' , 'b' , 'n' , '3' ) )"
        )
    );
    assert_eq!(
        lowered("FROM STREAM(t)").unwrap(),
        lowered("FROM STREAM t").unwrap()
    );
}

#[test]
fn the_words_stay_ordinary_names() {
    for sql in [
        "SELECT watermark , delay , stream FROM t",
        "SELECT a watermark FROM t",
        "SELECT * FROM t watermark",
        "SELECT * FROM t AS watermark WHERE watermark . delay > 1",
        "SELECT * FROM watermark JOIN stream ON true",
        "SELECT * FROM stream AS s",
        "SELECT * FROM stream",
        "SELECT * FROM a , stream WHERE stream . x = 1",
        "SELECT stream ( x ) FROM t",
        "WITH watermark AS ( SELECT 1 AS a ) SELECT * FROM watermark",
    ] {
        assert_eq!(lowered(sql).unwrap(), sql);
    }
}

#[test]
fn expressions_may_hold_anything_and_be_named_with_or_without_as() {
    for (clause, wanted) in [
        ("to_timestamp(s) AS e", "to_timestamp ( s ) , e"),
        ("to_timestamp(s) e", "to_timestamp ( s ) , e"),
        (
            "CAST(raw AS TIMESTAMP) AS ts",
            "CAST ( raw AS TIMESTAMP ) , ts",
        ),
        ("ts + INTERVAL '1' HOUR AS e", "ts + INTERVAL '1' HOUR , e"),
        ("ts + INTERVAL '1' HOUR", "ts + INTERVAL '1' HOUR , NULL"),
        ("delay", "delay , NULL"),
        ("x.ts", "x . ts , NULL"),
        (
            "CASE WHEN a THEN b ELSE c END AS e",
            "CASE WHEN a THEN b ELSE c END , e",
        ),
        (
            "CASE WHEN a THEN b ELSE c END",
            "CASE WHEN a THEN b ELSE c END , NULL",
        ),
    ] {
        let text = lowered(&format!(
            "FROM t WATERMARK {clause} DELAY OF INTERVAL 1 DAY"
        ))
        .unwrap();
        assert!(
            text.contains(&format!("FROM t ) , {wanted} , '86400000000000'")),
            "{text}"
        );
    }
}

#[test]
fn delays_are_read_in_every_spelling() {
    for (text, seconds) in [
        ("1 HOUR", 3_600_i64),
        ("'1' HOUR", 3_600),
        ("'1 hour 30 minutes'", 5_400),
        ("10 MINUTES 30 SECONDS", 630),
        ("'1 day -10 seconds'", 86_390),
        ("'0' SECOND", 0),
        ("1 WEEK", 604_800),
    ] {
        let sql = format!("FROM t WATERMARK ts DELAY OF INTERVAL {text} x");
        let nanos = seconds * 1_000_000_000;
        let got = lowered(&sql).unwrap();
        assert!(
            got.contains(&format!("'{nanos}'")) && got.ends_with(" x"),
            "{got}"
        );
    }
}

#[test]
fn mistakes_are_named_at_their_place() {
    for (sql, message, place) in [
        (
            "FROM t AS x WATERMARK ts DELAY OF INTERVAL 1 DAY",
            "alias stands before",
            (1, 13),
        ),
        (
            "FROM t x WATERMARK ts DELAY OF INTERVAL 1 DAY",
            "alias stands before",
            (1, 10),
        ),
        (
            "FROM t\nWATERMARK ts DELAY INTERVAL 1 DAY",
            "OF is missing",
            (2, 20),
        ),
        (
            "FROM t WATERMARK ts DELAY OF 5",
            "takes an INTERVAL",
            (1, 30),
        ),
        (
            "FROM t WATERMARK ts DELAY OF INTERVAL '-5' MINUTE",
            "negative",
            (1, 30),
        ),
        (
            "FROM t WATERMARK ts DELAY OF INTERVAL 1 MONTH",
            "months",
            (1, 30),
        ),
        (
            "FROM t WATERMARK ts DELAY OF INTERVAL '5'",
            "no unit",
            (1, 30),
        ),
        (
            "FROM t WATERMARK DELAY OF INTERVAL 1 DAY",
            "names no column",
            (1, 18),
        ),
        ("FROM t WATERMARK ts", "has no delay", (1, 8)),
        (
            "FROM t WATERMARK a DELAY OF INTERVAL 1 DAY WATERMARK b DELAY OF INTERVAL 1 DAY",
            "two WATERMARK",
            (1, 44),
        ),
        (
            "FROM STREAM t TABLESAMPLE (10)",
            "cannot be sampled",
            (1, 15),
        ),
        ("FROM STREAM (SELECT 1)", "takes the name", (1, 14)),
    ] {
        let (got, at) = refused(sql);
        assert!(got.contains(message), "{sql}: {got}");
        assert_eq!(at, Some(place), "{sql}");
    }
}
