//! Numbers that a person sets a test to.

/// A number from the environment, or what it is unless said.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("{variable}={text}: {error}")),
        Err(_) => default,
    }
}
