//! The names of all tests.

use std::fs;
use std::process::Command;
use std::sync::LazyLock;

use crate::support::project_file;

/// The tests of this binary.
static HERE: LazyLock<String> = LazyLock::new(|| {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).arg("--list").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
});

/// Returns whether a filter matches a test of this binary.
pub(super) fn in_this_binary(filter: &str) -> bool {
    HERE.lines().any(|line| line.contains(filter))
}

/// Returns whether a filter matches an integration test of a crate. For other crates it
/// must be a file, or a file and the beginning of a function's name.
pub(super) fn in_crate(name: &str, filter: &str) -> bool {
    if name == "fluxgate" {
        return in_this_binary(filter);
    }
    let tests = project_file("crates").join(name).join("tests/it");
    let module = |path: &str| tests.join(path.replace("::", "/")).with_extension("rs");
    if module(filter).is_file() {
        return true;
    }
    let Some((path, function)) = filter.rsplit_once("::") else {
        return false;
    };
    let text = fs::read_to_string(module(path));
    text.is_ok_and(|text| text.contains(&format!("fn {function}")))
}
