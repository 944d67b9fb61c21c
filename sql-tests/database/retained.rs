//! Rows that are kept for a time: `retain` of tables and of results of streaming tables.
//!
//! ```text
//! day           0     1     2     3     4
//! INSERT        a     b     c
//! REFRESH                b read
//! gone, at 2 days              .     a     b and not c: its reader has not passed it
//! ```

use std::sync::Arc;

use super::hands::Hands;
use super::*;

const HOUR: i64 = 60 * MINUTE;
const MINUTE: i64 = 60_000;

/// When the clock begins: in September 2026.
const BEGIN: i64 = 1_790_000_000_000;

/// Sets the clock to so many hours after the begin.
fn set(clock: &Hands, hours: i64) {
    clock.set_ms(BEGIN + hours * HOUR);
}

const TABLE: &str = "CREATE TABLE t (v BIGINT) WITH (retain = INTERVAL '2' DAY)";
const READER: &str = "CREATE STREAMING TABLE r AS SELECT v FROM STREAM t";

async fn insert(ctx: &StreamContext, value: i64) {
    run(ctx, &format!("INSERT INTO t VALUES ({value})")).await;
}

/// The values of a table.
async fn kept(ctx: &StreamContext, table: &str) -> String {
    run(ctx, &format!("SELECT v FROM {table}")).await.join(" ")
}

/// The files with rows of tables.
fn files(dir: &Path) -> usize {
    let tables = std::fs::read_dir(dir.join("tables")).unwrap();
    let names = tables.flat_map(|table| std::fs::read_dir(table.unwrap().path()).unwrap());
    let names = names.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".parquet")).count()
}

/// Sessions in memory and over a database, each with a clock of its own.
async fn sessions() -> (tempfile::TempDir, [(StreamContext, Arc<Hands>); 2]) {
    let dir = tempfile::tempdir().unwrap();
    let clocks = [Hands::at_ms(BEGIN), Hands::at_ms(BEGIN)];
    let memory = StreamContext::new().unwrap().with_clock(clocks[0].clone());
    let database = open(dir.path()).await.with_clock(clocks[1].clone());
    let [one, other] = clocks;
    (dir, [(memory, one), (database, other)])
}

#[tokio::test]
async fn a_table_that_nobody_reads_lets_go_by_age() {
    let (dir, sessions) = sessions().await;
    for (ctx, clock) in &sessions {
        run(ctx, TABLE).await;
        for value in 0..3 {
            set(clock, value * 24);
            insert(ctx, value).await;
        }
        // Two days are not more than two days.
        assert_eq!(kept(ctx, "t").await, "0 1 2");
        set(clock, 49);
        assert_eq!(kept(ctx, "t").await, "0 1 2");
        insert(ctx, 3).await;
        assert_eq!(kept(ctx, "t").await, "1 2 3");
        // A clock that goes back removes nothing, and what arrives then stays as long as what arrived before.
        set(clock, -1000);
        insert(ctx, 4).await;
        set(clock, 97);
        insert(ctx, 5).await;
        assert_eq!(kept(ctx, "t").await, "3 4 5");
    }
    assert_eq!(files(dir.path()), 3);
}

#[tokio::test]
async fn a_slow_reader_holds_what_it_has_not_read() {
    let (dir, sessions) = sessions().await;
    for (ctx, clock) in &sessions {
        run(ctx, TABLE).await;
        run(ctx, READER).await;
        run(ctx, "CREATE STREAMING TABLE slow AS SELECT v FROM STREAM t").await;
        insert(ctx, 0).await;
        set(clock, 24);
        insert(ctx, 1).await;
        set(clock, 100);
        insert(ctx, 2).await;
        ctx.refresh("r").await.unwrap();
        // One of the two has read nothing.
        assert_eq!(kept(ctx, "t").await, "0 1 2");
        ctx.refresh("slow").await.unwrap();
        assert_eq!(kept(ctx, "t").await, "2");
        insert(ctx, 3).await;
        ctx.refresh("r").await.unwrap();
        set(clock, 200);
        ctx.refresh("slow").await.unwrap();
        assert_eq!(kept(ctx, "t").await, "");
        // What was read stays where it went, and the numbers of rows go on.
        insert(ctx, 4).await;
        for name in ["r", "slow"] {
            ctx.refresh(name).await.unwrap();
            assert_eq!(kept(ctx, name).await, "0 1 2 3 4");
        }
        run(ctx, "DROP STREAMING TABLE slow").await;
        // Begun anew it reads what is still there.
        run(ctx, "REFRESH STREAMING TABLE r FULL").await;
        assert_eq!(kept(ctx, "r").await, "4");
    }
    assert_eq!(files(dir.path()), 1);
}

