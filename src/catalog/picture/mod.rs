//! Puts the picture of a streaming table together.
//!
//! 1. The records of its epochs have the watermarks ([`epochs`]), and say which epochs are drawn.
//! 2. Its plan says where rows are judged, and by what ([`tracks`]).
//! 3. Its sources are read once more, in order of arrival ([`replay`]): a row's epoch is known by counting, whether it
//!    was late by the rule and that epoch's watermark. Where they cannot be read, the picture says why, and has the
//!    least and greatest event times of the epochs.
//! 4. Its state knows what open windows hold ([`open`]).

mod epochs;
mod judge;
mod open;
mod replay;
mod rows;
mod sessions;
mod tracks;
mod walk;

use std::ops::Range;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;

use self::judge::Judge;
use self::replay::{Found, Replay};
use self::tracks::Plan;
use super::streaming_table::StreamingTable;
use super::unbounded::UnboundedTables;
use crate::picture::{EpochMark, Picture, Rows, View};
use crate::query::EpochProgress;
use crate::time::Span;

impl StreamingTable {
    /// A picture of its epochs. Its sources are read again for it, up to 5,000,000 rows; nothing else of it changes,
    /// and a refresh that is running is not waited for.
    ///
    /// # Errors
    /// - the checkpoint is damaged
    pub async fn picture(
        &self,
        state: &SessionState,
        unbounded: &UnboundedTables,
        view: View,
    ) -> Result<Picture> {
        if let Some(damage) = self.damage() {
            return Err(damage.clone().into());
        }
        let history = self.history();
        let planned = self.planned(state, unbounded).await;
        let planned = match &planned {
            Ok((plan, state)) => tracks::plan(plan, state).map(|plan| (plan, state)),
            Err(error) => Err(DataFusionError::Plan(error.strip_backtrace())),
        };
        let marks = epochs::marks(&history);
        let scale = planned
            .as_ref()
            .map_or(Span::ZERO, |(plan, _)| plan.scale());
        let range = view.of(
            &marks,
            scale.max(epochs::delay(&history).unwrap_or(Span::ZERO)),
        );
        let mut picture = self.frame(&history, &marks, range.clone());
        match planned {
            Ok((plan, state)) => {
                picture.rule = plan.rule(epochs::delay(&history));
                self.fill(&mut picture, &plan, state, &history, &marks, range)
                    .await;
            }
            Err(error) => {
                picture.rows = Rows::Bands {
                    because: because(&error),
                }
            }
        }
        Ok(picture)
    }

    /// What the records of the epochs say.
    fn frame(
        &self,
        history: &[EpochProgress],
        marks: &[EpochMark],
        range: Range<usize>,
    ) -> Picture {
        let shown = marks.get(range).unwrap_or_default();
        let last = history.last();
        let first = history.first().map_or(0, |first| first.epoch);
        let clauses = history.iter().flat_map(|epoch| &epoch.clauses);
        let mut picture = Picture {
            name: self.bare_name().to_owned(),
            zoned: clauses.take(1).any(|clause| clause.observed.zoned),
            epochs: shown.to_vec(),
            overview: (first, marks.iter().map(|mark| mark.late).collect()),
            ..Picture::default()
        };
        picture.late.counted = shown.iter().map(|mark| mark.late).sum();
        picture.open.windows = last.map_or(0, |last| last.open_windows);
        picture.open.rows = last.map_or(0, |last| last.open_rows);
        picture
    }

    /// What the sources and the state say.
    async fn fill(
        &self,
        picture: &mut Picture,
        plan: &Plan,
        state: &SessionState,
        history: &[EpochProgress],
        marks: &[EpochMark],
        range: Range<usize>,
    ) {
        let watermark = marks.last().and_then(|last| last.after);
        let judge = plan.tracks.iter().find_map(|track| track.judge.as_ref());
        if plan.tracks.iter().all(|track| track.event.is_none()) {
            let note = "The query has no WATERMARK clause: no row is late.";
            picture.notes.push(note.to_owned());
        }
        let closing = judge.map(|judge| Judge::new(judge, state));
        if let Some(Ok(judge)) = &closing {
            match self.query_state() {
                Some(query) => picture.open.fills = open::fills(judge, &query, watermark),
                None => picture.notes.push("A refresh is running.".to_owned()),
            }
        }
        let replay = Replay {
            history,
            marks,
            range,
            state,
        };
        match replay.all(&plan.tracks).await {
            Ok(found) => put(picture, found),
            Err(error) => {
                picture.rows = Rows::Bands {
                    because: because(&error),
                }
            }
        }
    }
}

/// Puts what was read into a picture.
fn put(picture: &mut Picture, found: Found) {
    picture.rows = Rows::Sampled {
        every: found.every,
        points: found.points,
    };
    picture.late.marks = found.late.marks;
    picture.late.found = found.late.found;
    picture.late.by = found.late.by;
    picture.windows = found.windows;
    picture.older_windows = found.older_windows;
}

/// An error as the end of a sentence.
fn because(error: &DataFusionError) -> String {
    let text = match crate::error::refusal(error) {
        Some(refusal) => refusal.message.clone(),
        None => match error {
            DataFusionError::Execution(message) | DataFusionError::Plan(message) => message.clone(),
            other => other.strip_backtrace(),
        },
    };
    let line = text.lines().next().unwrap_or_default();
    line.trim_end_matches('.').to_owned()
}
