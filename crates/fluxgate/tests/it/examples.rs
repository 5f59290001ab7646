//! What is in `examples`, run with the software that it is for.

use std::fs;
use std::path::PathBuf;

use crate::docs::first_of;
use crate::service::Service;
use crate::support::project_file;

mod clients;
mod front;
mod proxies;

/// A file of `examples`.
fn example(path: &str) -> PathBuf {
    project_file("examples").join(path)
}

fn text(path: &str) -> String {
    let path = example(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text with `new` in place of `old`, which it has.
fn put(text: &str, old: &str, new: impl ToString) -> String {
    assert!(text.contains(old), "no {old}");
    text.replace(old, &new.to_string())
}

/// The service that all examples but Envoy's ask, on free ports.
fn service() -> Service {
    let config = text("fluxgate.yaml");
    let listen = config.lines().find(|line| line.starts_with("listen:"));
    let config = put(&config, listen.unwrap(), "");
    // A machine that stands still for half a minute is no reason to fail.
    let config = put(&config, "window: 1m", "window: 1h");
    let service = Service::start(&["resp"], &config);
    let warned = service.program.lines();
    assert!(
        !warned.iter().any(|line| line.contains("WARN")),
        "{warned:#?}"
    );
    service
}

/// The guide tells of every directory, and every file tells how it is used or is
/// told of.
#[test]
fn the_guide_names_every_file() {
    let guide = text("README.md");
    let mut left = vec![project_file("examples")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let name = path.strip_prefix(project_file("examples")).unwrap();
        let name = name.to_str().unwrap();
        assert!(
            name == "README.md" || guide.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}

/// Envoy is run with what `docs/grpc.md` says (`service::grpc::envoy`).
#[test]
fn envoys_files_are_those_of_the_document() {
    for (kind, file) in [
        ("yaml envoy", "envoy/envoy.yaml"),
        ("yaml", "envoy/fluxgate.yaml"),
    ] {
        assert_eq!(text(file), first_of("docs/grpc.md", kind), "{file}");
    }
}
