//! Each crash model and each fault on its own, then `publish` under all of them.

use std::io::{self, ErrorKind};

use super::{Crash, Fault, SimDisk};
use crate::disk::{Disk, publish};

const OLD: &[u8] = b"the old content";
const NEW: &[u8] = b"the new content, which is longer";

/// Seeds enough for both sides of every coin and most lengths of a prefix.
const SEEDS: std::ops::Range<u64> = 0..64;

/// A disk with `d/name` durably holding the old content, if any.
fn disk_with(seed: u64, old: Option<&[u8]>) -> io::Result<SimDisk> {
    let disk = SimDisk::new(seed);
    disk.create_dir("d")?;
    disk.sync_dir("")?;
    if let Some(old) = old {
        publish(&disk, "d", "name", old)?;
    }
    Ok(disk)
}

fn content(disk: &SimDisk, path: &str) -> io::Result<Option<Vec<u8>>> {
    match disk.read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn names(disk: &SimDisk, dir: &str) -> io::Result<Vec<String>> {
    Ok(disk.list(dir)?.into_iter().map(|e| e.name).collect())
}

#[test]
fn a_file_survives_with_its_name_only_if_both_are_synced() -> io::Result<()> {
    for (sync_file, sync_dir) in [(false, false), (false, true), (true, false), (true, true)] {
        let run = |model| {
            let disk = disk_with(0, None)?;
            disk.write_new("d/f", NEW)?;
            if sync_file {
                disk.sync_file("d/f")?;
            }
            if sync_dir {
                disk.sync_dir("d")?;
            }
            disk.reopen(model);
            content(&disk, "d/f")
        };
        let bytes = if sync_file { NEW } else { b"" };
        let synced = sync_dir.then(|| bytes.to_vec());
        assert_eq!(run(Crash::Lost)?, synced);
        assert_eq!(run(Crash::RenameFirst)?, synced);
        assert_eq!(run(Crash::Kept)?, Some(NEW.to_vec()));
    }
    Ok(())
}

#[test]
fn lost_brings_back_what_was_overwritten_removed_and_moved() -> io::Result<()> {
    let disk = disk_with(0, Some(OLD))?;
    publish(&disk, "d", "removed", OLD)?;
    publish(&disk, "d", "moved", OLD)?;
    disk.write_new("d/name", NEW)?;
    disk.remove("d/removed")?;
    disk.rename("d/moved", "d/elsewhere")?;
    disk.create_dir("e/f")?;
    assert_eq!(disk.files(), ["d/elsewhere", "d/name"]);
    disk.reopen(Crash::Lost);
    assert_eq!(disk.files(), ["d/moved", "d/name", "d/removed"]);
    assert_eq!(disk.read("d/name")?, OLD);
    assert_eq!(names(&disk, "")?, ["d"]);
    Ok(())
}

#[test]
fn torn_keeps_prefixes_and_tosses_for_names() -> io::Result<()> {
    let (mut absent, mut lengths) = (0, Vec::new());
    for seed in SEEDS {
        let disk = disk_with(seed, None)?;
        disk.write_new("d/f", NEW)?;
        disk.reopen(Crash::Torn);
        match content(&disk, "d/f")? {
            None => absent += 1,
            Some(bytes) => {
                assert!(NEW.starts_with(&bytes));
                lengths.push(bytes.len());
            }
        }
        let survivors = disk.files();
        disk.reopen(Crash::Torn);
        assert_eq!(disk.files(), survivors, "what survived once is durable");
    }
    lengths.sort_unstable();
    lengths.dedup();
    assert!((16..48).contains(&absent), "{absent} of 64");
    assert!(lengths.len() > 10, "{lengths:?}");
    Ok(())
}

#[test]
fn torn_is_the_same_for_the_same_seed() -> io::Result<()> {
    let run = |seed| {
        let disk = disk_with(seed, Some(OLD))?;
        for name in ["a", "b", "c", "e"] {
            disk.write_new(name, NEW)?;
        }
        disk.reopen(Crash::Torn);
        let read = |path: String| Ok((disk.read(&path)?, path));
        disk.files()
            .into_iter()
            .map(read)
            .collect::<io::Result<Vec<_>>>()
    };
    assert_eq!(run(7)?, run(7)?);
    assert_ne!(run(7)?, run(8)?);
    Ok(())
}

#[test]
fn torn_keeps_up_to_half_of_the_write_that_met_the_crash() -> io::Result<()> {
    let mut longest = 0;
    for seed in SEEDS {
        for model in Crash::ALL {
            let disk = disk_with(seed, Some(OLD))?;
            disk.crash_at(disk.calls());
            assert!(disk.write_new("d/name", NEW).is_err());
            assert!(disk.write_new("d/other", NEW).is_err());
            disk.reopen(model);
            let bytes = disk.read("d/name")?;
            if model == Crash::Torn {
                assert!(NEW[..NEW.len() / 2].starts_with(&bytes));
                longest = longest.max(bytes.len());
            } else {
                assert_eq!(bytes, OLD, "{model:?}");
            }
            assert_eq!(disk.files(), ["d/name"], "only the first write was cut");
        }
    }
    assert_eq!(longest, NEW.len() / 2);
    Ok(())
}

#[test]
fn rename_first_empties_a_file_renamed_before_it_was_synced() -> io::Result<()> {
    let disk = disk_with(0, Some(OLD))?;
    disk.write_new("d/temp", NEW)?;
    disk.rename("d/temp", "d/name")?;
    disk.reopen(Crash::RenameFirst);
    assert_eq!(disk.read("d/name")?, b"");
    assert_eq!(disk.files(), ["d/name"]);
    Ok(())
}

#[test]
fn a_rename_is_whole_unless_one_of_two_directories_is_synced() -> io::Result<()> {
    for seed in SEEDS {
        let disk = disk_with(seed, Some(OLD))?;
        disk.create_dir("e")?;
        disk.sync_dir("")?;
        disk.rename("d/name", "e/name")?;
        disk.reopen(Crash::Torn);
        assert_eq!(disk.files().len(), 1, "{:?}", disk.files());
    }
    for (synced, expected) in [("d", vec![]), ("e", vec!["d/name", "e/name"])] {
        let disk = disk_with(0, Some(OLD))?;
        disk.create_dir("e")?;
        disk.sync_dir("")?;
        disk.rename("d/name", "e/name")?;
        disk.sync_dir(synced)?;
        disk.reopen(Crash::Lost);
        assert_eq!(disk.files(), expected);
    }
    Ok(())
}

#[test]
fn a_directory_is_never_left_below_itself() -> io::Result<()> {
    let disk = SimDisk::new(0);
    disk.create_dir("a")?;
    disk.create_dir("b")?;
    disk.sync_dir("")?;
    disk.rename("b", "a/b")?;
    disk.sync_dir("a")?;
    disk.rename("a/b", "b")?;
    disk.rename("a", "b/a")?;
    disk.sync_dir("b")?;
    disk.write_new("b/a/f", NEW)?;
    disk.sync_dir("b/a")?;
    disk.reopen(Crash::Lost);
    assert_eq!(disk.files().len(), 1);
    Ok(())
}

#[test]
fn a_crashed_disk_answers_nothing_until_it_is_reopened() -> io::Result<()> {
    let disk = disk_with(0, Some(OLD))?;
    let before = disk.lock("d/lock")?;
    let start = disk.calls();
    disk.crash_at(start + 1);
    disk.read("d/name")?;
    for _ in 0..2 {
        let error = disk.read("d/name").expect_err("crashed");
        assert_eq!(error.to_string(), "the disk has crashed");
    }
    assert!(disk.crashed());
    assert_eq!(disk.calls(), start + 3);
    disk.reopen(Crash::Kept);
    assert_eq!(disk.read("d/name")?, OLD);

    let after = disk.lock("d/lock")?;
    drop(before);
    let refused = disk.lock("d/lock").map_err(|e| e.kind());
    assert_eq!(refused.err(), Some(ErrorKind::WouldBlock));
    drop(after);
    disk.lock("d/lock").map(drop)
}

/// Every call once, each one that would succeed.
fn every_call(disk: &SimDisk) -> [io::Result<()>; 10] {
    [
        disk.read("d/name").map(drop),
        disk.list("d").map(drop),
        disk.create_dir("d"),
        disk.write_new("d/name", NEW),
        disk.sync_file("d/name"),
        disk.sync_dir("d"),
        disk.rename("d/name", "d/name"),
        disk.remove("d/spare"),
        disk.remove_dir("spare"),
        disk.lock("d/name").map(drop),
    ]
}

#[test]
fn a_fault_fails_the_calls_it_fits_and_is_eio_elsewhere() -> io::Result<()> {
    // Which calls of `every_call` each fault fits, and the error it gives.
    let table = [
        (Fault::Enospc, "..xxx.x...", 28),
        (Fault::Eio, "xxxxxxxxxx", 5),
        (Fault::Eacces, "xxxxxxxxxx", 13),
        (Fault::Emfile, "xx.xxx...x", 24),
        (Fault::FailedSync, "....xx....", 5),
        (Fault::FailedRename, "......x...", 5),
    ];
    for (fault, fits, code) in table {
        for (n, fit) in fits.bytes().enumerate() {
            for permanent in [false, true] {
                let disk = disk_with(0, Some(OLD))?;
                disk.write_new("d/spare", b"")?;
                disk.create_dir("spare")?;
                disk.fail_at(disk.calls() + n as u64, fault, permanent);
                for (at, result) in every_call(&disk).into_iter().enumerate() {
                    let fits_here = fits.as_bytes()[at] == b'x';
                    let expected = match at.cmp(&n) {
                        std::cmp::Ordering::Equal if fit == b'x' => Some(code),
                        std::cmp::Ordering::Equal => Some(5),
                        std::cmp::Ordering::Greater if permanent && fits_here => Some(code),
                        _ => None,
                    };
                    let found = result.err().map(|e| e.raw_os_error());
                    assert_eq!(found, expected.map(Some), "{fault:?} at {n}, call {at}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_short_write_leaves_half() -> io::Result<()> {
    let disk = disk_with(0, Some(OLD))?;
    disk.fail_at(disk.calls(), Fault::ShortWrite, false);
    let error = disk.write_new("d/name", NEW).expect_err("short");
    assert_eq!(error.kind(), ErrorKind::WriteZero);
    assert_eq!(disk.read("d/name")?, NEW[..NEW.len() / 2]);
    disk.write_new("d/name", NEW)?;
    assert_eq!(disk.read("d/name")?, NEW);
    Ok(())
}

#[test]
fn after_a_failed_sync_the_next_one_lies() -> io::Result<()> {
    for fault in [Fault::FailedSync, Fault::Eio, Fault::Enospc] {
        for model in Crash::ALL {
            let disk = disk_with(0, Some(OLD))?;
            disk.write_new("d/name", NEW)?;
            disk.fail_at(disk.calls(), fault, false);
            assert!(disk.sync_file("d/name").is_err());
            disk.sync_file("d/name")?;
            assert_eq!(disk.read("d/name")?, NEW, "still in the cache");
            disk.reopen(model);
            let emptied = model == Crash::RenameFirst;
            assert_eq!(disk.read("d/name")?, if emptied { b"" } else { OLD });

            disk.write_new("d/name", NEW)?;
            disk.sync_file("d/name")?;
            disk.reopen(model);
            assert_eq!(disk.read("d/name")?, NEW, "written anew, it is durable");
        }
    }
    Ok(())
}

#[test]
fn after_a_failed_sync_of_a_directory_its_changes_are_lost() -> io::Result<()> {
    for model in Crash::ALL {
        let disk = disk_with(0, Some(OLD))?;
        disk.rename("d/name", "d/moved")?;
        disk.fail_at(disk.calls(), Fault::FailedSync, false);
        assert!(disk.sync_dir("d").is_err());
        disk.sync_dir("d")?;
        assert_eq!(disk.files(), ["d/moved"]);
        disk.reopen(model);
        assert_eq!(disk.files(), ["d/name"]);
    }
    Ok(())
}

#[test]
fn a_sync_that_never_began_can_be_tried_again() -> io::Result<()> {
    for fault in [Fault::Eacces, Fault::Emfile] {
        let disk = disk_with(0, Some(OLD))?;
        disk.write_new("d/name", NEW)?;
        disk.fail_at(disk.calls(), fault, false);
        assert!(disk.sync_file("d/name").is_err());
        disk.sync_file("d/name")?;
        disk.reopen(Crash::Lost);
        assert_eq!(disk.read("d/name")?, NEW);
    }
    Ok(())
}

#[test]
fn a_partial_read_and_a_stale_listing_look_like_success() -> io::Result<()> {
    let disk = disk_with(0, Some(OLD))?;
    disk.write_new("d/other", b"")?;
    disk.rename("d/name", "d/moved")?;
    let start = disk.calls();
    disk.fail_at(start, Fault::PartialRead, false);
    disk.fail_at(start + 2, Fault::StaleListing, false);
    assert_eq!(disk.read("d/moved")?, OLD[..OLD.len() / 2]);
    assert_eq!(disk.read("d/moved")?, OLD);
    assert_eq!(names(&disk, "d")?, ["name", "other"]);
    assert_eq!(names(&disk, "d")?, ["moved", "other"]);
    Ok(())
}

#[test]
fn bit_rot_is_durable_and_uncounted() -> io::Result<()> {
    let disk = disk_with(0, Some(OLD))?;
    let (handle, calls) = (disk.clone(), disk.calls());
    handle.corrupt("d/name", |bytes| bytes[0] ^= 1)?;
    assert_eq!(disk.calls(), calls);
    disk.reopen(Crash::Lost);
    assert_eq!(disk.read("d/name")?[0], OLD[0] ^ 1);
    Ok(())
}

/// Checks that `d/name` holds all of the old or all of the new, and that what
/// was promised is there.
fn old_or_new(disk: &SimDisk, old: Option<&[u8]>, promised: bool, case: &str) -> io::Result<()> {
    let found = content(disk, "d/name")?;
    let new = found.as_deref() == Some(NEW);
    assert!(new || (found.as_deref() == old && !promised), "{case}");
    Ok(())
}

#[test]
fn publish_is_all_or_nothing_wherever_power_fails() -> io::Result<()> {
    let calls = {
        let disk = disk_with(0, Some(OLD))?;
        let start = disk.calls();
        publish(&disk, "d", "name", NEW)?;
        disk.calls() - start
    };
    assert_eq!(calls, 4);
    for (old, model) in [None, Some(OLD)]
        .into_iter()
        .flat_map(|old| Crash::ALL.map(|m| (old, m)))
    {
        for (seed, n) in SEEDS.flat_map(|seed| (0..=calls).map(move |n| (seed, n))) {
            let case = format!("{model:?}, seed {seed}, power lost at call {n}");
            let disk = disk_with(seed, old)?;
            disk.crash_at(disk.calls() + n);
            let promised = publish(&disk, "d", "name", NEW).is_ok();
            assert_eq!(promised, n == calls, "{case}");
            disk.reopen(model);
            old_or_new(&disk, old, promised, &case)?;

            publish(&disk, "d", "name", NEW)?;
            disk.reopen(Crash::Lost);
            old_or_new(&disk, old, true, &case)?;
            assert_eq!(disk.files(), ["d/name"], "{case}");
        }
    }
    Ok(())
}

#[test]
fn publish_is_all_or_nothing_whatever_call_fails_and_power_after_it() -> io::Result<()> {
    for (fault, model) in Fault::ALL
        .into_iter()
        .flat_map(|f| Crash::ALL.map(|m| (f, m)))
    {
        for (n, permanent) in (0..4).flat_map(|n| [(n, false), (n, true)]) {
            // The crash falls on each call after the fault, and on none.
            for (crash, seed) in (n + 1..7).flat_map(|crash| (0..8).map(move |s| (crash, s))) {
                let case = format!("{fault:?} at {n} ({permanent}), {model:?} at {crash}, {seed}");
                let disk = disk_with(seed, Some(OLD))?;
                let start = disk.calls();
                disk.fail_at(start + n, fault, permanent);
                disk.crash_at(start + crash);
                assert!(publish(&disk, "d", "name", NEW).is_err(), "{case}");
                if !disk.crashed() && !permanent {
                    assert_eq!(disk.files(), ["d/name"], "{case}");
                }
                disk.reopen(model);
                old_or_new(&disk, Some(OLD), false, &case)?;
                publish(&disk, "d", "name", NEW)?;
                disk.reopen(Crash::Lost);
                old_or_new(&disk, Some(OLD), true, &case)?;
            }
        }
    }
    Ok(())
}

#[test]
fn publishing_again_after_any_fault_keeps_its_promise() -> io::Result<()> {
    for (fault, n) in Fault::ALL
        .into_iter()
        .flat_map(|f| (0..4).map(move |n| (f, n)))
    {
        for (model, seed) in Crash::ALL
            .into_iter()
            .flat_map(|m| SEEDS.map(move |s| (m, s)))
        {
            let disk = disk_with(seed, Some(OLD))?;
            disk.fail_at(disk.calls() + n, fault, false);
            assert!(publish(&disk, "d", "name", b"tried").is_err());
            publish(&disk, "d", "name", NEW)?;
            disk.reopen(model);
            old_or_new(
                &disk,
                Some(OLD),
                true,
                &format!("{fault:?} {n} {model:?} {seed}"),
            )?;
        }
    }
    Ok(())
}

/// The models must have teeth: each careless way to publish is caught by one.
#[test]
fn careless_ways_to_publish_are_caught() -> io::Result<()> {
    type Way = fn(&SimDisk) -> io::Result<()>;
    let in_place: Way = |disk| {
        disk.write_new("d/name", NEW)?;
        disk.sync_file("d/name")
    };
    let never_synced: Way = |disk| {
        disk.write_new("d/temp", NEW)?;
        disk.rename("d/temp", "d/name")?;
        disk.sync_dir("d")
    };
    let name_not_synced: Way = |disk| {
        disk.write_new("d/temp", NEW)?;
        disk.sync_file("d/temp")?;
        disk.rename("d/temp", "d/name")
    };
    for way in [in_place, never_synced, name_not_synced] {
        let mut caught = false;
        for (model, seed) in Crash::ALL
            .into_iter()
            .flat_map(|m| SEEDS.map(move |s| (m, s)))
        {
            for n in 0..4 {
                let disk = disk_with(seed, Some(OLD))?;
                disk.crash_at(disk.calls() + n);
                let promised = way(&disk).is_ok();
                disk.reopen(model);
                let found = disk.read("d/name")?;
                caught |= found != NEW && (promised || found != OLD);
            }
        }
        assert!(caught);
    }
    Ok(())
}

#[test]
fn a_fork_goes_its_own_way_and_a_healed_disk_goes_on() -> io::Result<()> {
    let disk = disk_with(1, Some(OLD))?;
    disk.fail_at(disk.calls(), Fault::Eio, true);
    let fork = disk.fork();
    disk.heal();
    publish(&disk, "d", "name", NEW)?;
    assert!(fork.read("d/name").is_err());
    fork.heal();
    assert_eq!(fork.read("d/name")?, OLD);
    assert_eq!(disk.read("d/name")?, NEW);
    Ok(())
}
