//! FROM of any kind, and the clause in any place.

use super::wild::Wild;

/// Event times of the clause.
const EVENT_TIMES: &str = "ts|ts|ts|ts|ts|TS|\"ts\"|ts /* when */";

/// Event times that a SELECT above does not know by their usual name, or that cannot be.
const ODD_EVENT_TIMES: &str = "t.ts|a.ts|et|ts + INTERVAL '1 hour' AS et|ts - INTERVAL '1' DAY et|\
    CAST(k AS TIMESTAMP) AS et|to_timestamp_seconds(v) AS et|date_trunc('minute', ts) AS et|ts AS k|k|window|w|\
    window_time(window) AS et|(SELECT max(ts) FROM u) AS et|watermark|delay||CASE WHEN v > 1 THEN ts END AS et|\
    now() AS et|NULL AS et|ts AS ts|ts + INTERVAL '1 hour' AS \"Event Time\"|window(ts, '1 hour').start AS et|\
    CAST(ts AS DATE) AS et|sum(v) AS et|ts AT TIME ZONE 'UTC' AS et|1|*|lag(ts) OVER () AS et";

/// Delays.
const DELAYS: &str = "INTERVAL 10 MINUTES|INTERVAL 10 MINUTES|INTERVAL '1 hour'|INTERVAL '1' HOUR|INTERVAL 0 SECONDS|\
    INTERVAL '1 day 2 hours'|INTERVAL 10 MINUTES 30 SECONDS|INTERVAL '1 microsecond'|INTERVAL 400 DAYS";

/// Delays that cannot be.
const ODD_DELAYS: &str = "INTERVAL '-1' HOUR|INTERVAL 1 MONTH|INTERVAL '01:30' HOUR TO MINUTE|\
    INTERVAL '99999999999999999999' DAY|INTERVAL 300000 DAYS|v||INTERVAL|INTERVAL '1 nanosecond'|INTERVAL 'soon'|\
    INTERVAL -1 SECOND|INTERVAL 1|INTERVAL ts|INTERVAL '1e400 days'|INTERVAL 1.5 HOURS|INTERVAL '' DAY";

/// Relations that are no stream, or not of the usual columns.
const OTHERS: &str = "UNNEST(make_array(TIMESTAMP '2026-01-01T00:10:00'))|generate_series(0, 5)|range(0, 3)|\
    (VALUES (TIMESTAMP '2026-01-01T00:10:00', 'k1', 1))|names|emitted('st')|progress('st')|nothing|words|\
    STREAM nothing|STREAM words|STREAM names|STREAM(SELECT * FROM t)|STREAM generate_series(0, 3)|information_schema.tables";

impl Wild<'_> {
    /// What stands behind FROM.
    pub(super) fn from(&mut self, depth: usize) -> String {
        let first = self.item(depth);
        match self.rng.size(0, 15) {
            0 => format!("{first}, {}", self.item(depth)),
            1..=3 => self.joined(&first, depth),
            4 => format!("{first} CROSS JOIN UNNEST(make_array(1, 2)) AS list (one)"),
            _ => first,
        }
    }

    fn joined(&mut self, first: &str, depth: usize) -> String {
        let how = self.either(
            "JOIN|JOIN|LEFT JOIN|LEFT SEMI JOIN|LEFT ANTI JOIN",
            "RIGHT JOIN|FULL JOIN|RIGHT SEMI JOIN|CROSS JOIN|NATURAL JOIN|CROSS JOIN LATERAL|RIGHT ANTI JOIN",
        );
        let second = match self.either("names|names|names AS nm", "STREAM u|u|item|nothing") {
            "item" => self.item(depth),
            other => other.to_owned(),
        };
        let on = match how {
            "CROSS JOIN" | "NATURAL JOIN" | "CROSS JOIN LATERAL" => "",
            _ => self.either(
                " ON k = code| ON v = weight| ON v < weight AND k = code| ON true",
                " USING (k)| USING (window)| ON a.window = b.window| ON ts = 1| ON window(ts, '1 hour') = weight",
            ),
        };
        if self.rng.one_in(3) {
            format!("{second} {how} {first}{on}")
        } else {
            format!("{first} {how} {second}{on}")
        }
    }

    /// A relation with what may stand behind it.
    fn item(&mut self, depth: usize) -> String {
        let place = self.rng.size(0, 15);
        let relation = match place {
            0 if depth > 0 => {
                let first = self.item(depth - 1);
                format!("({})", self.joined(&first, depth - 1))
            }
            1..=5 if depth > 0 => format!("({})", self.query(depth - 1)),
            6 => self.named(),
            7 => format!("STREAM({})", self.named()),
            8 => format!("(STREAM {})", self.named()),
            _ => format!("STREAM {}", self.named()),
        };
        let relation = match self.either("", "other|") {
            "other" => self.one(OTHERS).to_owned(),
            _ => relation,
        };
        let options = self.either(
            "||||| WITH (max_rows_per_epoch = 5)",
            " WITH (epoch_by = 'k')| WITH (epoch_by = 'nope', epoch_by = 3)| WITH ()",
        );
        let options = if place > 5 { options } else { "" };
        // A query below may have its clause already.
        let clause = match self.rng.size(0, 9) {
            0 => String::new(),
            1..=6 if place <= 5 => String::new(),
            _ => self.clause(),
        };
        let alias = self.either(
            "|||| AS a| a| AS b| AS \"Two words\"",
            " AS a (ts, k, v, d)| AS a (ts, k)| AS window| AS watermark| AS stream| delay",
        );
        match self.either("", "0|1|2|3") {
            "0" => format!("{relation}{options}{alias}{clause}"),
            "1" => format!("{relation}{clause}{options}{alias}"),
            "2" => format!("{relation}{clause}{clause}{alias}"),
            "3" => format!("{relation} TABLESAMPLE (50 PERCENT){clause}{alias}"),
            _ => format!("{relation}{options}{clause}{alias}"),
        }
    }

    /// The name of a table or a view.
    fn named(&mut self) -> String {
        if !self.relations.is_empty() && self.rng.one_in(2) {
            let place = self.rng.size(0, self.relations.len() - 1);
            return self.relations[place].clone();
        }
        let name = self.either(
            "t|t|t|u|T|public.t|\"t\"",
            "nowhere|st|datafusion.public.t|t.t|1",
        );
        name.to_owned()
    }

    /// The clause, whole or not.
    fn clause(&mut self) -> String {
        let keyword = self.one(" WATERMARK| WATERMARK| watermark| /* a */ WATERMARK -- b\n");
        let time = self.either(EVENT_TIMES, ODD_EVENT_TIMES);
        let delay = self.either(DELAYS, ODD_DELAYS);
        let of = self.either(" DELAY OF | delay\nof ", " DELAY | | DELAY OF OF ");
        format!("{keyword} {time}{of}{delay}")
    }
}
