//! Which delay to write: `lateness(…)` and `out_of_order(…)`, over a table or stream as it is now.
//!
//! ```sql
//! SELECT * FROM lateness('orders', 'event_time', '1 hour');               -- a row for each of some delays
//! SELECT * FROM lateness('flights', 'dep_ts', '1 hour', 'batch');         -- epochs end where `batch` changes
//! SELECT * FROM lateness('orders', 'event_time', '1 hour', NULL, '90 minutes, 2 hours');
//! SELECT * FROM out_of_order('orders', 'event_time');                     -- one row
//! ```
//!
//! Each reads the table once, in order of arrival, in epochs as a first REFRESH of a streaming table would
//! (`max_rows_per_epoch` and the other settings of the session, but not its `epoch_by`: that is an argument). What late
//! rows, open windows and the wait are, and how they are counted, is told by [`Lateness`](crate::state::Lateness), what
//! out of order is by [`Disorder`](crate::state::Disorder).
//!
//! They are two because they answer two questions: how far rows are out of order is one row about the data, and
//! asks for no window and no epochs; what a delay loses is a row for each delay. In one table the first would be
//! repeated in each row of the second.

mod arguments;
mod measure;
mod question;

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;

use self::arguments::{given_delays, optional_text, text, wrong_count};
use self::measure::{disorder_schema, outcome_schema};
use self::question::{Asked, Question};
use super::computed::ComputedTable;
use crate::sql::window_length;

/// `lateness('table', 'event time', 'window' [, 'epoch_by' [, 'delay, …']])`: what some delays would lead to, for
/// tumbling windows of this length. Without delays they are chosen: none, and the shortest of the usual ones that keep
/// late rows to one in 10, 100, 1,000 and 10,000, and to none.
///
/// | column | type | |
/// |---|---|---|
/// | `delay` | text | as one writes it behind INTERVAL |
/// | `late_rows` | number | rows that would be late |
/// | `late_percent` | number | of the rows with an event time, to three digits; null without any |
/// | `open_windows` | number | greatest number of windows with rows that an epoch leaves open; null if above 65,536 |
/// | `wait` | text | mean event time from a window's end until it is final; null if none becomes final |
/// | `epochs` | number | epochs that the rows were cut into: in the first nothing is late |
#[derive(Debug)]
pub struct LatenessFunction;

/// `out_of_order('table', 'event time')`: one row, how far rows are behind the greatest event time before them.
///
/// | column | type | |
/// |---|---|---|
/// | `rows`, `null_rows` | number | all rows, those without an event time |
/// | `out_of_order_rows` | number | rows earlier than a row before them |
/// | `out_of_order_percent` | number | of the rows with an event time, to three digits; null without any |
/// | `p50`, `p90`, `p99`, `p999`, `max` | text | so many of the rows with an event time are not further behind than this; null without any |
/// | `rounded_to` | text | what the percentiles are rounded up to; `max` is exact |
#[derive(Debug)]
pub struct OutOfOrderFunction;

impl TableFunctionImpl for LatenessFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let (table, column, window, rest) = match args.exprs() {
            [table, column, window, rest @ ..] if rest.len() <= 2 => (table, column, window, rest),
            _ => {
                return Err(wrong_count(
                    "lateness() takes a table, its event time, a window, and if wanted a column that ends epochs and delays.",
                ));
            }
        };
        let epoch_by = rest
            .first()
            .map(|by| optional_text(by, "the column that ends epochs"));
        let delays = rest
            .get(1)
            .map(|delays| optional_text(delays, "the list of delays"));
        let delays = delays.transpose()?.flatten();
        Ok(Arc::new(ComputedTable(Question {
            table: text(table, "the table")?,
            column: text(column, "the event time")?,
            schema: outcome_schema(),
            asked: Asked::Lateness {
                window: window_length(Ok(window.clone()), "lateness", None)?,
                epoch_by: epoch_by.transpose()?.flatten(),
                delays: delays.as_deref().map(given_delays).transpose()?,
            },
        })))
    }
}

impl TableFunctionImpl for OutOfOrderFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let [table, column] = args.exprs() else {
            return Err(wrong_count(
                "out_of_order() takes a table and its event time.",
            ));
        };
        Ok(Arc::new(ComputedTable(Question {
            table: text(table, "the table")?,
            column: text(column, "the event time")?,
            schema: disorder_schema(),
            asked: Asked::OutOfOrder,
        })))
    }
}
