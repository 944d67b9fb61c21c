//! A page around a picture.

use super::super::axis::{second, stretch};
use super::super::model::{LateMark, Picture};
use super::super::words::{grouped, missed, short};
use super::style::escaped;

/// Lines of a table: more are not read.
const MOST: usize = 100;

/// How the page looks, in light and dark.
const SHEET: &str = "\
:root{color-scheme:light dark;--ground:#fff;--ink:#1c2126;--soft:#5a636d;--line:#e1e5e9}\
@media(prefers-color-scheme:dark){:root{--ground:#15181c;--ink:#e8eaed;--soft:#a3acb6;--line:#2c3238}}\
*{box-sizing:border-box}\
body{margin:0;background:var(--ground);color:var(--ink);\
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Noto Sans',sans-serif;\
font-variant-numeric:tabular-nums}\
main{max-width:1248px;margin:0 auto;padding:28px 24px 56px}\
h1{font-size:26px;line-height:1.25;margin:0 0 4px}h2{font-size:17px;margin:32px 0 8px}\
p{margin:0;color:var(--soft)}figure{margin:8px 0 0;overflow-x:auto}\
figure svg{display:block;width:100%;min-width:720px;height:auto}\
.tables{display:flex;flex-wrap:wrap;gap:0 56px}.tables section{flex:1 1 420px;overflow-x:auto}\
table{border-collapse:collapse;width:100%}\
th{font-weight:600;text-align:left;color:var(--soft);font-size:13px}\
th,td{padding:5px 16px 5px 0;border-bottom:1px solid var(--line);white-space:nowrap}\
th:last-child,td:last-child{padding-right:0}.number{text-align:right}";

/// The page with a picture.
pub(super) fn page(picture: &Picture, svg: &str) -> String {
    let name = escaped(&picture.name);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{name}: watermark and late rows</title>\n<style>{SHEET}</style>\n</head>\n<body>\n<main>\n\
         <h1>{name}</h1>\n<p>{}</p>\n<figure>\n{svg}</figure>\n{}</main>\n</body>\n</html>\n",
        escaped(&picture.facts()),
        tables(picture)
    )
}

/// What the late rows are, in words.
fn tables(picture: &Picture) -> String {
    let marks = &picture.late.marks;
    if marks.is_empty() {
        return String::new();
    }
    let windows: Vec<[String; 3]> = missed(marks)
        .into_iter()
        .map(|((begin, end), rows, by)| [stretch(begin, end), grouped(rows), short(by)])
        .collect();
    let mut latest: Vec<&LateMark> = marks.iter().collect();
    latest.sort_by_key(|mark| (std::cmp::Reverse(mark.by), mark.epoch));
    let rows: Vec<[String; 4]> = latest
        .into_iter()
        .map(|mark| {
            let time = second(mark.point.time);
            [
                time,
                mark.epoch.to_string(),
                second(mark.watermark),
                short(mark.by),
            ]
        })
        .collect();
    let mut text = String::from("<div class=\"tables\">\n");
    if !windows.is_empty() {
        let heads = [
            ("window", false),
            ("late rows", true),
            ("missed by up to", true),
        ];
        text.push_str(&table("Windows that missed rows", heads, &windows));
    }
    let heads = [
        ("event time", false),
        ("epoch", true),
        ("watermark", false),
        ("missed by", true),
    ];
    text.push_str(&table("Late rows, the latest first", heads, &rows));
    text.push_str("</div>\n");
    text
}

fn table<const N: usize>(title: &str, heads: [(&str, bool); N], rows: &[[String; N]]) -> String {
    let cell = |tag: &str, text: &str, number: bool| {
        let class = if number { " class=\"number\"" } else { "" };
        format!("<{tag}{class}>{}</{tag}>", escaped(text))
    };
    let mut text = format!("<section>\n<h2>{title}</h2>\n<table>\n<thead><tr>");
    heads
        .iter()
        .for_each(|(head, number)| text.push_str(&cell("th", head, *number)));
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in rows.iter().take(MOST) {
        text.push_str("<tr>");
        for (value, (_, number)) in row.iter().zip(heads) {
            text.push_str(&cell("td", value, number));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table>\n");
    if rows.len() > MOST {
        let rest = grouped((rows.len() - MOST) as u64);
        text.push_str(&format!("<p>and {rest} more</p>\n"));
    }
    text.push_str("</section>\n");
    text
}
