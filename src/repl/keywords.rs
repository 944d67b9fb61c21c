//! The words of SQL that the prompt colours and completes.
//!
//! Not all that the parser knows: names such as `name` or `value` are keywords to it somewhere, and
//! colouring them would say nothing.

/// Keywords, sorted.
#[rustfmt::skip]
pub(crate) const KEYWORDS: &[&str] = &[
    "ALL", "ALTER", "ANALYZE", "AND", "ANTI", "ANY", "AS", "ASC", "BETWEEN", "BIGINT",
    "BOOLEAN", "BY", "CASE", "CAST", "COLUMN", "COPY", "CORRECT", "CREATE", "CROSS", "CUBE", "DATABASE",
    "DATE", "DECIMAL", "DEFAULT", "DELAY", "DELETE", "DESC", "DESCRIBE", "DISTINCT", "DOUBLE",
    "DROP", "ELSE", "END", "EVERY", "EXCEPT", "EXCLUDE", "EXECUTE", "EXISTS", "EXPLAIN",
    "EXTERNAL", "EXTRACT", "FALSE", "FILTER", "FLOAT", "FOLLOWING", "FROM", "FULL", "FUNCTION",
    "GROUP", "GROUPING", "HAVING", "IF", "ILIKE", "IN", "INNER", "INSERT", "INT", "INTEGER",
    "INTERSECT", "INTERVAL", "INTO", "IS", "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT",
    "LOCATION", "NATURAL", "NOT", "NULL", "NULLS", "OF", "OFFSET", "ON", "OPTIONS", "OR",
    "ORDER", "OUTER", "OVER", "PARTITION", "PARTITIONED", "PRECEDING", "PREPARE", "QUALIFY",
    "RECURSIVE", "REFRESH", "REPLACE", "RESET", "RIGHT", "ROLLUP", "ROW", "ROWS", "SCHEMA",
    "SELECT", "SEMI", "SET", "SETS", "SHOW", "SMALLINT", "SOME", "START", "STOP", "STORED",
    "STREAM", "STREAMING", "TABLE", "TABLES", "TEMPORARY", "THEN", "TIME", "TIMESTAMP", "TO",
    "TRUE", "TRUNCATE", "TRY_CAST", "UNBOUNDED", "UNION", "UNNEST", "UPDATE", "USING", "VALUES",
    "VARCHAR", "VIEW", "WATERMARK", "WHEN", "WHERE", "WITH", "ZONE",
];

/// What is mostly written together, completed from its first word.
pub(crate) const PHRASES: &[&str] = &[
    "ALTER STREAMING TABLE",
    "CREATE EXTERNAL TABLE",
    "CREATE OR REFRESH STREAMING TABLE",
    "CREATE OR REPLACE",
    "CREATE STREAMING TABLE",
    "CREATE TABLE",
    "CREATE UNBOUNDED EXTERNAL TABLE",
    "CREATE VIEW",
    "DELAY OF INTERVAL",
    "DROP STREAMING TABLE",
    "DROP TABLE",
    "DROP VIEW",
    "EXPLAIN ANALYZE",
    "EXPLAIN STREAMING TABLE",
    "GROUP BY",
    "INSERT INTO",
    "ORDER BY",
    "PARTITION BY",
    "PARTITIONED BY",
    "REFRESH STREAMING TABLE",
    "SHOW STREAMING TABLES",
    "SHOW TABLES",
    "STORED AS",
    "STREAMING TABLE",
];

/// Keywords after which a table is named.
pub(crate) const BEFORE_TABLE: &[&str] = &[
    "DESCRIBE", "FROM", "INTO", "JOIN", "STREAM", "TABLE", "UPDATE", "VIEW",
];

/// Whether a word is a keyword, in any case.
pub(crate) fn is_keyword(word: &str) -> bool {
    contains(KEYWORDS, word)
}

/// Whether a word is in a list of upper-case words, in any case.
pub(crate) fn contains(words: &[&str], word: &str) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_sorted_and_phrases_are_made_of_them() {
        assert!(KEYWORDS.is_sorted());
        assert!(PHRASES.is_sorted());
        for word in PHRASES.iter().flat_map(|phrase| phrase.split(' ')) {
            assert!(is_keyword(word), "{word}");
        }
    }
}
