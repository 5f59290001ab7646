//! Links to documents, files and headings.

use std::collections::BTreeSet;

use super::{markdown_files, read};
use crate::support::project_file;

#[test]
fn links_have_a_target() {
    let mut followed = 0;
    for document in markdown_files() {
        let folder = project_file(&document);
        let folder = folder.parent().unwrap();
        for link in links(&prose(&document)) {
            if link.starts_with("https://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => project_file(&document),
                path => folder.join(path),
            };
            assert!(target.exists(), "{document}: {link}");
            if !anchor.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                assert!(anchors(&text).contains(anchor), "{document}: {link}");
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed}");
}

#[test]
fn every_document_is_linked_from_another() {
    let documents = markdown_files();
    for document in &documents {
        let name = document.rsplit('/').next().unwrap();
        let others = documents.iter().filter(|other| *other != document);
        let mut links = others.flat_map(|other| links(&prose(other)));
        let folder = document.strip_suffix("/README.md").unwrap_or(name);
        let is_target = |link: String| {
            let path = link.split('#').next().unwrap();
            path.ends_with(name) || path.ends_with(folder)
        };
        assert!(
            document == "README.md" || links.any(is_target),
            "{document}"
        );
    }
}

/// Returns a document without its code blocks.
pub(super) fn prose(document: &str) -> String {
    let text = read(document);
    let pieces = text.split("\n```").step_by(2);
    pieces.collect::<Vec<_>>().join("\n")
}

/// Returns the targets of the links in a text.
pub(super) fn links(text: &str) -> Vec<String> {
    let rests = text.split("](").skip(1);
    rests
        .map(|rest| rest.split(')').next().unwrap().to_owned())
        .collect()
}

/// Returns the anchors that code hosts give to headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|it| it.is_alphanumeric() || " -_".contains(*it));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(name).collect()
}
