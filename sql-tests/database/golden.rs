//! `sql-tests/data/database` was written by format version 1 and is never written again: a version that cannot read
//! it must say so by the number of the format.

use std::fs;

use super::*;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[tokio::test]
async fn a_database_of_format_1_is_read_and_goes_on() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql-tests/data/database");
    let dir = tempfile::tempdir().unwrap();
    copy(&golden, dir.path());
    // Git keeps no empty folder.
    fs::create_dir_all(dir.path().join("queries")).unwrap();
    let ctx = open(dir.path()).await;
    assert_eq!(run(&ctx, "SELECT count(*), sum(v) FROM t").await, ["8 36"]);
    let hopping = [
        "2026-03-02T09:55:00 1 b 2",
        "2026-03-02T09:55:00 2 a 4",
        "2026-03-02T10:00:00 1 b 2",
        "2026-03-02T10:00:00 2 a 4",
        "2026-03-02T10:05:00 1 a 4",
        "2026-03-02T10:05:00 1 c 7",
    ];
    assert_eq!(run(&ctx, "SELECT * FROM hopping").await, hopping);
    assert_eq!(
        run(&ctx, "SELECT * FROM sums").await,
        ["a 14", "b 10", "c 12"]
    );
    run(&ctx, "INSERT INTO t VALUES ('2026-03-02 11:00:00', 9, 'z')").await;
    for name in ["hopping", "sessions", "updated", "firsts"] {
        ctx.refresh(name).await.unwrap();
    }
    // What was open is closed now, with the rows that were kept.
    let hopping = run(
        &ctx,
        "SELECT * FROM hopping WHERE start >= '2026-03-02 10:10:00'",
    )
    .await;
    assert_eq!(
        hopping,
        [
            "2026-03-02T10:10:00 1 a 4",
            "2026-03-02T10:10:00 1 b 8",
            "2026-03-02T10:10:00 1 c 7",
            "2026-03-02T10:15:00 1 b 8",
        ]
    );
    let sessions = run(
        &ctx,
        "SELECT * FROM sessions WHERE start >= '2026-03-02 10:13:00'",
    )
    .await;
    assert_eq!(
        sessions,
        [
            "2026-03-02T10:13:00 2026-03-02T10:16:00 c 1",
            "2026-03-02T10:16:00 2026-03-02T10:19:00 b 1",
        ]
    );
    assert_eq!(
        run(&ctx, "SELECT sum(s), count(*) FROM updated").await,
        ["39 7"]
    );
    assert_eq!(
        run(&ctx, "SELECT k, v FROM firsts").await,
        ["a 1", "b 2", "c 5", "z 9"]
    );
}