#[tokio::test]
async fn a_restart_knows_ages_readers_and_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hands::at_ms(BEGIN);
    let reopened = || async { open(dir.path()).await.with_clock(clock.clone()) };
    let ctx = reopened().await;
    run(&ctx, TABLE).await;
    run(&ctx, READER).await;
    for value in 0..3 {
        set(&clock, value * 20);
        insert(&ctx, value).await;
    }
    ctx.refresh("r").await.unwrap();
    set(&clock, 48);
    insert(&ctx, 3).await;
    drop(ctx);
    set(&clock, 49);
    let ctx = reopened().await;
    assert_eq!(kept(&ctx, "t").await, "0 1 2 3");
    insert(&ctx, 4).await;
    assert_eq!(kept(&ctx, "t").await, "1 2 3 4");
    set(&clock, 300);
    insert(&ctx, 5).await;
    // Behind the reader's last epoch.
    assert_eq!(kept(&ctx, "t").await, "3 4 5");
    drop(ctx);
    set(&clock, 500);
    let ctx = reopened().await;
    ctx.refresh("r").await.unwrap();
    assert_eq!((kept(&ctx, "t").await.as_str(), files(dir.path())), ("", 0));
    drop(ctx);
    let ctx = reopened().await;
    assert_eq!(kept(&ctx, "t").await, "");
    insert(&ctx, 6).await;
    ctx.refresh("r").await.unwrap();
    assert_eq!(kept(&ctx, "r").await, "0 1 2 3 4 5 6");
    let ctx = ctx.reopen().await.unwrap();
    assert_eq!(kept(&ctx, "t").await, "6");
}

#[tokio::test]
async fn many_inserts_in_few_files_go_file_by_file() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hands::at_ms(BEGIN);
    let ctx = open(dir.path()).await.with_clock(clock.clone());
    run(&ctx, "CREATE TABLE t (v BIGINT) WITH (retain = '8 hours')").await;
    for value in 0..360 {
        clock.set_ms(BEGIN + value * 2 * MINUTE);
        insert(&ctx, value).await;
    }
    // 240 rows are not old. A file has rows of an hour at most, and goes when its newest row is old.
    let rows = kept(&ctx, "t").await.split(' ').count();
    assert!((240..=270).contains(&rows), "{rows}");
    assert!(files(dir.path()) < rows, "{}", files(dir.path()));
    // What a file holds goes together, so that nothing comes back.
    let before = (kept(&ctx, "t").await, files(dir.path()));
    let ctx = ctx.reopen().await.unwrap();
    assert_eq!((kept(&ctx, "t").await, files(dir.path())), before);
    set(&clock, 100);
    insert(&ctx, 360).await;
    assert_eq!(
        (kept(&ctx, "t").await, files(dir.path())),
        ("360".to_owned(), 1)
    );
}

#[tokio::test]
async fn files_without_a_time_count_as_arrived_when_they_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hands::at_ms(BEGIN);
    let ctx = open(dir.path()).await.with_clock(clock.clone());
    run(&ctx, TABLE).await;
    insert(&ctx, 0).await;
    drop(ctx);
    for table in std::fs::read_dir(dir.path().join("tables")).unwrap() {
        for file in std::fs::read_dir(table.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let (rest, arrived) = name.rsplit_once('-').unwrap();
            assert_eq!(arrived, format!("{}.parquet", BEGIN));
            std::fs::rename(&path, path.with_file_name(format!("{rest}.parquet"))).unwrap();
        }
    }
    set(&clock, 1000);
    let ctx = open(dir.path()).await.with_clock(clock.clone());
    insert(&ctx, 1).await;
    set(&clock, 1048);
    insert(&ctx, 2).await;
    assert_eq!(kept(&ctx, "t").await, "0 1 2");
    set(&clock, 1049);
    insert(&ctx, 3).await;
    assert_eq!(kept(&ctx, "t").await, "2 3");
}

#[tokio::test]
async fn a_table_without_retain_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hands::at_ms(BEGIN);
    let ctx = open(dir.path()).await.with_clock(clock.clone());
    run(&ctx, "CREATE TABLE t (v BIGINT)").await;
    insert(&ctx, 0).await;
    set(&clock, 1_000_000);
    insert(&ctx, 1).await;
    assert_eq!(kept(&ctx, "t").await, "0 1");
}

