//! Runs the files in `examples` with the software they are for.

use std::fs;
use std::path::PathBuf;

use crate::docs::first_of;
use crate::service::Service;
use crate::support::project_file;

mod clients;
mod front;
mod mcp;
mod meshes;
mod pipeline;
mod proxies;

/// Returns the path of a file in `examples`.
fn example(path: &str) -> PathBuf {
    project_file("examples").join(path)
}

fn text(path: &str) -> String {
    let path = example(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces `old`, which must be in the text.
fn replace(text: &str, old: &str, new: impl ToString) -> String {
    assert!(text.contains(old), "no {old}");
    text.replace(old, &new.to_string())
}

/// Starts the service of all examples except Envoy's, on free ports.
fn service() -> Service {
    let config = text("fluxgate.yaml");
    let listen = config.lines().find(|line| line.starts_with("listen:"));
    let config = replace(&config, listen.unwrap(), "");
    // A stalled machine must not make the test fail.
    let config = replace(&config, "window: 1m", "window: 1h");
    let service = Service::start(&["resp"], &config);
    let lines = service.program.lines();
    assert!(
        !lines.iter().any(|line| line.contains("WARN")),
        "{lines:#?}"
    );
    service
}

#[test]
fn the_guide_names_every_file() {
    let guide = text("README.md");
    let mut left = vec![project_file("examples")];
    while let Some(path) = left.pop() {
        // What trying an example leaves behind.
        let made = ["node_modules", "dist", "package-lock.json"];
        if made.iter().any(|name| path.ends_with(name)) {
            continue;
        }
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

/// `service::grpc::envoy` runs Envoy with the files of the document.
#[test]
fn the_files_for_envoy_match_the_document() {
    for (kind, file) in [
        ("yaml envoy", "envoy/envoy.yaml"),
        ("yaml", "envoy/fluxgate.yaml"),
    ] {
        assert_eq!(text(file), first_of("docs/grpc.md", kind), "{file}");
    }
}
