//! Pictures of a streaming table by which a person sees why a row was late.
//!
//! ```text
//! event time
//!   ^        . .  . ┌──────  W rises at the end of an epoch, and stays until the end of the next one
//!   |   . .  . ┌────┘   .
//!   | ┌────────┘  .        . is before W, and counted: its window is open
//!   |─┘                ×   × is before W, and its window [begin, end) had closed: late
//!   +----------------------> arrival, in epochs
//! ```
//!
//! 1. A [`Picture`] is what is drawn: epochs with their watermarks, rows, late rows, windows. It is put together
//!    by whoever knows them; nothing here reads a table, a file or a clock.
//! 2. A [`View`] says which epochs: those that were asked for, or the last ones, so few that the delay can be seen.
//! 3. [`Picture::to_text`] draws it on a terminal, in braille and block characters; [`Picture::to_svg`] and
//!    [`Picture::to_html`] make a file that needs nothing else, in light and dark.
//!
//! Horizontally a row is at `epoch + (place + ½) / rows of the epoch`, so that every epoch is as wide as any
//! other: it is in epochs that rows are judged. The watermark of an epoch's start holds over its whole width.

mod axis;
mod braille;
mod model;
mod paint;
mod range;
mod svg;
mod text;
mod view;
mod words;

#[cfg(test)]
pub(crate) mod samples;

pub use model::{
    EpochMark, Fill, LateMark, LateRows, OpenWindows, Picture, Point, Rows, WindowMark,
};
pub use view::{Depth, View};
