//! Whether a row was late, and for which window.

use std::collections::HashMap;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::SessionState;

use super::rows::unit;
use super::tracks::JudgeExpr;
use crate::logical::{Bin, GroupTime, TimeValue};
use crate::physical::Closing;
use crate::physical::planner::closing;
use crate::time::{Closed, Instant, Span, Unit, WindowShape};

/// Windows that a row may be in for them to be drawn: more lie so densely that nothing can be seen.
const MOST_A_ROW: i64 = 32;

/// How rows are judged by an operator.
#[derive(Debug, Clone)]
pub(super) struct Judge {
    closing: Closing,
    /// How far a time may be before the moment that the watermark speaks of.
    behind: Span,
    /// Windows of one size, if it is by these that rows are grouped.
    pub shape: Option<WindowShape>,
    /// Unit of the begins of windows; none where there are none.
    pub unit: Option<Unit>,
    /// Whether a group is a window that lasts: one that can be drawn.
    pub lasts: bool,
    /// Number of the aggregate; none where its windows are not drawn.
    pub id: Option<usize>,
    /// How many keys a session is one of.
    pub keys: usize,
}

/// What a judged tick is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// The begin of a group, or the group's value.
    Begin(i64),
    /// A session of its own, in ticks: begin and end.
    Session(i64, i64),
}

impl Judge {
    /// How an operator judges.
    ///
    /// # Errors
    /// - the function of a bin cannot be planned
    pub(super) fn new(judge: &JudgeExpr, state: &SessionState) -> Result<Self> {
        let Some(group) = &judge.group else {
            return Ok(Self {
                closing: Closing::Instant(Unit::Nanosecond),
                behind: Span::ZERO,
                shape: None,
                unit: None,
                lasts: false,
                id: None,
                keys: 0,
            });
        };
        Ok(Self {
            closing: closing(group, |expr, schema| {
                state.create_physical_expr(expr.clone(), schema)
            })?,
            behind: group.behind,
            shape: shape(group),
            unit: begins_in(group, state)?,
            lasts: matches!(
                group.value,
                TimeValue::Windows(_) | TimeValue::WindowColumn(_) | TimeValue::Bin(_)
            ),
            id: judge.id,
            keys: judge.keys.len(),
        })
    }

    /// The same for times of another unit, where it is the time itself that is judged.
    pub(super) fn in_unit(mut self, unit: Unit) -> Self {
        if let Closing::Instant(of) = &mut self.closing {
            *of = unit;
        }
        self
    }

    /// Unit of the bounds of sessions, if it is by these that rows are grouped.
    pub(super) fn session_unit(&self) -> Option<Unit> {
        match &self.closing {
            Closing::Sessions(unit) => Some(*unit),
            _ => None,
        }
    }

    /// The groups that a watermark has closed.
    pub(super) fn closed(&self, watermark: Option<Instant>) -> Closed {
        self.closing
            .by(watermark.map(|watermark| watermark.earlier(self.behind)))
    }

    /// The group of a row: of hopping windows the newest. None where it has none.
    pub(super) fn group(&self, tick: i64, gap: Option<i64>) -> Option<Group> {
        match (&self.shape, &self.closing) {
            (Some(shape), _) => {
                shape.slice(tick)?;
                shape.newest(tick).map(Group::Begin)
            }
            (None, Closing::Sessions(_)) => Some(Group::Session(tick, tick.checked_add(gap?)?)),
            _ => Some(Group::Begin(tick)),
        }
    }

    /// Begins of the windows that a row is in, newest first; none where they cannot be drawn.
    pub(super) fn windows(&self, tick: i64) -> Vec<i64> {
        match self.shape {
            Some(shape) if shape.size() / shape.slide() > MOST_A_ROW => Vec::new(),
            Some(shape) => shape
                .slice(tick)
                .map_or(Vec::new(), |slice| shape.windows(slice).collect()),
            None if self.lasts => vec![tick],
            None => Vec::new(),
        }
    }
}

/// Unit of the begins of windows, which a bin's function gives.
fn begins_in(group: &GroupTime, state: &SessionState) -> Result<Option<Unit>> {
    Ok(match &group.value {
        TimeValue::Windows(spec) | TimeValue::WindowColumn(spec) => Some(spec.shape.unit()),
        TimeValue::Bin(bin) => {
            let event = Field::new(Bin::EVENT_TIME, bin.event_type.clone(), true);
            let schema = DFSchema::try_from(Schema::new(vec![event]))?;
            let function = state.create_physical_expr(bin.function.clone(), &schema)?;
            Some(unit(&function.data_type(schema.as_arrow())?))
        }
        TimeValue::Session(..) | TimeValue::Instant(_) => None,
    })
}

fn shape(group: &GroupTime) -> Option<WindowShape> {
    match &group.value {
        TimeValue::Windows(spec) => Some(spec.shape),
        _ => None,
    }
}

/// Bounds of windows, each sought once: that of a bin takes a search.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    judge: &'a Judge,
    /// Unit of the ticks.
    unit: Unit,
    ends: HashMap<i64, Option<Instant>>,
}

impl<'a> Bounds<'a> {
    /// Of windows whose begins are in this unit.
    pub(super) fn new(judge: &'a Judge, unit: Unit) -> Self {
        Self {
            judge,
            unit,
            ends: HashMap::new(),
        }
    }

    /// Begin and end of a window.
    pub(super) fn of(&mut self, begin: i64) -> Option<(Instant, Instant)> {
        let unit = self.judge.shape.map_or(self.unit, |shape| shape.unit());
        let closing = &self.judge.closing;
        let end = self.ends.entry(begin).or_insert_with(|| closing.due(begin));
        end.map(|end| (unit.instant(begin), end))
    }

    /// The least watermark that closes a window.
    pub(super) fn due(&mut self, begin: i64) -> Option<Instant> {
        self.of(begin).map(|(_, end)| end.later(self.judge.behind))
    }

    /// The window of a group, and the least watermark that closes it.
    pub(super) fn window(&mut self, group: Group) -> Option<(Option<(Instant, Instant)>, Instant)> {
        match group {
            Group::Session(begin, end) => {
                let (begin, end) = (self.unit.instant(begin), self.unit.instant(end));
                Some((Some((begin, end)), end.later(self.judge.behind)))
            }
            Group::Begin(begin) => {
                let window = self.of(begin)?;
                let due = self.due(begin)?;
                Some((self.judge.lasts.then_some(window), due))
            }
        }
    }
}

impl Group {
    /// Whether it is among the closed ones.
    pub(super) fn is_in(self, closed: Closed) -> bool {
        match self {
            Group::Begin(at) | Group::Session(_, at) => closed.contains(at),
        }
    }
}
