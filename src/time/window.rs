//! Where windows begin and end, which slice a tick is in, and which windows a watermark closes.
//!
//! A window is `[s, s + size)` with `s ≡ start (mod slide)`; a tick is in the windows that begin in
//! `(tick - size, tick]`. When `slide = size` windows tumble and a tick is in one; when
//! `slide < size` they hop and a tick is in several.
//!
//! A *slice* is a longest stretch that no window boundary cuts: rows of one slice are in the same
//! windows, so they are aggregated once, and a window is the union of its slices. With
//! `size = q · slide + r`, boundaries lie at `s` (begins) and, when `r > 0`, at `s + r` (ends):
//!
//! ```text
//! size 10, slide 4 (q = 2, r = 2)
//! windows   [0        10)
//!               [4        14)
//!                   [8        18)
//! slices    |0 |2 |4 |6 |8 |10|12|   [4, 6) is in the windows that begin at 4, 0 and -4,
//!                                    [6, 8) in those that begin at 4 and 0
//! ```
//!
//! Invariants, checked by [`WindowShape::new`]: `size > 0`, `0 < slide <= size`, `|start| < slide`.
//! Every function is total: what does not fit an `i64` is `None`. Source of the alignment and the
//! limits: Spark's `TimeWindow` expression.

use super::unit::clamp;
use super::{Instant, Unit};

/// Size, slide and start of a family of windows, in ticks of `unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowShape {
    unit: Unit,
    size: i64,
    slide: i64,
    start: i64,
}

impl WindowShape {
    /// A shape, or `None` where an invariant of the module does not hold.
    pub fn new(unit: Unit, size: i64, slide: i64, start: i64) -> Option<Self> {
        let sound =
            size > 0 && slide > 0 && slide <= size && start.unsigned_abs() < slide.unsigned_abs();
        sound.then_some(Self {
            unit,
            size,
            slide,
            start,
        })
    }

    /// Unit of the ticks.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Length of a window, in ticks.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Distance from one window's begin to the next one's, in ticks.
    pub fn slide(&self) -> i64 {
        self.slide
    }

    /// Whether a tick can be in more than one window.
    pub fn hops(&self) -> bool {
        self.slide < self.size
    }

    /// Begin of the newest window that holds `tick`.
    pub fn newest(&self, tick: i64) -> Option<i64> {
        tick.checked_sub(self.within(tick))
    }

    /// Ticks since the newest begin.
    #[inline]
    fn within(&self, tick: i64) -> i64 {
        // Both are below the slide: their difference cannot overflow, as that of the ticks could.
        let (tick, start) = (
            tick.rem_euclid(self.slide),
            self.start.rem_euclid(self.slide),
        );
        tick.wrapping_sub(start).rem_euclid(self.slide)
    }

    /// Ticks by which `size` exceeds a whole number of slides.
    fn remainder(&self) -> i64 {
        self.size.rem_euclid(self.slide)
    }

    /// Begin of the slice that holds `tick`, if every window of the tick has its bounds in the type.
    pub fn slice(&self, tick: i64) -> Option<i64> {
        let newest = self.newest(tick)?;
        newest.checked_add(self.size)?;
        // The oldest window of the tick begins behind `tick - size`.
        let left = self.size.checked_sub(self.within(tick))?.checked_sub(1)?;
        newest.checked_sub(left.checked_div(self.slide)?.checked_mul(self.slide)?)?;
        let second = newest.checked_add(self.remainder())?;
        Some(if tick >= second { second } else { newest })
    }

    /// Whether all slices are of one length, the slide.
    pub fn is_even(&self) -> bool {
        self.remainder() == 0
    }

    /// Ticks whose windows all have their bounds in the type, both ends included: inside, the
    /// arithmetic of [`slice`](Self::slice) cannot overflow and needs no checks.
    pub fn safe_ticks(&self) -> (i64, i64) {
        let margin = i128::from(self.size).saturating_mul(3);
        (
            clamp(i128::from(i64::MIN).saturating_add(margin)),
            clamp(i128::from(i64::MAX).saturating_sub(margin)),
        )
    }

    /// [`slice`](Self::slice) for a tick within [`safe_ticks`](Self::safe_ticks).
    #[inline]
    pub fn slice_unchecked(&self, tick: i64) -> i64 {
        let within = tick.wrapping_sub(self.start).rem_euclid(self.slide);
        let remainder = self.remainder();
        // Without a remainder the slice is the whole slide.
        if within >= remainder && remainder > 0 {
            tick.wrapping_sub(within).wrapping_add(remainder)
        } else {
            tick.wrapping_sub(within)
        }
    }

    /// Begins of the windows that hold the slice beginning at `slice`, newest first.
    pub fn windows(&self, slice: i64) -> impl Iterator<Item = i64> + use<> {
        let newest = self.newest(slice);
        let whole = self.size.div_euclid(self.slide);
        // The stretch up to an end lies in one more window than the stretch after it.
        let ends_here = self.remainder() > 0 && newest == Some(slice);
        let count = whole.saturating_add(i64::from(ends_here));
        let slide = self.slide;
        (0..count).map_while(move |k| newest?.checked_sub(k.checked_mul(slide)?))
    }

    /// End of the window that begins at `begin`: the least watermark that closes it.
    pub fn end(&self, begin: i64) -> Instant {
        let ticks = i128::from(begin).saturating_add(i128::from(self.size));
        Instant::from_nanos(ticks.saturating_mul(i128::from(self.unit.nanos())))
    }

    /// The windows that `watermark` has closed.
    pub fn closed_by(&self, watermark: Instant) -> Closed {
        let size = i128::from(self.size).saturating_mul(i128::from(self.unit.nanos()));
        self.unit
            .last_tick(Instant::from_nanos(watermark.nanos().saturating_sub(size)))
            .map_or(Closed::None, Closed::Through)
    }
}

impl std::fmt::Display for WindowShape {
    /// Writes `1 hour`, or `1 hour every 10 minutes`, and a start that is not 0 as `from 5 minutes`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let span = |ticks: i64| {
            super::Span::from_nanos(i128::from(ticks).saturating_mul(i128::from(self.unit.nanos())))
        };
        write!(f, "{}", span(self.size))?;
        if self.hops() {
            write!(f, " every {}", span(self.slide))?;
        }
        if self.start != 0 {
            write!(f, " from {}", span(self.start))?;
        }
        Ok(())
    }
}

/// Which windows are closed: those that begin at or before a tick.
///
/// One form serves all groupings by time: for windows of one size, `begin + size <= W` is
/// `begin <= W - size`; for a grouping by the event time itself `ts <= W`; for a monotone function
/// `f` of the event time, `value < f(W)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Closed {
    /// None is closed: there is no watermark, or nothing ever closes.
    None,
    /// Those that begin at or before this tick.
    Through(i64),
    /// All: the input has ended.
    All,
}

impl Closed {
    /// Whether the window that begins at `begin` is closed.
    pub fn contains(self, begin: i64) -> bool {
        match self {
            Closed::None => false,
            Closed::Through(last) => begin <= last,
            Closed::All => true,
        }
    }
}

#[cfg(test)]
mod tests;
