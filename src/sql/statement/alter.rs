//! `ALTER STREAMING TABLE name START [EVERY INTERVAL …]`, `… STOP` and `… CORRECT`.

use std::time::Duration;

use super::StreamingStatement;
use super::cursor::{Cursor, invalid};
use crate::error::Refusal;
use crate::sql::interval::{SpanError, parse_span};
use crate::sql::tokens::is;

/// What may stand behind the name.
const FORMS: &str = "write START, START EVERY INTERVAL 10 SECONDS, STOP, or CORRECT behind ALTER STREAMING TABLE name";

/// Reads what follows `ALTER STREAMING TABLE`.
pub(super) fn alter(cursor: &mut Cursor<'_>) -> Result<StreamingStatement, Refusal> {
    let name = cursor.name()?;
    let statement = if cursor.take(&["START"]) {
        let every = if cursor.take(&["EVERY"]) {
            Some(interval(cursor)?)
        } else {
            None
        };
        StreamingStatement::Start { name, every }
    } else if cursor.take(&["STOP"]) {
        StreamingStatement::Stop { name }
    } else if cursor.take(&["CORRECT"]) {
        StreamingStatement::Correct { name }
    } else {
        return Err(cursor.wrong("START, STOP or CORRECT must follow the name.", FORMS));
    };
    cursor.end(FORMS)?;
    Ok(statement)
}

/// Reads the `INTERVAL` literal behind `EVERY`.
fn interval(cursor: &mut Cursor<'_>) -> Result<Duration, Refusal> {
    if !is(cursor.peek(), "INTERVAL") {
        return Err(cursor.wrong("EVERY takes an INTERVAL literal.", FORMS));
    }
    let place = cursor.place();
    let text = cursor.interval();
    match parse_span(&text) {
        Ok(span) => span.positive().ok_or_else(|| {
            invalid(
                place,
                &format!("The interval of EVERY is not longer than zero: {span}."),
                "an interval is the time from one refresh to the next: more than zero",
            )
        }),
        Err(SpanError::Months) => Err(invalid(
            place,
            &format!("The interval '{text}' has months or years, which have no fixed length."),
            "write it in days: INTERVAL 31 DAYS",
        )),
        Err(SpanError::Unreadable(reason)) => Err(Refusal::new(
            "CANNOT_PARSE_INTERVAL",
            "22006",
            format!("The interval of EVERY cannot be read: {reason}."),
        )
        .at(place)
        .hint(FORMS)),
    }
}
