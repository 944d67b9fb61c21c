//! What was wrong once.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tidegate::checkpoint::Checkpoint;
use tidegate::disk::sim::{Crash, Fault};
use tidegate::disk::{Disk, SimDisk};
use tidegate::prelude::*;

use crate::job::{block, open, run};
use crate::seen::rows_of;

async fn opened(disk: &SimDisk) -> StreamContext {
    open(Arc::new(disk.clone()), 1).await.expect("it is opened")
}

/// The same with an empty table `t (v)`.
async fn with_table(disk: &SimDisk) -> StreamContext {
    let ctx = opened(disk).await;
    runs(&ctx, "CREATE TABLE t (v BIGINT)").await;
    ctx
}

async fn runs(ctx: &StreamContext, sql: &str) {
    run(ctx, sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Runs a statement whose call of this number, counted from 0, fails without losing what it was to make durable.
async fn fails(ctx: &StreamContext, disk: &SimDisk, call: u64, sql: &str) {
    disk.fail_at(disk.calls() + call, Fault::Eacces, false);
    run(ctx, sql).await.expect_err(sql);
    disk.heal();
}

/// Runs a statement whose last call fails, the sync of a folder, and all that would take back what is in place.
async fn is_left_in_place(ctx: &StreamContext, disk: &SimDisk, sql: &str) {
    disk.fail_at(disk.calls() + 3, Fault::Eacces, true);
    run(ctx, sql).await.expect_err(sql);
}

/// Opens a database on a disk that is full from the first call on that needs room: the catalog is published again.
async fn opened_on_a_full_disk(disk: &SimDisk) -> StreamContext {
    disk.fail_at(disk.calls() + 5, Fault::Enospc, true);
    opened(disk).await
}

/// What a process has left in place is read, and is durable before something counts on it.
#[test]
fn a_database_on_a_full_disk_can_be_read() {
    let disk = SimDisk::new(1);
    block(async {
        let ctx = with_table(&disk).await;
        runs(&ctx, PLAIN).await;
        runs(&ctx, "INSERT INTO t VALUES (1)").await;
        runs(&ctx, "REFRESH STREAMING TABLE q").await;
        is_left_in_place(&ctx, &disk, "INSERT INTO t VALUES (2)").await;
    });
    disk.heal();
    block(async {
        let ctx = opened_on_a_full_disk(&disk).await;
        let unopened = ctx.unopened();
        assert!(unopened.is_empty(), "{unopened:?}");
        assert_eq!(rows_of(&ctx, "t").await.unwrap(), ["1", "2"]);
        assert_eq!(rows_of(&ctx, "q").await.unwrap(), ["1"]);
        for sql in ["INSERT INTO t VALUES (3)", "REFRESH STREAMING TABLE q"] {
            let error = run(&ctx, sql).await.expect_err(sql).to_string();
            assert!(error.contains("catalog: "), "{error}");
        }
        disk.heal();
        runs(&ctx, "REFRESH STREAMING TABLE q").await;
    });
    disk.reopen(Crash::Lost);
    block(async {
        let ctx = opened(&disk).await;
        for name in ["t", "q"] {
            assert_eq!(rows_of(&ctx, name).await.unwrap(), ["1", "2"], "{name}");
        }
    });
}

/// What a database was opened without does not come back with a crash.
#[test]
fn a_table_whose_drop_was_in_doubt_stays_away_once_it_was_seen() {
    for crash in Crash::ALL {
        let disk = SimDisk::new(1);
        block(async {
            let ctx = with_table(&disk).await;
            runs(&ctx, "INSERT INTO t VALUES (1)").await;
            is_left_in_place(&ctx, &disk, "DROP TABLE t").await;
        });
        disk.heal();
        block(async {
            let ctx = opened_on_a_full_disk(&disk).await;
            assert!(!ctx.session().table_exist("t").unwrap());
        });
        disk.reopen(crash);
        block(async {
            let ctx = opened(&disk).await;
            assert!(ctx.unopened().is_empty(), "{crash:?}");
            assert!(!ctx.session().table_exist("t").unwrap(), "{crash:?}");
        });
    }
}

/// Neither the drop nor the catalog before it is durable: the rows wait for one that has their table.
#[test]
fn rows_of_a_table_whose_drop_failed_for_good_are_kept() {
    let disk = SimDisk::new(1);
    block(async {
        let ctx = with_table(&disk).await;
        is_left_in_place(&ctx, &disk, "DROP TABLE t").await;
        disk.heal();
        runs(&ctx, "INSERT INTO t VALUES (1)").await;
    });
    disk.reopen(Crash::Kept);
    block(async {
        let ctx = opened(&disk).await;
        assert_eq!(rows_of(&ctx, "t").await.unwrap(), ["1"]);
    });
}

/// An older checkpoint that cannot be read is not one that is not there.
#[test]
fn an_error_that_passes_leaves_the_older_checkpoint() {
    let disk = SimDisk::new(1);
    block(async {
        let ctx = with_table(&disk).await;
        runs(
            &ctx,
            "CREATE STREAMING TABLE q WITH (max_rows_per_epoch = '1') AS SELECT v FROM STREAM t",
        )
        .await;
        runs(&ctx, "INSERT INTO t VALUES (1), (2), (3), (4)").await;
        runs(&ctx, "REFRESH STREAMING TABLE q").await;
    });
    let files = disk.files().into_iter();
    let newest = files.filter(|path| path.ends_with(".epoch")).max();
    let newest = newest.expect("a file");
    let id = newest.split('/').nth(1).expect("a folder");
    let kept = NonZeroUsize::new(2).expect("not zero");
    let restored = |disk: &SimDisk| {
        let disk = Arc::new(disk.clone());
        let opened = Checkpoint::open(disk, Arc::default(), "queries", id, kept);
        opened.map(|(_, restored)| restored.number)
    };
    let number = restored(&disk.fork()).unwrap();
    for call in 0..16 {
        let disk = disk.fork();
        disk.fail_at(disk.calls() + call, Fault::Emfile, false);
        restored(&disk).ok();
        disk.heal();
        disk.remove(&newest).unwrap();
        assert_eq!(restored(&disk).unwrap(), number - 1, "call {call}");
    }
}

/// The sync of the folder comes last. The file of the INSERT that failed has the same first row as the next one.
#[test]
fn rows_of_an_insert_that_failed_do_not_take_the_place_of_others() {
    for model in Crash::ALL {
        let disk = SimDisk::new(1);
        block(async {
            let ctx = with_table(&disk).await;
            runs(&ctx, "INSERT INTO t VALUES (0)").await;
            fails(&ctx, &disk, 3, "INSERT INTO t VALUES (1), (2), (3)").await;
            runs(&ctx, "INSERT INTO t VALUES (4), (5)").await;
        });
        disk.reopen(model);
        block(async {
            let ctx = opened(&disk).await;
            assert_eq!(
                rows_of(&ctx, "t").await.unwrap(),
                ["0", "4", "5"],
                "{model:?}"
            );
        });
    }
}

/// The catalog that the statement has put in place must not be the one that is found.
#[test]
fn a_table_whose_drop_failed_is_there_after_a_crash() {
    for model in Crash::ALL {
        let disk = SimDisk::new(1);
        block(async {
            let ctx = with_table(&disk).await;
            fails(&ctx, &disk, 3, "DROP TABLE t").await;
            runs(&ctx, "INSERT INTO t VALUES (1)").await;
        });
        disk.reopen(model);
        block(async {
            let ctx = opened(&disk).await;
            assert_eq!(rows_of(&ctx, "t").await.unwrap(), ["1"], "{model:?}");
        });
    }
}

const PLAIN: &str = "CREATE STREAMING TABLE IF NOT EXISTS q AS SELECT v FROM STREAM t";

/// A table that has lost its newest rows takes others in their numbers, which a streaming table would pass over.
#[test]
fn a_streaming_table_does_not_pass_over_rows_that_took_the_numbers_of_others() {
    let disk = SimDisk::new(1);
    block(async {
        let ctx = with_table(&disk).await;
        runs(&ctx, PLAIN).await;
        runs(&ctx, "INSERT INTO t VALUES (1)").await;
        runs(&ctx, "INSERT INTO t VALUES (2), (3)").await;
        runs(&ctx, "REFRESH STREAMING TABLE q").await;
    });
    let files = disk.files().into_iter();
    let newest = files.filter(|path| path.starts_with("tables/")).max();
    disk.remove(&newest.expect("a file")).unwrap();
    block(async {
        let ctx = opened(&disk).await;
        for sql in [
            "INSERT INTO t VALUES (4), (5), (6)",
            "SELECT * FROM t",
            "REFRESH STREAMING TABLE q",
        ] {
            let error = run(&ctx, sql).await.expect_err(sql).to_string();
            assert!(
                error.contains("lacks the file that begins with row 1"),
                "{error}"
            );
        }
        assert_eq!(rows_of(&ctx, "q").await.unwrap(), ["1", "2", "3"]);
    });
}

/// Of a checkpoint that could not be read it is not known what its query has written: nothing of that goes.
#[test]
fn what_a_table_has_written_stays_when_its_checkpoint_cannot_be_read() {
    let disk = SimDisk::new(1);
    block(async {
        let ctx = with_table(&disk).await;
        runs(&ctx, "CREATE STREAMING TABLE q WITH (max_rows_per_epoch = '1') STORED AS CSV LOCATION 'out/' AS SELECT v FROM STREAM t").await;
        runs(&ctx, "INSERT INTO t VALUES (1), (2), (3), (4)").await;
        runs(&ctx, "REFRESH STREAMING TABLE q").await;
    });
    let written = |disk: &SimDisk| {
        let files = disk.files().into_iter();
        files
            .filter(|path| path.ends_with(".csv"))
            .collect::<Vec<_>>()
    };
    assert_eq!(written(&disk).len(), 4);
    let files = disk.files().into_iter();
    let newest = files
        .filter(|path| path.ends_with(".epoch"))
        .max()
        .expect("a file");
    let bytes = disk.read(&newest).unwrap();
    disk.corrupt(&newest, |bytes| bytes[0] ^= 1).unwrap();
    block(async {
        let ctx = opened(&disk).await;
        run(&ctx, "REFRESH STREAMING TABLE q")
            .await
            .expect_err("it is damaged");
    });
    assert_eq!(written(&disk).len(), 4);
    disk.corrupt(&newest, |now| *now = bytes).unwrap();
    block(async {
        let ctx = opened(&disk).await;
        runs(&ctx, "REFRESH STREAMING TABLE q").await;
    });
    assert_eq!(written(&disk).len(), 4);
}

/// A streaming table that could not be opened is not one that does not exist.
#[test]
fn a_table_that_could_not_be_opened_is_not_made_anew() {
    let disk = SimDisk::new(1);
    block(async {
        let ctx = with_table(&disk).await;
        runs(&ctx, "INSERT INTO t VALUES (1)").await;
    });
    // The session of an application lacks a function, or a table, that the query needs.
    let with = |there: bool| {
        let disk = disk.clone();
        async move {
            let session = datafusion::prelude::SessionContext::new();
            if there {
                let view = session.sql("SELECT 1 AS one").await.unwrap();
                session.register_table("outside", view.into_view()).unwrap();
            }
            StreamContext::open_on(session, Arc::new(disk), Some("db"))
                .await
                .unwrap()
        }
    };
    const QUERY: &str =
        "CREATE STREAMING TABLE IF NOT EXISTS r AS SELECT v, one FROM STREAM t CROSS JOIN outside";
    block(async {
        let ctx = with(true).await;
        runs(&ctx, QUERY).await;
        runs(&ctx, "REFRESH STREAMING TABLE r").await;
        assert_eq!(rows_of(&ctx, "r").await.unwrap(), ["1|1"]);
    });
    block(async {
        let ctx = with(false).await;
        assert_eq!(ctx.unopened().len(), 1);
        let elsewhere = QUERY
            .replace(", one", ", 2 AS one")
            .replace("CROSS JOIN outside", "");
        let error = run(&ctx, &elsewhere)
            .await
            .expect_err("it is there")
            .to_string();
        assert!(error.contains("could not be opened"), "{error}");
    });
    block(async {
        let ctx = with(true).await;
        assert_eq!(rows_of(&ctx, "r").await.unwrap(), ["1|1"]);
    });
}

/// A sync that failed has given the names up, and the folder could not be removed either: a second sync proves
/// nothing.
#[test]
fn a_folder_in_doubt_is_made_anew() {
    for call in 0..16 {
        let disk = SimDisk::new(1);
        block(async {
            let ctx = with_table(&disk).await;
            runs(
                &ctx,
                "CREATE STREAMING TABLE q STORED AS CSV LOCATION 'out/deep/' AS SELECT v FROM STREAM t",
            )
            .await;
            runs(&ctx, "INSERT INTO t VALUES (1), (2)").await;
            disk.fail_at(disk.calls() + call, Fault::Eio, true);
            run(&ctx, "REFRESH STREAMING TABLE q").await.ok();
            disk.heal();
            runs(&ctx, "REFRESH STREAMING TABLE q").await;
        });
        disk.reopen(Crash::Lost);
        let files = disk.files().into_iter();
        let written: Vec<String> = files.filter(|path| path.ends_with(".csv")).collect();
        assert_eq!(written.len(), 1, "call {call}: {written:?}");
    }
}

/// The same for the folders of a new database.
#[test]
fn a_new_database_whose_folders_are_in_doubt_is_kept() {
    for call in 0..12 {
        let disk = SimDisk::new(1);
        disk.fail_at(call, Fault::Eio, true);
        block(async {
            drop(open(Arc::new(disk.clone()), 1).await);
            disk.heal();
            let ctx = with_table(&disk).await;
            runs(&ctx, "INSERT INTO t VALUES (1)").await;
        });
        disk.reopen(Crash::Lost);
        block(async {
            let ctx = opened(&disk).await;
            assert_eq!(rows_of(&ctx, "t").await.unwrap(), ["1"], "call {call}");
        });
    }
}

/// The folder of a table that was not written down, and could not be removed, is not the next table's.
#[test]
fn the_folder_of_a_table_that_never_was_is_not_given_to_another() {
    for call in 0..14 {
        let disk = SimDisk::new(1);
        block(async {
            let ctx = opened(&disk).await;
            // The folder and its rows are there, and then the catalog cannot be written.
            disk.crash_at(disk.calls() + 6);
            let sql = "CREATE TABLE t AS SELECT * FROM (VALUES (1), (2), (3)) AS r(v)";
            run(&ctx, sql).await.expect_err("the disk has crashed");
        });
        disk.reopen(Crash::Kept);
        block(async {
            disk.fail_at(disk.calls() + call, Fault::Eio, false);
            let ctx = match open(Arc::new(disk.clone()), 1).await {
                Ok(ctx) => ctx,
                Err(_) => opened(&disk).await,
            };
            disk.heal();
            runs(&ctx, "CREATE TABLE t (v BIGINT)").await;
            runs(&ctx, "INSERT INTO t VALUES (4)").await;
        });
        block(async {
            let ctx = opened(&disk).await;
            assert_eq!(rows_of(&ctx, "t").await.unwrap(), ["4"], "call {call}");
        });
    }
}
