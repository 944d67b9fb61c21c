//! Where the rows of a group went: arithmetic only.
//!
//! ```text
//! difference = recount - emitted
//!            = late + guarded + unread + open + unexplained
//! ```
//!
//! - All figures but the last are found by themselves; what is left is unexplained.
//! - Rows that a correction has put in are in `emitted`; `corrected` tells how many they are.

/// Where the input rows of one group are, in rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// Counted in the published row.
    pub emitted: i64,
    /// Counted by the same query over all that the sources hold.
    pub recount: i64,
    /// Came when the window had closed.
    pub late: i64,
    /// Were kept from the clause.
    pub guarded: i64,
    /// Were accepted, and their window has not closed.
    pub open: i64,
    /// Arrived after the last refresh.
    pub unread: i64,
    /// Have no event time.
    pub null: i64,
    /// Can have no window.
    pub rejected: i64,
    /// Came late, and are in the published row since it was corrected.
    pub corrected: i64,
    /// Nobody knows.
    pub unexplained: i64,
}

/// What is known of the published row of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Published {
    /// It is what it must be, given the rows that the group took; also where HAVING leaves it out.
    Right,
    /// It is another one; the number of rows that it counted, where it says.
    Wrong(Option<i64>),
    /// There is none, and there must not be one yet.
    Awaited,
}

impl Figures {
    /// What is missing in the published row.
    pub(super) fn difference(&self) -> i64 {
        self.recount - self.emitted
    }

    /// Rows of the group that the stream took.
    pub(super) fn accepted(&self) -> i64 {
        self.recount - self.late - self.guarded - self.unread
    }

    /// Completes the figures of a group of which what arrived, what was late and what was not read is known.
    pub(super) fn complete(mut self, published: Published) -> Self {
        match published {
            Published::Right => self.emitted = self.accepted(),
            Published::Awaited => self.open = self.accepted(),
            // A row of the right number and other values is not explained by any number.
            Published::Wrong(Some(rows)) if rows != self.accepted() => self.emitted = rows,
            Published::Wrong(_) => self.emitted = 0,
        }
        self.balance()
    }

    /// Completes the figures of a session, given the rows of the published sessions inside it, and whether the
    /// watermark has closed it whole. `corrections` tells that late rows may have been put in.
    pub(super) fn complete_session(
        mut self,
        emitted: i64,
        closed: bool,
        corrections: bool,
    ) -> Self {
        self.emitted = emitted;
        if corrections {
            // A correction puts in all late rows of a session or none.
            let surplus = (emitted - self.accepted()).clamp(0, self.late + self.guarded);
            self.corrected = surplus;
            let guarded = surplus.min(self.guarded);
            self.guarded -= guarded;
            self.late -= surplus - guarded;
        }
        if !closed {
            self.open = (self.accepted() - emitted).max(0);
        }
        self.balance()
    }

    /// What is left is unexplained.
    pub(super) fn balance(mut self) -> Self {
        let explained = self.late + self.guarded + self.unread + self.open;
        self.unexplained = self.difference() - explained;
        self
    }
}

/// Takes away from the open rows of some groups what the state does not hold: `held` rows in all. What the groups say
/// more or less than that is unexplained.
pub(super) fn check_open<'a>(figures: impl Iterator<Item = &'a mut Figures>, held: i64) {
    let mut open: Vec<&mut Figures> = figures.filter(|one| one.open > 0).collect();
    let said: i64 = open.iter().map(|one| one.open).sum();
    if let Some(last) = open.last_mut() {
        last.open -= said - held;
        **last = last.balance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(recount: i64, late: i64, unread: i64) -> Figures {
        Figures {
            recount,
            late,
            unread,
            ..Figures::default()
        }
    }

    fn adds_up(figures: &Figures) {
        let parts = figures.late + figures.guarded + figures.unread + figures.open;
        assert_eq!(
            figures.difference(),
            parts + figures.unexplained,
            "{figures:?}"
        );
    }

    #[test]
    fn a_right_row_leaves_nothing_unexplained() {
        let figures = arrived(10, 3, 2).complete(Published::Right);
        adds_up(&figures);
        assert_eq!((figures.emitted, figures.unexplained), (5, 0));
    }

    #[test]
    fn a_row_that_is_awaited_is_open() {
        let figures = arrived(10, 0, 2).complete(Published::Awaited);
        adds_up(&figures);
        assert_eq!(
            (figures.open, figures.emitted, figures.unexplained),
            (8, 0, 0)
        );
    }

    #[test]
    fn a_wrong_row_is_unexplained_by_its_number_or_whole() {
        let figures = arrived(10, 3, 0).complete(Published::Wrong(Some(6)));
        adds_up(&figures);
        assert_eq!(figures.unexplained, 1);
        for same_number in [Published::Wrong(Some(7)), Published::Wrong(None)] {
            let figures = arrived(10, 3, 0).complete(same_number);
            adds_up(&figures);
            assert_eq!(figures.unexplained, 7);
        }
    }

    #[test]
    fn sessions_that_a_late_row_would_join_are_summed() {
        // Emitted 2 and 3 rows; the late one in the middle makes it one session of 6.
        let figures = arrived(6, 1, 0).complete_session(5, true, false);
        adds_up(&figures);
        assert_eq!((figures.late, figures.unexplained), (1, 0));
        let corrected = arrived(6, 1, 0).complete_session(6, true, true);
        adds_up(&corrected);
        assert_eq!(
            (corrected.late, corrected.corrected, corrected.unexplained),
            (0, 1, 0)
        );
        let surplus = arrived(6, 0, 0).complete_session(7, true, true);
        adds_up(&surplus);
        assert_eq!(surplus.unexplained, -1);
    }

    #[test]
    fn open_rows_that_the_state_does_not_hold_are_unexplained() {
        let mut all = [4, 5].map(|rows| arrived(rows, 0, 0).complete(Published::Awaited));
        check_open(all.iter_mut(), 9);
        assert!(all.iter().all(|one| one.unexplained == 0));
        check_open(all.iter_mut(), 8);
        all.iter().for_each(adds_up);
        assert_eq!(all.map(|one| one.unexplained), [0, 1]);
    }
}
