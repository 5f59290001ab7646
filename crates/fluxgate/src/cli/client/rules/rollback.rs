//! `fluxgate rules rollback`: restores an earlier revision of a stored rule set.

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::change::{changes_of, text_of};
use super::content::SetContent;
use super::stored::{self, look_up_writable, path_of};
use crate::cli::client::server::Server;
use crate::cli::{Exit, Failure, print};

/// The arguments of `fluxgate rules rollback`.
#[derive(Debug, clap::Args)]
pub(super) struct RollbackArguments {
    /// The rule set
    set: String,
    /// The revision, of `/v1/rule_sets/SET/history`; its first digits are enough (default: the one
    /// before the current)
    revision: Option<String>,
}

/// The least digits that name a revision.
const MIN_DIGITS: usize = 4;

/// Restores an earlier revision.
pub(super) async fn rollback(
    server: &Server,
    arguments: &RollbackArguments,
    json: bool,
) -> Result<(), Failure> {
    let set = &*arguments.set;
    let current = look_up_writable(server, set).await?;
    let etag = current.as_ref().map(|current| &*current.etag);
    let path = path_of(set);
    let history = server
        .call(Method::GET, &format!("{path}/history"), None)
        .await?;
    let revisions = revisions_in(&history);
    let wrong = |message: String| Failure::new(Exit::Data, format!("{}: {message}", server.name()));
    if revisions.is_empty() {
        return Err(wrong(format!("rule set `{set}` has no history")));
    }
    let revision = match &arguments.revision {
        Some(revision) => {
            named(&revisions, revision).map_err(|why| wrong(format!("rule set `{set}`: {why}")))?
        }
        None => before(&revisions, etag)
            .ok_or_else(|| wrong(format!("rule set `{set}` has no earlier revision")))?,
    };
    let mut changes = Vec::new();
    let is_change = etag.map(bare) != Some(revision);
    if is_change {
        let old = server
            .exchange(
                Method::GET,
                &format!("{path}?revision={revision}"),
                &[],
                None,
            )
            .await?;
        if old.status != StatusCode::OK {
            return Err(server.refused(&old));
        }
        let text = stored::text_of(server, &old)?;
        let condition = match etag {
            Some(etag) => (IF_MATCH, etag),
            None => (IF_NONE_MATCH, "*"),
        };
        let body = Some(text.clone().into_bytes());
        let answer = server
            .exchange(Method::PUT, &path, &[condition], body)
            .await?;
        match answer.status {
            StatusCode::PRECONDITION_FAILED => {
                let message = format!(
                    "{}\nrule set `{set}` was changed by another writer; nothing was written",
                    server.refused(&answer).message
                );
                return Err(Failure::new(Exit::TryAgain, message));
            }
            StatusCode::ACCEPTED => {
                let message = format!("{}: {}", server.name(), answer.detail());
                return Err(Failure::new(Exit::Unavailable, message));
            }
            status if !status.is_success() => return Err(server.refused(&answer)),
            _ => {}
        }
        let before = current.and_then(|current| current.content);
        // The service has accepted it, perhaps with other settings.
        let after = SetContent::read(set, text).ok();
        changes = changes_of(set, before.as_ref(), after.as_ref());
    }
    if json {
        let report = json!({
            "rule_set": set,
            "revision": revision,
            "changed": is_change,
            "changes": changes,
        });
        return print(&format!("{report}\n"));
    }
    if is_change {
        print(&format!(
            "{set}: restored revision {revision}\n{}",
            text_of(&changes)
        ))
    } else {
        print(&format!("{set}: is at revision {revision} already\n"))
    }
}

/// Returns the revisions of a history, the newest first. A deletion has none.
fn revisions_in(history: &Value) -> Vec<&str> {
    let changes = history["changes"].as_array().into_iter().flatten();
    let revisions = changes.filter_map(|change| change["revision"].as_str());
    revisions.collect()
}

/// Returns the newest revision that differs from the current content.
fn before<'r>(revisions: &[&'r str], etag: Option<&str>) -> Option<&'r str> {
    let mut revisions = revisions.iter().copied();
    revisions.find(|revision| etag.map(bare) != Some(revision))
}

/// Returns the revision that a person names: by all its digits or the first, or as an ETag.
fn named<'r>(revisions: &[&'r str], name: &str) -> Result<&'r str, String> {
    let digits = bare(name);
    if digits.len() < MIN_DIGITS {
        return Err(format!(
            "`{digits}` is too short for a revision: give at least {MIN_DIGITS} digits"
        ));
    }
    let mut found: Vec<_> = revisions
        .iter()
        .copied()
        .filter(|revision| revision.starts_with(digits))
        .collect();
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [revision] => Ok(revision),
        [] => Err(format!("the history has no revision `{digits}`")),
        _ => Err(format!("`{digits}` is the beginning of several revisions")),
    }
}

/// Returns an ETag without its quotes.
fn bare(etag: &str) -> &str {
    etag.trim_start_matches("W/").trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_named_or_the_one_before() {
        let history = json!({ "changes": [
            { "revision": "cccc3333" }, { "revision": null }, { "revision": "bbbb2222" },
            { "revision": "cccc3333" }, { "revision": "bbbb1111" },
        ] });
        let revisions = revisions_in(&history);
        assert_eq!(before(&revisions, Some("\"cccc3333\"")), Some("bbbb2222"));
        assert_eq!(before(&revisions, Some("\"bbbb2222\"")), Some("cccc3333"));
        // A set that was deleted.
        assert_eq!(before(&revisions, None), Some("cccc3333"));
        assert_eq!(before(&["a"], Some("\"a\"")), None);
        assert_eq!(named(&revisions, "\"bbbb1111\""), Ok("bbbb1111"));
        assert_eq!(named(&revisions, "cccc"), Ok("cccc3333"));
        for (name, why) in [
            ("bbbb", "several"),
            ("dddd", "no revision"),
            ("ccc", "too short"),
            ("", "too short"),
        ] {
            let error = named(&revisions, name).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
    }
}
