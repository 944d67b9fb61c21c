use chrono::DateTime;
use object_store::path::Path;

use super::*;

/// A file of this size, changed so many milliseconds after 1970.
fn file(path: &str, size: u64, modified_ms: i64) -> ObjectMeta {
    ObjectMeta {
        location: Path::from(path),
        last_modified: DateTime::from_timestamp_millis(modified_ms).unwrap(),
        size,
        e_tag: None,
        version: None,
    }
}

fn done(position: &FilePosition) -> Vec<(&str, u64)> {
    let mut done: Vec<_> = position.done.iter().collect();
    done.sort_by_key(|(path, _)| *path);
    done.into_iter()
        .map(|(path, identity)| (path, identity.size))
        .collect()
}

fn begun(position: &FilePosition) -> Option<(&str, u64)> {
    let begun = position.begun.as_ref();
    begun.map(|begun| (begun.path.as_str(), begun.rows))
}

fn paths(files: &VecDeque<ObjectMeta>) -> Vec<&str> {
    files.iter().map(|file| file.location.as_ref()).collect()
}

/// The time line of the module's header.
fn four_files() -> Track {
    let mut track = Track::new(FilePosition::default());
    for (path, start, end) in [("a", 0, 4), ("b", 4, 4), ("c", 4, 9)] {
        track.begin(&file(path, 10, 1), start);
        track.end(end);
    }
    track.begin(&file("d", 10, 1), 9);
    track
}

#[test]
fn a_position_falls_between_files_and_into_them() {
    let mut track = four_files();
    let expected: [(u64, &[&str], _); 5] = [
        (0, &[], None),
        (3, &[], Some(("a", 3))),
        (4, &["a", "b"], None),
        (6, &["a", "b"], Some(("c", 2))),
        (10, &["a", "b", "c"], Some(("d", 1))),
    ];
    for (rows, ended, taken) in expected {
        let position = track.position(rows);
        let names: Vec<&str> = done(&position).into_iter().map(|(path, _)| path).collect();
        assert_eq!((names.as_slice(), begun(&position)), (ended, taken));
    }
}

#[test]
fn a_begun_file_goes_on_where_it_was() {
    let from = four_files().position(6);
    let mut track = Track::new(from.clone());
    assert_eq!(track.position(0), from);
    let listed = vec![
        file("e", 1, 0),
        file("d", 1, 2),
        file("c", 10, 1),
        file("a", 10, 1),
    ];
    assert_eq!(track.lost(&listed), None);
    assert_eq!(paths(&track.unread(listed)), ["c", "e", "d"]);
    assert_eq!((track.before("c"), track.before("d")), (2, 0));
    track.begin(&file("c", 10, 1), 0);
    assert_eq!(track.untouched(0), Some(2));
    assert_eq!(begun(&track.position(0)), Some(("c", 2)));
    assert_eq!(begun(&track.position(1)), Some(("c", 3)));
    track.end(3);
    let position = track.position(3);
    assert_eq!(done(&position), [("a", 10), ("b", 10), ("c", 10)]);
    assert_eq!(position.begun, None);
}

#[test]
fn a_begun_file_that_is_not_there_as_it_was_is_lost() {
    let mut track = Track::new(four_files().position(6));
    let lost = |track: &Track, files: &[ObjectMeta]| track.lost(files).map(|(_, lost)| lost);
    assert_eq!(lost(&track, &[]), Some(Lost::Gone));
    assert_eq!(lost(&track, &[file("c", 11, 1)]), Some(Lost::Changed));
    assert_eq!(lost(&track, &[file("c", 10, 2)]), Some(Lost::Changed));
    // Once it is open it may grow: the reader knows what it reads.
    track.begin(&file("c", 10, 1), 0);
    assert_eq!(lost(&track, &[file("c", 11, 1)]), None);
}

#[test]
fn a_file_that_was_read_and_is_not_listed_is_gone() {
    // `c` was begun: whether it is lost is asked apart.
    let track = Track::new(four_files().position(6));
    let listed = [file("a", 10, 1), file("b", 10, 1)];
    assert_eq!(track.gone(&listed), None);
    assert_eq!(track.gone(&listed[..1]), Some("b".to_owned()));
    let nothing = FileIdentity {
        size: 0,
        modified_ms: 1,
    };
    let empty = [("e".to_owned(), nothing)].into_iter();
    let track = Track::new(FilePosition::default().with_done(empty));
    assert_eq!(track.gone(&[]), None);
}

#[test]
fn each_change_of_a_file_that_was_read_is_told_once() {
    let mut track = four_files();
    track.end(12);
    // Before a position is asked for, and after.
    assert_eq!(track.changed(&[file("a", 10, 1)]), Vec::<String>::new());
    assert_eq!(track.changed(&[file("a", 11, 1)]), ["a"]);
    let earlier = track.position(12);
    let steps: [(ObjectMeta, &[&str]); 4] = [
        (file("a", 11, 1), &[]),
        (file("a", 11, 2), &["a"]),
        (file("a", 11, 2), &[]),
        (file("new", 1, 1), &[]),
    ];
    for (now, told) in steps {
        assert_eq!(track.changed(std::slice::from_ref(&now)), told);
    }
    assert!(track.unread(vec![file("a", 11, 2)]).is_empty());
    // A position remembers what was told.
    let position = track.position(12);
    let since: Vec<String> = position
        .done_since(Some(&earlier))
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(since, ["a"]);
    let mut again = Track::new(position);
    assert!(again.changed(&[file("a", 11, 2)]).is_empty());
}

#[test]
fn a_file_that_is_passed_over_is_listed_again() {
    let mut track = Track::new(FilePosition::default());
    track.begin(&file("a", 1, 1), 0);
    assert_eq!(track.untouched(0), Some(0));
    assert_eq!(track.untouched(1), None);
    track.pass_over();
    assert_eq!(track.position(0), FilePosition::default());
    assert_eq!(paths(&track.unread(vec![file("a", 1, 1)])), ["a"]);
}