#[tokio::test]
async fn a_result_lets_go_what_its_readers_have_passed() {
    let (_dir, sessions) = sessions().await;
    for (ctx, clock) in &sessions {
        run(ctx, "CREATE TABLE t (v BIGINT)").await;
        run(
            ctx,
            "CREATE STREAMING TABLE x WITH (retain = '2 days') AS SELECT v FROM STREAM t LIMIT 6",
        )
        .await;
        run(ctx, "CREATE STREAMING TABLE y AS SELECT v FROM STREAM x").await;
        for value in 0..3 {
            set(clock, value * 24);
            insert(ctx, value).await;
            ctx.refresh("x").await.unwrap();
        }
        set(clock, 60);
        ctx.refresh("x").await.unwrap();
        assert_eq!(kept(ctx, "x").await, "0 1 2");
        ctx.refresh("y").await.unwrap();
        assert_eq!(kept(ctx, "x").await, "1 2");
        set(clock, 90);
        insert(ctx, 3).await;
        ctx.refresh("x").await.unwrap();
        assert_eq!(kept(ctx, "x").await, "2 3");
        ctx.refresh("y").await.unwrap();
        // LIMIT counts rows that have gone.
        for value in 4..9 {
            insert(ctx, value).await;
        }
        ctx.refresh("x").await.unwrap();
        assert_eq!(kept(ctx, "x").await, "2 3 4 5");
        ctx.refresh("y").await.unwrap();
        assert_eq!(kept(ctx, "y").await, "0 1 2 3 4 5");
    }
}

#[tokio::test]
async fn a_result_is_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hands::at_ms(BEGIN);
    let mut ctx = open(dir.path()).await.with_clock(clock.clone());
    run(&ctx, "CREATE TABLE t (v BIGINT)").await;
    run(
        &ctx,
        "CREATE STREAMING TABLE x WITH (retain = INTERVAL '2' DAY) AS SELECT v FROM STREAM t",
    )
    .await;
    run(&ctx, "CREATE STREAMING TABLE y AS SELECT v FROM STREAM x").await;
    for value in 0..60 {
        set(&clock, value * 6);
        insert(&ctx, value).await;
        ctx.refresh("x").await.unwrap();
        if value % 3 == 0 {
            ctx.refresh("y").await.unwrap();
            // The checkpoint of `x` hears of what has gone with its next epoch.
            ctx.refresh("x").await.unwrap();
        }
        let before = kept(&ctx, "x").await;
        ctx = ctx.reopen().await.unwrap();
        assert_eq!(kept(&ctx, "x").await, before, "{value}");
        assert_eq!(
            run(&ctx, "SELECT v FROM emitted('x')").await.len(),
            usize::from(value % 3 != 0)
        );
    }
    ctx.refresh("y").await.unwrap();
    ctx.refresh("x").await.unwrap();
    let rows = kept(&ctx, "x").await;
    assert_eq!(rows.split(' ').count(), 9, "{rows}");
    assert_eq!(
        run(&ctx, "SELECT count(*), sum(v) FROM y").await,
        ["60 1770"]
    );
    // Rows on disk: those of the parts that have one that is kept.
    let checkpoints = std::fs::read_dir(dir.path().join("queries")).unwrap();
    let files = checkpoints.map(|query| std::fs::read_dir(query.unwrap().path()).unwrap().count());
    assert!(files.sum::<usize>() < 60);
    set(&clock, 1000);
    ctx.refresh("x").await.unwrap();
    assert_eq!(kept(&ctx, "x").await, "");
    let ctx = ctx.reopen().await.unwrap();
    assert_eq!(kept(&ctx, "x").await, "");
    insert(&ctx, 60).await;
    for name in ["x", "y"] {
        ctx.refresh(name).await.unwrap();
    }
    assert_eq!(
        run(&ctx, "SELECT count(*), sum(v) FROM y").await,
        ["61 1830"]
    );
}

#[tokio::test]
async fn a_reader_that_could_not_be_opened_holds_all() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Hands::at_ms(BEGIN);
    let sink = || Arc::new(sinks::Memory::default());
    let ctx = open(dir.path()).await.with_clock(clock.clone());
    ctx.register_sink("out", sink());
    run(&ctx, TABLE).await;
    run(
        &ctx,
        "CREATE STREAMING TABLE s WITH (sink = 'out') AS SELECT v FROM STREAM t",
    )
    .await;
    insert(&ctx, 0).await;
    drop(ctx);
    let ctx = StreamContext::open(dir.path())
        .await
        .unwrap()
        .with_clock(clock.clone());
    set(&clock, 100);
    insert(&ctx, 1).await;
    assert_eq!(kept(&ctx, "t").await, "0 1");
    ctx.register_sink("out", sink());
    ctx.open_rest().await.unwrap();
    assert_eq!(ctx.refresh("s").await.unwrap()[0].output_rows, 2);
    assert_eq!(kept(&ctx, "t").await, "1");
}
