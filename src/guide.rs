//! How fast it is, and why: where the time of a query goes, what makes it short, what was tried and did not help.
//!
//! The yardstick is DataFusion's own batch aggregation of the same rows, in the same process, in turn:
//! `cargo bench --bench windows`. Small epochs are measured by `cargo bench --bench epochs`, and the parts of
//! an epoch by `cargo bench --bench parts`. The README has the figures.
//!
//! # A large epoch
//!
//! Of 5 million rows in memory, count and sum by windows of 10 seconds, an epoch of a million rows spends its
//! time so (two cores, `perf`):
//!
//! | share | what | where |
//! |---|---|---|
//! | 34 % | the aggregates' own arithmetic | DataFusion's accumulators |
//! | 34 % | the slice of each row, rows counted by slice, and the group of each row | [`state::Assignment`](crate::state::Assignment), [`state::PartialAggregate`](crate::state::PartialAggregate) |
//! | 18 % | least and greatest event time, twice: at the clause and at the windows | [`state::EventTimes`](crate::state::EventTimes) |
//! | 14 % | allocation, plans, tasks, the end of the epoch | |
//!
//! DataFusion's batch of the same rows spends 37 % on `date_bin`, 24 % on the aggregates' arithmetic and 23 % on
//! hashing what `date_bin` gave. What makes the difference:
//!
//! - **Slices are few.** A batch's rows lie on a grid of few places: a division by multiplication
//!   ([`time::Divisor`](crate::time::Divisor)) gives the place, and the place is the group. Nothing is hashed.
//! - **Keys are numbered without the slice.** They come again in the next window: one hash of the key, and a
//!   table of slice and key, instead of a hash of both.
//! - **Columns of few values are numbered one by one.** A table of their numbers gives the key's: several columns are
//!   not hashed and compared together.
//! - **Late rows are not copied out.** Where no aggregate can fail on them they go to a group of nobody.
//! - **Hopping windows merge by number.** Each row of a slice is hashed once, however many windows it is in.
//! - **Sessions are found without sorting.** Rows are put beside others of their key by counting.
//! - **Open sessions are indexed** by key and by end: an epoch costs its rows and the sessions that close in it, not those
//!   that are open.
//! - **A file's rows are aggregated while the next ones are decoded**, and its pieces are decoded side by side:
//!   an epoch is never in memory as a whole.
//!
//! # A small epoch
//!
//! An epoch of one row takes 87 microseconds when its plan is made once. No task is spawned for it, no
//! exchange is in its plan (the gate parts groups itself), a plan of which nothing can come out is not run, and
//! only DataFusion's nodes are made anew. In a REFRESH of its own it takes 7 milliseconds, nearly all of them
//! planning: DataFusion's analyzer, optimizer and planner run anew, for a joined table may have changed.
//!
//! Of an epoch of 8,192 rows by 10,000 keys three of four rows are a group of their own, and would be aggregated again with
//! those of the next. In append mode, without a checkpoint and without a memory limit, rows of small epochs wait until
//! 262,144 have come or a window closes that they are in: `state/gate/waiting.rs`. By 10,000 keys epochs of 8,192 rows then
//! take 1.3 times what epochs of a million do, instead of 2.2 times. Without keys an epoch has a few groups however small it
//! is, and its rows do not wait.
//!
//! # What is left
//!
//! - From Parquet more than half of the time is DataFusion's decoder, the same on both sides; rows that go from the task
//!   that decodes to the task that aggregates cross from one core's cache to the other's. A reader that gives
//!   each partition row groups of its own would not, but an epoch ends at a row, inside of one.
//! - A row of a small epoch is a row of its session by itself, up to four of them before they are merged. With 100,000 open
//!   sessions epochs of 65,536 rows take 1.4 times what epochs of a million do, and epochs of 8,192 3.3 times.
//! - Hopping windows are merged of their slices in every epoch that closes one: of 12 slices each, epochs of 65,536 rows
//!   take 1.4 times what epochs of a million do.
//! - A thousand open windows cost 1.7 times what ten do: each is a run of its own at every epoch.
//! - From CSV the rows' times are parsed by generic code of Arrow that is compiled with this crate: two builds that differ
//!   elsewhere inlined it differently, and took 0.85 and 0.93 s.
//! - By a text key nearly every row is a group of its own: it takes 0.9 of DataFusion's time.
//!
//! # What a build costs
//!
//! A release build from nothing takes 37 minutes of CPU. DataFusion's 31 crates are 63 % of the time that
//! `cargo build --timings` gives its units (its core 11 %, functions 9 %, physical plan and optimizer 7 % each), and no feature of it that could be left out is among
//! them: the largest are xz and zstd, 2 %, which come with gzip, and functions of lists, 3 %, which the records of
//! epochs are shown with. What could be done:
//!
//! - `lto = "off"`: by default the units of every crate are optimized across once more. How fast the benches are with
//!   that was not compared.
//! - The futures of [`StreamContext`](crate::context::StreamContext) and of the binary are boxed. The body of an
//!   `async fn` is compiled in the crate that awaits it: each test, each bench and each program that embeds
//!   this crate would compile the whole call graph of a query again.
//!
//! The README's first command is a debug build: it waits for 9 minutes of CPU instead of 37, and its run of 3
//! seconds would be shorter by 2.7.
//!
//! # What was tried and did not help
//!
//! - Decoding Parquet in the task that aggregates, one batch at a time under a lock: the same CPU time, and 1.4
//!   times the wall time.
//! - Pieces of 2 and 4 MiB instead of 8: each costs about a millisecond to open. 32 MiB: no difference.
//! - 64 batches read ahead instead of 16: the same time; 4 batches: 1.2 times the time.
//! - A future for each piece in a queue of futures (`buffered`) instead of a task: the second piece is not begun
//!   before the first one ends, and CSV took twice the wall time.
//! - 64 runs a slice before they are merged instead of 32: the same time, twice the state.
//! - Putting all runs below 1,024 rows together before the final aggregate: by a text key the copy costs more than
//!   it saves; below 128 rows it pays.
//! - Handing rows to the gate batch by batch where partial aggregation is left out: by a text key it took
//!   1.2 times the time that it takes with 65,536 rows together, which leave an eighth of the runs.
//! - Merging the runs of a slice once some of its hopping windows have closed, for the others will read it again: no
//!   difference at 65,536 rows an epoch, 1.3 times the time at 8,192.
//! - Parts of a checkpoint of up to a million rows written together, instead of 65,536: half the bytes on disk, and over 20
//!   million rows an epoch cost 23 to 29 ms instead of 7 to 16.
//! - 524,288 rows that wait instead of 262,144: the same CPU time at 8,192 rows an epoch, 1.15 times at 65,536.
//! - Checkpoints without LZ4: three times the bytes on disk, and the same time, for more of it is the disk's.
//! - A lock that each partition takes before it releases, however shortly: the task that is woken by it runs behind the one
//!   that held it, and a query by a text key took 1.2 times the wall time.
//! - Least and greatest event time of a batch in four lanes: the iterators over them are not inlined, and a query without
//!   keys took 1.6 times the time.
