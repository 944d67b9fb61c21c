//! Settings with a few values.

use std::fmt;
use std::str::FromStr;

/// An enumeration that a setting takes by its values' names.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub enum $name { $($(#[$value_doc])* $value),+ }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $(if text.eq_ignore_ascii_case($text) {
                    return Ok(Self::$value);
                })+
                Err(format!("the values are {}", [$($text),+].join(", ")))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$value => $text),+ })
            }
        }

    };
}

choice! {
    /// What of its groups a query emits, and when.
    OutputMode {
        /// A group once, at the end of the first epoch whose watermark has passed its window's end.
        #[default]
        Append = "append",
        /// The groups that an epoch touched, at its end.
        Update = "update",
        /// Every group, at every epoch's end; nothing is late and nothing is evicted.
        Complete = "complete",
    }
}

choice! {
    /// Which watermark a query with several clauses has.
    WatermarkPolicy {
        /// The least: an input that has seen nothing holds it.
        #[default]
        Min = "min",
        /// The greatest.
        Max = "max",
    }
}

choice! {
    /// What an ad-hoc query does when its input ends.
    EndOfInput {
        /// It closes every window.
        #[default]
        Close = "close",
        /// It ends without closing.
        Hold = "hold",
    }
}

choice! {
    /// In which order a query reads what a source holds when it first starts.
    InitialOrder {
        /// In order of arrival, as everything behind it.
        #[default]
        Arrival = "arrival",
        /// In order of event time, a stretch of it an epoch; then by arrival.
        EventTime = "event_time",
    }
}

choice! {
    /// What a record that cannot be read does.
    OnBadRecord {
        /// It fails its epoch.
        #[default]
        Fail = "fail",
        /// It is left out and counted.
        Skip = "skip",
    }
}
