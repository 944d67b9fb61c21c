//! From numbers of colours to classes of a style sheet.
//!
//! The colours are those of Okabe and Ito, which people who see colours otherwise can tell apart; what is late has
//! another form as well, and what is open is hatched.

use std::collections::{BTreeMap, VecDeque};

use plotters::prelude::RGBColor;

/// What something in a picture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// The background.
    Ground,
    /// Text.
    Ink,
    /// Text that is less in need of being read.
    Soft,
    /// An axis.
    Axis,
    /// A line that leads the eye to an axis.
    Grid,
    /// A row.
    Row,
    /// The event times of an epoch.
    Band,
    /// Their mean.
    Mean,
    /// The watermark.
    Watermark,
    /// What is before the watermark.
    Past,
    /// A late row.
    Late,
    /// The rows that a window lost.
    Lost,
    /// A window that has closed.
    Closed,
    /// What it holds.
    Bar,
    /// A window that is open.
    Open,
    /// The epochs that are drawn, among all.
    Drawn,
}

/// Roles with their classes, and how they look in light and in dark.
const ROLES: [(Role, &str, &str, &str); 16] = [
    (Role::Ground, "ground", "fill:#ffffff", "fill:#15181c"),
    (Role::Ink, "ink", "fill:#1c2126", "fill:#e8eaed"),
    (Role::Soft, "soft", "fill:#5a636d", "fill:#a3acb6"),
    (Role::Axis, "axis", "stroke:#8b949e", "stroke:#6b747e"),
    (Role::Grid, "grid", "stroke:#e9ecef", "stroke:#272c32"),
    (Role::Row, "row", "fill:#0072b2", "fill:#56b4e9"),
    (Role::Band, "band", "fill:#0072b2", "fill:#56b4e9"),
    (Role::Mean, "mean", "stroke:#0072b2", "stroke:#56b4e9"),
    (
        Role::Watermark,
        "watermark",
        "stroke:#d08700",
        "stroke:#f0b429",
    ),
    (Role::Past, "past", "fill:#8b949e", "fill:#000000"),
    (Role::Late, "late", "fill:#c8321f", "fill:#ff7a5c"),
    (Role::Lost, "lost", "fill:#c8321f", "fill:#ff7a5c"),
    (Role::Bar, "bar", "fill:#009e73", "fill:#2cc295"),
    (Role::Closed, "closed", "fill:#009e73", "fill:#2cc295"),
    (Role::Open, "open", "fill:url(#hatch)", "fill:url(#hatch)"),
    (Role::Drawn, "drawn", "fill:#0072b2", "fill:#56b4e9"),
];

/// What does not change with light and dark.
const COMMON: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Noto Sans',sans-serif;\
font-variant-numeric:tabular-nums}\
.row{fill-opacity:.6}.band{fill-opacity:.22}.past{fill-opacity:.07}.closed{fill-opacity:.2}.bar{fill-opacity:.55}\
.drawn{fill-opacity:.14}.watermark{stroke-linejoin:round}\
.late{stroke-width:5;paint-order:stroke}\
.closed:hover,.bar:hover{fill-opacity:.8}.open:hover{opacity:.7}\
.hatch{stroke-width:9;stroke-opacity:.75}.hatched{fill-opacity:.12}";

/// What has two roles: the hatching, and the rim that keeps late rows apart.
const LIGHT: &str = ".hatch{stroke:#009e73}.hatched{fill:#009e73}.late{stroke:#ffffff}";
const DARK: &str = ".hatch{stroke:#2cc295}.hatched{fill:#2cc295}.late{stroke:#15181c}";

impl Role {
    /// The colour that stands for the role while it is drawn.
    pub(super) fn colour(self) -> RGBColor {
        RGBColor(0, 0, self.number())
    }

    fn number(self) -> u8 {
        let at = ROLES.iter().position(|(role, ..)| *role == self);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
    }
}

/// The style sheet of a picture.
pub(super) fn sheet() -> String {
    let rules = |dark: bool| -> String {
        let rules = ROLES.iter().map(|(_, class, light, other)| {
            format!(".{class}{{{}}}", if dark { other } else { light })
        });
        rules.collect()
    };
    format!(
        "{COMMON}{}{LIGHT}@media(prefers-color-scheme:dark){{{}{DARK}}}",
        rules(false),
        rules(true)
    )
}

/// Turns the numbers of colours into classes, and gives titles, by role in the order in which they were drawn.
pub(super) fn classes(drawn: &str, mut titles: BTreeMap<Role, VecDeque<Option<String>>>) -> String {
    let mut text = String::with_capacity(drawn.len());
    for line in drawn.lines() {
        let mut element = line
            .replace(" opacity=\"1\"", "")
            .replace(" stroke=\"none\"", "")
            .replace(" stroke-width=\"1\"", "");
        for (role, class, ..) in ROLES {
            let colour = format!("\"#{:06X}\"", role.number());
            let named = format!("class=\"{class}\"");
            let found = element.contains(&colour);
            element = element.replace(&format!("fill={colour}"), &named);
            element = element.replace(&format!("stroke={colour}"), &named);
            if found && let Some(titles) = titles.get_mut(&role) {
                element = titled(element, titles.pop_front().flatten());
            }
        }
        text.push_str(&element);
        text.push('\n');
    }
    text
}

/// An element with a title in it.
fn titled(element: String, title: Option<String>) -> String {
    let name: String = element
        .trim_start_matches('<')
        .chars()
        .take_while(|char| char.is_ascii_alphabetic())
        .collect();
    match (title, element.strip_suffix("/>")) {
        (Some(title), Some(open)) => format!("{open}><title>{}</title></{name}>", escaped(&title)),
        _ => element,
    }
}

/// A text as XML and HTML have it.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Other control characters cannot be in XML, by whatever name.
            char if char.is_control() && !matches!(char, '\n' | '\t') => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_a_class_of_its_own() {
        for (at, (role, ..)) in ROLES.iter().enumerate() {
            assert_eq!(usize::from(role.number()), at);
        }
    }

    #[test]
    fn titles_are_given_in_order() {
        let drawn = "<polygon opacity=\"1\" fill=\"#00000A\" points=\"1,2 \"/>\n\
                     <rect fill=\"#00000A\" stroke=\"none\"/>\n";
        let titles = VecDeque::from([Some("a < b".to_owned()), None]);
        let text = classes(drawn, BTreeMap::from([(Role::Late, titles)]));
        assert_eq!(
            text,
            "<polygon class=\"late\" points=\"1,2 \"><title>a &lt; b</title></polygon>\n\
             <rect class=\"late\"/>\n"
        );
    }
}
