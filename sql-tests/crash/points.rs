//! A crash at every call of a job, under every model; and a second one while the first is being made good.

use std::sync::Arc;
use std::time::Instant;

use tidegate::disk::SimDisk;
use tidegate::disk::sim::Crash;

use crate::case::Case;
use crate::job::{Done, Job, block, open};
use crate::random::Random;
use crate::seen::{Expected, Seen};

/// Partitions of the sessions before the first crash.
const PARTITIONS: usize = 2;

/// Number of calls of the disk that an undisturbed job makes, from the opening to the end.
pub(crate) fn calls(job: &Job, expected: &Expected) -> u64 {
    block(async {
        let disk = SimDisk::new(0);
        let ctx = open(Arc::new(disk.clone()), PARTITIONS)
            .await
            .expect("it is opened");
        job.run(&ctx, &mut Done::default()).await.expect("it runs");
        let calls = disk.calls();
        expected.check_last(&Seen::of(job, &ctx, &disk).await.expect("it is read"));
        calls
    })
}

/// Every call, every model.
pub(crate) fn every(job: &Job) {
    let started = Instant::now();
    let expected = Expected::of(job);
    let calls = calls(job, &expected);
    let mut runs = 0_u64;
    for n in 0..=calls {
        let (crashed, done) = crashed(job, n, n);
        for (at, model) in Crash::ALL.into_iter().enumerate() {
            let partitions = 1 + (usize::try_from(n).expect("small") + at) % 3;
            let _case = Case(|| {
                format!(
                    "{}: crash at call {n} of {calls}, {model:?}, then {partitions} partitions",
                    job.name
                )
            });
            let disk = crashed.fork();
            disk.reopen(model);
            recovered(job, &expected, &disk, partitions, done.clone());
            runs += 1;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    eprintln!(
        "{}: {calls} calls, {runs} crashes, {seconds:.1} s",
        job.name
    );
}

/// Crashes at two calls, drawn with a seed: the second while the job is opened and finished after the first.
pub(crate) fn pairs(jobs: &[&Job], pairs: u64, seed: u64) {
    eprintln!("TIDEGATE_CRASH_SEED={seed}");
    let started = Instant::now();
    let mut random = Random::new(seed);
    let known: Vec<_> = jobs
        .iter()
        .map(|job| {
            let expected = Expected::of(job);
            let calls = calls(job, &expected);
            (*job, expected, calls)
        })
        .collect();
    let mut second = 0_u64;
    for pair in 0..pairs {
        let (job, expected, calls) = &known[random.below(known.len() as u64) as usize];
        let (n, m) = (random.below(*calls), random.below(*calls));
        let models = [random.model(), random.model()];
        let partitions = [1 + random.below(3) as usize, 1 + random.below(3) as usize];
        let _case = Case(|| {
            format!(
                "{}: seed {seed}, pair {pair}: crashes at call {n} and {m} calls later, {models:?}, then {partitions:?} partitions",
                job.name
            )
        });
        let (disk, mut done) = crashed(job, n, seed ^ pair);
        disk.reopen(models[0]);
        disk.crash_at(disk.calls() + m);
        block(async {
            if let Ok(ctx) = open(Arc::new(disk.clone()), partitions[0]).await {
                // Rows that are there after a crash have not been promised, those that are said now are.
                let mut again = done.clone();
                match job.finish(&ctx, &mut again).await {
                    Ok(()) => done = again,
                    Err(error) => assert!(disk.crashed(), "{error}"),
                }
            }
        });
        second += u64::from(disk.crashed());
        disk.reopen(models[1]);
        recovered(job, expected, &disk, partitions[1], done);
        if pair % 1_000 == 999 {
            let seconds = started.elapsed().as_secs_f64();
            eprintln!(
                "{} pairs, {second} with a second crash, {seconds:.1} s",
                pair + 1
            );
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("{pairs} pairs, {second} with a second crash, {seconds:.1} s");
}

/// A disk that has crashed at this call of a job, and what had been said to be done.
fn crashed(job: &Job, n: u64, seed: u64) -> (SimDisk, Done) {
    let disk = SimDisk::new(seed);
    disk.crash_at(n);
    let mut done = Done::default();
    block(async {
        let ran = match open(Arc::new(disk.clone()), PARTITIONS).await {
            Ok(ctx) => job.run(&ctx, &mut done).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ran {
            assert!(
                error.to_string().contains("the disk has crashed"),
                "{error}"
            );
        }
    });
    (disk, done)
}

/// Opens what a crash has left, and goes on to the end.
fn recovered(job: &Job, expected: &Expected, disk: &SimDisk, partitions: usize, mut done: Done) {
    block(async {
        let ctx = open(Arc::new(disk.clone()), partitions)
            .await
            .expect("it is opened");
        let unopened = ctx.unopened();
        assert!(unopened.is_empty(), "{unopened:?}");
        let seen = Seen::of(job, &ctx, disk).await.expect("it is read");
        expected.check(job, &seen, &done);
        job.finish(&ctx, &mut done).await.expect("it goes on");
        expected.check_last(&Seen::of(job, &ctx, disk).await.expect("it is read"));
    });
}
