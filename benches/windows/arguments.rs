//! What the program is told.

use std::str::FromStr;

use crate::input::Input;
use crate::queries::Query;
use crate::workload::Workload;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Tidegate,
    DataFusion,
}

pub(crate) struct Arguments {
    pub(crate) workload: Workload,
    pub(crate) input: Input,
    pub(crate) side: Option<Side>,
    pub(crate) reps: usize,
    pub(crate) epoch_rows: usize,
    pub(crate) partitions: usize,
    only: Vec<String>,
}

/// The text behind a name on the command line.
fn text(name: &str) -> Option<String> {
    let mut texts = std::env::args().skip_while(|text| text != name);
    texts.next()?;
    Some(texts.next().expect("a value behind its name"))
}

fn number<T: FromStr>(name: &str, default: T) -> T {
    match text(name) {
        Some(text) => text.parse().ok().expect("a number"),
        None => default,
    }
}

impl Arguments {
    pub(crate) fn read() -> Self {
        let full = std::env::args().any(|text| text == "--bench");
        let either = |bench, smoke| if full { bench } else { smoke };
        let side = |name: String| match name.as_str() {
            "tidegate" => Side::Tidegate,
            "datafusion" => Side::DataFusion,
            _ => unknown("--side is tidegate or datafusion"),
        };
        let input = text("--input").map(|name| {
            Input::of(&name).unwrap_or_else(|| unknown("--input is memory, parquet, csv or json"))
        });
        Self {
            workload: Workload {
                rows: number("--rows", either(5_000_000, 50_000)),
                rate: number("--rate", 10_000),
                disorder: number("--disorder", 30),
                stragglers: number("--stragglers", 0.001),
                keys: number("--keys", 10_000),
                users: number("--users", 100_000),
                seed: number("--seed", 42),
            },
            input: input.unwrap_or(Input::Parquet),
            side: text("--side").map(side),
            reps: number("--reps", either(5, 1)),
            epoch_rows: number("--epoch-rows", either(1_048_576, 8_192)),
            partitions: number("--partitions", 2),
            only: text("--only")
                .map(|names| names.split(',').map(ToOwned::to_owned).collect())
                .unwrap_or_default(),
        }
    }

    pub(crate) fn wants(&self, query: &Query) -> bool {
        match self.only.as_slice() {
            [] => query.usual,
            names => names.iter().any(|name| name == query.name),
        }
    }
}

fn unknown(text: &str) -> ! {
    panic!("{text}")
}
