//! Programs in other languages and configurations of other software. Each block is a part of a
//! file that the tests of a client or of the examples run.

use std::fs;

use super::all_blocks;
use crate::support::project_file;

/// The kinds of blocks that are parts of such files.
const KINDS: [&str; 8] = [
    "go",
    "java",
    "js",
    "nginx proxy",
    "python",
    "xml part",
    "yaml proxy",
    "yaml spring",
];

#[test]
fn every_snippet_is_part_of_a_program() {
    for block in all_blocks() {
        if !KINDS.contains(&block.kind.as_str()) {
            continue;
        }
        let Some(file) = &block.file else {
            panic!("{block}: the fence does not name the file that has this");
        };
        let program = fs::read_to_string(project_file(file));
        let program = program.unwrap_or_else(|error| panic!("{block}: {file}: {error}"));
        assert!(program.contains(&block.text), "{block}: {file} differs");
    }
}
