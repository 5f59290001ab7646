//! Tests of the documents. Each code block has a kind, and each kind has a test that runs
//! every block of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::project_file;

mod blocks;
mod claims;
mod clients;
mod files;
mod links;
mod migrating;
mod names;
mod numbers;
mod readers;
mod session;
mod sizing;
mod test_names;
mod texts;
mod translations;

pub(crate) use blocks::Block;

/// The kinds of blocks, as written after the fence, and the tests that run them. A word
/// with a dot is not part of the kind but the name of a file.
const KINDS: [(&str, &str); 56] = [
    ("console", "docs::session::"),
    ("go", "docs::clients::"),
    ("java", "docs::clients::"),
    ("js", "docs::clients::"),
    ("json", "docs::session::"),
    ("json check", "service::api::the_documented_examples"),
    ("json consume", "service::api::the_documented_examples"),
    ("json openfluxgate", "docs::migrating::"),
    (
        "json openfluxgate-check",
        "service::api::the_documented_examples",
    ),
    (
        "json openfluxgate-checked",
        "service::api::the_documented_examples",
    ),
    ("json decision", "service::api::the_documented_examples"),
    ("json decisions", "docs::files::the_simulations"),
    (
        "json document",
        "rule_sources::mongodb::documents::the_documented_document",
    ),
    ("json requests", "docs::files::the_simulations"),
    ("nginx", "docs::migrating::"),
    ("nginx proxy", "docs::clients::"),
    ("python", "docs::clients::"),
    ("rust", "docs::files::every_program"),
    ("rust,no_run", "docs::files::every_program"),
    ("sh docker", "deploy::containers::the_commands_of_the_guide"),
    (
        "sh kubernetes",
        "deploy::kubernetes::the_commands_of_the_guide",
    ),
    ("sh helm", "deploy::packages::the_guide_of_the_chart"),
    ("sh packages", "deploy::packages::the_guides_name_packages"),
    ("sh pictures", "report::pictures::the_documented_command"),
    ("sh systemd", "deploy::systemd::the_commands_of_the_guide"),
    ("sh token", "operations::the_token"),
    ("text access-log", "docs::texts::the_access_log"),
    ("text acl", "operations::the_redis_permissions"),
    ("text acl openfluxgate", "docs::migrating::the_permissions"),
    ("text bad-line", "docs::texts::the_bad_line"),
    ("text bad-override", "docs::texts::the_bad_overrides"),
    ("text changes", "docs::files::the_changes"),
    ("text faults", "docs::texts::the_faults"),
    (
        "text call-limits",
        "service::admin::call_limits::the_documented_calls",
    ),
    (
        "text forward-auth",
        "service::api::forward_auth::the_documented_request",
    ),
    ("text handles", "service::handles::the_documented_calls"),
    ("text layout", "docs::texts::the_layouts"),
    ("text redis-cli", "docs::texts::redis_cli"),
    ("text redis-conf", "docs::texts::redis_starts"),
    ("text summary", "docs::files::the_simulations"),
    ("text tls-clients", "service::tls::the_documented_clients"),
    ("text usage", "docs::texts::the_usage"),
    ("xml part", "docs::clients::"),
    ("yaml", "docs::files::every_config_and_rule_file"),
    ("yaml bucket4j", "docs::migrating::"),
    ("yaml envoy-ratelimit", "docs::migrating::"),
    ("yaml kong", "docs::migrating::"),
    ("yaml openfluxgate", "docs::migrating::"),
    ("yaml proxy", "docs::clients::"),
    ("yaml spring-cloud-gateway", "docs::migrating::"),
    ("yaml envoy", "service::grpc::envoy::"),
    ("yaml envoy-authz", "service::grpc::ext_authz::envoy::"),
    ("yaml envoy-late", "service::grpc::envoy::"),
    ("yaml helm", "deploy::packages::the_guide_of_the_chart"),
    ("yaml faulty", "docs::texts::the_faults"),
    ("yaml spring", "docs::clients::"),
];

