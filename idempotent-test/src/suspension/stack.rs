//! The lines of the application in a stack.

use std::{
    collections::HashMap,
    env,
    ffi::c_void,
    path::Path,
    sync::{LazyLock, Mutex, PoisonError},
};

/// The addresses in a stack, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stack(Vec<usize>);

/// The lines of stacks that were seen before: finding them takes milliseconds.
static SOURCES: LazyLock<Mutex<HashMap<Stack, Vec<String>>>> = LazyLock::new(Mutex::default);

impl Stack {
    /// The stack of the caller.
    pub(super) fn capture() -> Self {
        let mut addresses = Vec::new();
        backtrace::trace(|frame| {
            addresses.push(frame.ip().addr());
            true
        });
        Self(addresses)
    }

    /// The files and lines of the application, the innermost first, such as `src/refund.rs:20`.
    pub(super) fn source(&self) -> Vec<String> {
        let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
        sources.entry(self.clone()).or_insert_with(|| self.find_source()).clone()
    }

    fn find_source(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for address in &self.0 {
            backtrace::resolve(*address as *mut c_void, |symbol| {
                if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                    lines.push((file.to_owned(), line));
                }
            });
        }
        // What has called the poll is not of the future.
        let lines = lines.iter().take_while(|(file, _)| !file.ends_with(super::FILE));
        let directory = env::current_dir().unwrap_or_default();
        // The sources of libraries of the system are not here.
        let lines =
            lines.filter(|(file, _)| is_of_application(file) && directory.join(file).is_file());
        let mut lines: Vec<_> = lines
            .map(|(file, line)| {
                format!("{}:{line}", file.strip_prefix(&directory).unwrap_or(file).display())
            })
            .collect();
        lines.dedup();
        lines
    }
}

/// Whether a file is neither of a dependency nor of the standard library.
fn is_of_application(file: &Path) -> bool {
    const DEPENDENCIES: [&str; 4] = ["/registry/src/", "/rustc/", "/library/", "/git/checkouts/"];
    // The crates beside this one, if it is not itself a dependency.
    const SIBLINGS: [&str; 5] =
        ["idempotent-actix", "idempotent-core", "idempotent-http", "idempotent-test/src", "stores"];
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let inside = workspace.and_then(|workspace| file.strip_prefix(workspace).ok());
    let text = file.to_string_lossy();
    !DEPENDENCIES.iter().any(|part| text.contains(part))
        && !inside.is_some_and(|inside| SIBLINGS.iter().any(|each| inside.starts_with(each)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_files_of_an_application_count() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(""));
        for (file, expected) in [
            ("examples/payments/src/api.rs", true),
            ("idempotent-test/tests/proofs.rs", true),
            ("idempotent-test/src/proof.rs", false),
            ("stores/sqlite/src/store.rs", false),
            ("/home/alice/shop/src/refund.rs", true),
            ("/home/alice/.cargo/registry/src/index/tokio-1.54.1/src/time/sleep.rs", false),
            ("/rustc/0123/library/core/src/future.rs", false),
        ] {
            assert_eq!(is_of_application(&workspace.join(file)), expected, "{file}");
        }
    }
}
