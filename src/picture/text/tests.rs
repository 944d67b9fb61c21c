use super::super::model::{EpochMark, Point};
use super::super::samples::{epoch, hours, steady};
use super::*;
use crate::time::Instant;

fn widths(text: &str) -> usize {
    text.lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for picture in [
        Picture::default(),
        steady(1),
        steady(3),
        steady(40),
        steady(3000),
    ] {
        for width in [36, 40, 60, 80, 120, 160, 200] {
            let text = picture.to_text(width, false);
            assert!(widths(&text) <= width, "{width}:\n{text}");
            assert!(!text.contains('\u{1b}'));
        }
        assert_eq!(picture.to_text(1, false), picture.to_text(36, false));
    }
}

#[test]
fn late_rows_and_the_staircase_are_drawn() {
    let text = steady(20).to_text(80, false);
    println!("{text}");
    assert!(text.contains('×') && text.contains('┘') && text.contains('┌'));
    assert!(text.contains("20 late rows, missed by up to 2 h"));
    assert!(text.contains("3 open windows with "));
}

#[test]
fn a_table_that_has_not_run_says_so() {
    let picture = Picture {
        name: "hourly".to_owned(),
        ..Picture::default()
    };
    assert_eq!(
        picture.to_text(80, false),
        "hourly  no epoch\nnothing has been read\n"
    );
}

#[test]
fn rows_without_a_time_leave_an_epoch_without_a_field() {
    let picture = Picture {
        name: "nulls".to_owned(),
        epochs: vec![epoch(0, None, None)],
        overview: (0, vec![0]),
        ..Picture::default()
    };
    let text = picture.to_text(80, false);
    assert_eq!(
        text,
        "nulls  its only epoch\n10 rows · no row came too late\n"
    );
}

#[test]
fn bands_stand_for_rows_that_cannot_be_read() {
    let picture = Picture {
        epochs: (0..5).map(|at| epoch(at, None, Some(at.into()))).collect(),
        rows: Rows::Bands {
            because: "their files have gone".to_owned(),
        },
        ..Picture::default()
    };
    let text = picture.to_text(80, false);
    assert!(text.contains("Rows are not drawn: their files have gone."));
    assert!(text.contains("⡇ least to greatest event time of an epoch"));
    assert!(
        text.lines()
            .filter(|line| line.contains('⡇') || line.contains('⢸'))
            .count()
            > 5
    );
}

#[test]
fn far_dates_are_drawn() {
    let at = |days: i128| Instant::from_nanos(days * 86_400_000_000_000);
    // 1900-01-01 and 2262-04-11.
    let points = [-25_567, 0, 106_751].map(|days| Point {
        at: 0.5,
        time: at(days),
    });
    let picture = Picture {
        epochs: vec![EpochMark {
            before: Some(at(-25_567)),
            ..epoch(0, None, Some(0))
        }],
        rows: Rows::Sampled {
            every: 1,
            points: points.to_vec(),
        },
        ..Picture::default()
    };
    let text = picture.to_text(80, false);
    assert!(text.contains("2000 ┤") && text.contains("2200 ┤"), "{text}");
}

#[test]
fn bars_are_to_the_eighth() {
    assert_eq!(bar(1.0, 3), "███");
    assert_eq!(bar(0.5, 3), "█▌");
    assert_eq!(bar(0.0001, 3), "▏");
    assert_eq!(bar(0.0, 3), "");
}

#[test]
fn a_stretch_is_shown_in_the_whole() {
    let mut picture = steady(40);
    picture.epochs.drain(..30);
    let text = picture.to_text(80, false);
    assert!(text.starts_with("steady  epochs 30–39 of 40\n"), "{text}");
    assert!(text.contains("late rows in epochs 0–39"));
    assert!(text.contains("━━━━━━━━━━\n"));
    assert_eq!(hours(0), Instant::from_nanos(0));
}
