//! Every call goes wrong, in every way that fits it, once or until the disk is mended.

use std::sync::Arc;
use std::time::Instant;

use datafusion::common::DataFusionError;
use tidegate::disk::SimDisk;
use tidegate::disk::sim::{Crash, Fault};

use crate::case::Case;
use crate::job::{Done, Job, Step, block, open};
use crate::seen::{Expected, Seen, SeenTable, rows_of};
use crate::tap::{Called, Tap};

/// Partitions of all sessions here.
const PARTITIONS: usize = 2;

/// Which of the cases are tried: one in so many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stride(pub(crate) usize);

/// Something that goes wrong.
#[derive(Debug, Clone)]
struct Trouble {
    /// At which call, counted from the first that may go wrong.
    n: u64,
    call: Called,
    fault: Fault,
    permanent: bool,
}

impl Trouble {
    /// All that can go wrong in some calls, or one in so many of them.
    fn in_calls(calls: &[Called], stride: Stride) -> Vec<Self> {
        let mut all = Vec::new();
        for (n, call) in calls.iter().enumerate() {
            for fault in call.what.faults() {
                all.extend([false, true].map(|permanent| Self {
                    n: n as u64,
                    call: call.clone(),
                    fault: *fault,
                    permanent,
                }));
            }
        }
        all.into_iter().step_by(stride.0).collect()
    }

    fn shown(&self, job: &Job) -> String {
        let Self {
            n,
            call,
            fault,
            permanent,
        } = self;
        let how_long = if *permanent {
            "until it is mended"
        } else {
            "once"
        };
        format!(
            "{}: {fault:?} at call {n}, {:?} {:?}, {how_long}",
            job.name, call.what, call.path
        )
    }
}

/// The calls of a job that nothing disturbs, from the opening to the end.
pub(crate) fn calls(job: &Job) -> Vec<Called> {
    block(async {
        let tap = Arc::new(Tap::on(&SimDisk::new(0)));
        let ctx = open(Arc::clone(&tap) as _, PARTITIONS)
            .await
            .expect("it is opened");
        job.run(&ctx, &mut Done::default()).await.expect("it runs");
        tap.take()
    })
}

/// Trouble while the job runs: a statement that fails says of what, and does its work when it is run again.
pub(crate) fn while_it_runs(job: &Job, stride: Stride) {
    let started = Instant::now();
    let expected = Expected::of(job);
    let calls = calls(job);
    let troubles = Trouble::in_calls(&calls, stride);
    let mut failed = 0_u64;
    for trouble in &troubles {
        let _case = Case(|| trouble.shown(job));
        let disk = SimDisk::new(trouble.n);
        disk.fail_at(trouble.n, trouble.fault, trouble.permanent);
        failed += block(run_again_and_again(job, &expected, &disk));
        disk.reopen(Crash::Lost);
        block(is_whole(job, &expected, &disk));
    }
    tell(
        job,
        "while it runs",
        calls.len(),
        troubles.len(),
        failed,
        started,
    );
}

/// Runs the job; a statement that fails is run again on a disk that has been mended. Returns how many failed.
async fn run_again_and_again(job: &Job, expected: &Expected, disk: &SimDisk) -> u64 {
    let tap = Arc::new(Tap::on(disk));
    let mut failed = 0;
    let ctx = match open(Arc::clone(&tap) as _, PARTITIONS).await {
        Ok(ctx) => ctx,
        Err(error) => {
            failed += 1;
            says_of_what(&error, &tap.take());
            disk.heal();
            let again = open(Arc::clone(&tap) as _, PARTITIONS).await;
            again.expect("it is opened when the disk is mended")
        }
    };
    let mut done = Done::default();
    for step in job.steps() {
        tap.take();
        if let Err(error) = job.step(&ctx, step, &mut done).await {
            failed += 1;
            says_of_what(&error, &tap.take());
            disk.heal();
            let again = job.step(&ctx, step, &mut done).await;
            again.expect("it does its work when the disk is mended");
        }
    }
    disk.heal();
    expected.check_last(&Seen::of(job, &ctx, disk).await.expect("it is read"));
    failed
}

