use std::collections::BTreeMap;

use super::super::samples::{epoch, steady};
use super::*;

/// Elements by class, of a document whose tags are all closed in order.
fn elements(svg: &str) -> BTreeMap<String, usize> {
    let mut open: Vec<&str> = Vec::new();
    let mut classes = BTreeMap::new();
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').map(|end| at + end).unwrap();
        let tag = &rest[at + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            let name = tag.split([' ', '/']).next().unwrap();
            if !tag.ends_with('/') {
                open.push(name);
            }
            if let Some((_, class)) = tag.split_once("class=\"") {
                let class = class.split('"').next().unwrap().to_owned();
                *classes.entry(class).or_default() += 1;
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    classes
}

#[test]
fn the_document_has_the_staircase_all_late_rows_and_both_schemes() {
    let picture = steady(24);
    let svg = picture.to_svg().unwrap();
    let classes = elements(&svg);
    // One more is in the legend.
    assert_eq!(classes["late"], picture.late.marks.len() + 1);
    // Those are the staircase, the arrow at its end and the sign of the legend.
    assert_eq!(classes["watermark"], 3);
    assert!(classes["row"] >= 240 && classes["closed"] > 10 && classes["open"] > 3);
    assert!(svg.contains("@media(prefers-color-scheme:dark)"));
    assert_eq!(svg.matches("its window").count(), picture.late.marks.len());
    assert!(!svg.contains("\"#0000"), "every number has become a class");
}

#[test]
fn names_are_texts_and_no_markup() {
    let picture = Picture {
        name: "<a & \"b\"\u{7}>".to_owned(),
        ..steady(3)
    };
    elements(&picture.to_svg().unwrap());
    let page = picture.to_html().unwrap();
    assert!(page.contains("<h1>&lt;a &amp; &quot;b&quot;\u{fffd}&gt;</h1>"));
}

#[test]
fn the_page_lists_what_was_missed() {
    let page = steady(24).to_html().unwrap();
    assert!(page.contains("<h2>Windows that missed rows</h2>"));
    assert!(page.contains("<td class=\"number\">2 h</td>"));
    assert!(page.contains("color-scheme:light dark"));
    assert!(
        !page.contains("http://") || page.matches("http").count() == 1,
        "nothing is fetched"
    );
}

#[test]
fn what_has_not_run_and_what_has_no_time_are_pages_too() {
    let without_time = Picture {
        epochs: vec![epoch(0, None, None)],
        ..Picture::default()
    };
    for picture in [Picture::default(), without_time, steady(1)] {
        elements(&picture.to_svg().unwrap());
        assert!(picture.to_html().unwrap().ends_with("</html>\n"));
    }
}

#[test]
fn thousands_of_epochs_stay_a_small_file() {
    let mut picture = steady(10_000);
    picture.rows = Rows::Bands {
        because: "there are many".to_owned(),
    };
    picture.late.marks.truncate(2000);
    picture.windows.clear();
    let svg = picture.to_svg().unwrap();
    assert!(svg.len() < 6_000_000, "{}", svg.len());
}
