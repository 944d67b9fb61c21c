//! The name of what is being tried, told when it fails.

/// Says what was tried if the test fails before this is dropped.
pub(crate) struct Case<F: Fn() -> String>(pub(crate) F);

impl<F: Fn() -> String> Drop for Case<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0());
        }
    }
}