/// Trouble while a database is opened in which the job has been done, and while the job is run once more.
pub(crate) fn while_it_is_opened(job: &Job, stride: Stride) {
    let started = Instant::now();
    let expected = Expected::of(job);
    let whole = SimDisk::new(0);
    block(async {
        let ctx = open(Arc::new(whole.clone()), PARTITIONS)
            .await
            .expect("it is opened");
        job.run(&ctx, &mut Done::default()).await.expect("it runs");
    });
    let calls = block(async {
        let tap = Arc::new(Tap::on(&whole.fork()));
        let ctx = open(Arc::clone(&tap) as _, PARTITIONS)
            .await
            .expect("it is opened");
        job.finish(&ctx, &mut Done::default())
            .await
            .expect("it runs");
        tap.take()
    });
    let troubles = Trouble::in_calls(&calls, stride);
    let mut failed = 0_u64;
    for trouble in &troubles {
        let _case = Case(|| trouble.shown(job));
        let disk = whole.fork();
        disk.fail_at(disk.calls() + trouble.n, trouble.fault, trouble.permanent);
        failed += u64::from(!block(opened(job, &expected, &disk)));
        disk.heal();
        block(is_whole(job, &expected, &disk));
        disk.reopen(Crash::Lost);
        block(is_whole(job, &expected, &disk));
    }
    tell(
        job,
        "while it is opened",
        calls.len(),
        troubles.len(),
        failed,
        started,
    );
}

/// Opens the database and runs the job once more; what can be read is right, and what cannot be says why. Returns
/// whether nothing failed.
async fn opened(job: &Job, expected: &Expected, disk: &SimDisk) -> bool {
    let tap = Arc::new(Tap::on(disk));
    let ctx = match open(Arc::clone(&tap) as _, PARTITIONS).await {
        Ok(ctx) => ctx,
        Err(error) => {
            says_of_what(&error, &tap.take());
            return false;
        }
    };
    let unopened = ctx.unopened();
    let calls = tap.take();
    unopened
        .iter()
        .for_each(|one| says_of_what(&one.error.clone().into(), &calls));
    match rows_of(&ctx, "t").await {
        Ok(rows) => assert_eq!(Some(rows), expected.last().input),
        Err(error) => says_of_what(&error, &calls),
    }
    let mut failed = !unopened.is_empty();
    for (at, table) in job.tables.iter().enumerate() {
        let seen = SeenTable::of(table, &ctx, disk).await;
        let refreshed = job
            .step(&ctx, Step::Refresh(at), &mut Done::default())
            .await;
        let calls: Vec<Called> = calls.iter().cloned().chain(tap.take()).collect();
        match (&seen, &refreshed) {
            (Err(error), _) => says_of_what(error, &calls),
            // Its files are there, and nothing is known of it.
            (Ok(seen), Err(_)) if seen.figures[0] == 0 => {
                assert_eq!(seen.rows, expected.last().tables[at].rows);
            }
            (Ok(seen), _) => assert_eq!(seen, &expected.last().tables[at]),
        }
        if let Err(error) = &refreshed {
            failed = true;
            says_of_what(error, &calls);
        }
    }
    !failed
}

/// Everything is there, and stays when the job is run once more.
async fn is_whole(job: &Job, expected: &Expected, disk: &SimDisk) {
    let ctx = open(Arc::new(disk.clone()), PARTITIONS)
        .await
        .expect("it is opened");
    let unopened = ctx.unopened();
    assert!(unopened.is_empty(), "{unopened:?}");
    expected.check_last(&Seen::of(job, &ctx, disk).await.expect("it is read"));
    let again = job.finish(&ctx, &mut Done::default()).await;
    again.expect("it runs once more");
    expected.check_last(&Seen::of(job, &ctx, disk).await.expect("it is read"));
}

/// An error names a path that something was asked of, or the folder that it is in.
#[track_caller]
fn says_of_what(error: &DataFusionError, calls: &[Called]) {
    let text = error.to_string();
    let folder = |path: &str| {
        path.rsplit_once('/')
            .map_or("folder", |(folder, _)| folder)
            .to_owned()
    };
    let named = calls.iter().any(|call| {
        // A file is named as it will be called.
        let path = call.path.replace(".tmp-", "").replace(".part", "");
        let path = if path.is_empty() {
            "folder".to_owned()
        } else {
            path
        };
        text.contains(&path) || text.contains(&folder(&path))
    });
    assert!(named, "of what? {text}\n{calls:?}");
    assert!(!text.contains("PANIC"), "{text}");
}

fn tell(job: &Job, when: &str, calls: usize, cases: usize, failed: u64, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    eprintln!(
        "{}, {when}: {calls} calls, {cases} faults, {failed} failures, {seconds:.1} s",
        job.name
    );
}