/// Commands in the documents that the tests do not run, with the reason.
pub(crate) const NOT_RUN: [(&str, &str); 6] = [
    (
        "PATH=$PWD/target/release:$PATH",
        "the tests put their own binary into the path",
    ),
    (
        "redis-server",
        "the tests start one on another port, again if it has ended",
    ),
    (
        "systemctl daemon-reload && systemctl enable --now fluxgate",
        "needs systemd; systemd-analyze and strace check the unit",
    ),
    (
        "docker build -f deploy/docker/Dockerfile -t fluxgate .",
        "needs Docker; hadolint checks the file",
    ),
    (
        "docker compose -f deploy/docker/compose.yaml up --build",
        "needs Docker; its schema checks the file",
    ),
    (
        "kubectl apply -k deploy/kubernetes",
        "needs a cluster; the manifests are built and checked by their schemas",
    ),
];

fn is_not_run(command: &str) -> bool {
    NOT_RUN.iter().any(|(it, _)| *it == command)
}

/// Kinds of blocks whose commands the tests do not run, with the reason.
const KINDS_NOT_RUN: [(&str, &str); 2] = [
    (
        "sh packages",
        "install, publish or need Docker; scripts/test packages tries the packages",
    ),
    (
        "sh helm",
        "need a cluster; scripts/test packages renders the chart",
    ),
];

/// Returns the paths of all documents, relative to the root, without translations.
fn documents() -> Vec<String> {
    let mut documents = markdown_files();
    documents.retain(|it| !it.ends_with(".ko.md"));
    documents
}

/// Returns the paths of the documents in `docs`.
fn pages() -> Vec<String> {
    let mut pages = documents();
    pages.retain(|it| it.starts_with("docs/"));
    pages
}

/// Returns the paths of all translations. Their code is that of the originals.
fn translations() -> Vec<String> {
    let mut translations = markdown_files();
    translations.retain(|it| it.ends_with(".ko.md"));
    translations
}

/// Returns the paths of documents and translations.
fn markdown_files() -> Vec<String> {
    let mut found = Vec::new();
    for folder in [
        "",
        "dashboards",
        "deploy",
        "deploy/helm/fluxgate",
        "docs",
        "docs/course",
        "docs/migrating",
        "docs/start",
        "examples",
    ] {
        let files = fs::read_dir(project_file(folder)).unwrap();
        let files = files.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
        let is_document = |path: &PathBuf| path.extension().is_some_and(|it| it == "md");
        found.extend(files.filter(is_document));
    }
    let mut found: Vec<_> = found
        .iter()
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    found.sort();
    found
}

fn read(document: &str) -> String {
    fs::read_to_string(project_file(document)).unwrap()
}

/// Returns all blocks of all documents.
fn all_blocks() -> Vec<Block> {
    let documents = documents();
    documents.iter().flat_map(|it| Block::all_of(it)).collect()
}

/// Returns the blocks of a kind in all documents, at least one.
pub(crate) fn blocks(kind: &str) -> Vec<Block> {
    let mut blocks = all_blocks();
    blocks.retain(|block| block.kind == kind);
    assert!(!blocks.is_empty(), "no document has a block `{kind}`");
    blocks
}

/// Returns the text of the only block of a kind in all documents.
pub(crate) fn only(kind: &str) -> String {
    let mut blocks = blocks(kind);
    assert_eq!(blocks.len(), 1, "{kind}: {blocks:#?}");
    blocks.remove(0).text
}

/// Returns the text of the first block of a kind in a document.
pub(crate) fn first_of(document: &str, kind: &str) -> String {
    let blocks = Block::all_of(document).into_iter();
    let mut blocks = blocks.filter(|block| block.kind == kind);
    blocks.next().unwrap().text
}

#[test]
fn every_block_has_a_kind_that_a_test_runs() {
    let blocks = all_blocks();
    for block in &blocks {
        assert!(
            KINDS.iter().any(|(kind, _)| *kind == block.kind),
            "{block}: no test runs blocks of the kind `{}`",
            block.kind
        );
    }
    for (kind, test) in KINDS {
        assert!(
            blocks.iter().any(|block| block.kind == kind),
            "there is no `{kind}`"
        );
        assert!(test_names::in_this_binary(test), "there is no test {test}");
    }
    for (command, _) in NOT_RUN {
        let is_there = |block: &Block| block.commands().iter().any(|it| it.command == command);
        assert!(blocks.iter().any(is_there), "no document has `{command}`");
    }
}
