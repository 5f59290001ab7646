//! The rules that a service has.

use fluxgate_core::yaml::Node;
use http::{Method, StatusCode};

use super::content::SetContent;
use crate::cli::client::server::{Answer, Server};
use crate::cli::{Exit, Failure};

/// A rule set as a service stores it.
#[derive(Debug)]
pub(super) struct StoredSet {
    /// In quotes.
    pub(super) etag: String,
    /// `None` if it is invalid: then it has never been active.
    pub(super) content: Option<SetContent>,
}

/// What a service says about a stored rule set.
#[derive(Debug)]
pub(super) enum Lookup {
    Found(StoredSet),
    Absent,
    /// Its rules come from elsewhere; the response says from where.
    ReadOnly(Answer),
}

/// Returns the path of a stored rule set.
pub(super) fn path_of(set: &str) -> String {
    let mut path = String::from("/v1/rule_sets/");
    for byte in set.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(byte.into());
        } else {
            path += &format!("%{byte:02X}");
        }
    }
    path
}

/// Reads a stored rule set.
pub(super) async fn look_up(server: &Server, set: &str) -> Result<Lookup, Failure> {
    let answer = server
        .exchange(Method::GET, &path_of(set), &[], None)
        .await?;
    match answer.status {
        StatusCode::OK => {
            let text = text_of(server, &answer)?;
            let etag = answer.etag.ok_or_else(|| {
                let message = format!("{}: a rule set without an ETag", server.name());
                Failure::new(Exit::Unavailable, message)
            })?;
            let content = SetContent::read(set, text).ok();
            Ok(Lookup::Found(StoredSet { etag, content }))
        }
        StatusCode::NOT_FOUND => Ok(Lookup::Absent),
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::CONFLICT => Ok(Lookup::ReadOnly(answer)),
        _ => Err(server.refused(&answer)),
    }
}

/// Reads a stored rule set of a service that must be able to change it.
pub(super) async fn look_up_writable(
    server: &Server,
    set: &str,
) -> Result<Option<StoredSet>, Failure> {
    match look_up(server, set).await? {
        Lookup::Found(set) => Ok(Some(set)),
        Lookup::Absent => Ok(None),
        Lookup::ReadOnly(answer) => Err(server.refused(&answer)),
    }
}

/// Returns the text of a response.
pub(super) fn text_of(server: &Server, answer: &Answer) -> Result<String, Failure> {
    String::from_utf8(answer.body.to_vec()).map_err(|_| {
        let message = format!("{}: the response is not UTF-8", server.name());
        Failure::new(Exit::Unavailable, message)
    })
}

/// Returns the names of the active rule sets, in order.
pub(super) async fn active_names(server: &Server) -> Result<Vec<String>, Failure> {
    let answer = server.call(Method::GET, "/v1/rule_sets", None).await?;
    let sets = answer["rule_sets"].as_array().into_iter().flatten();
    let names = sets.filter_map(|set| set["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Returns the active rules as a rule file.
pub(super) async fn active_rules(server: &Server) -> Result<Node, Failure> {
    let answer = server.call(Method::GET, "/v1/rules_text", None).await?;
    let text = answer["text"].as_str().unwrap_or_default();
    Node::parse(text).map_err(|fault| {
        let message = format!("{}: the active rules: {fault}", server.name());
        Failure::new(Exit::Unavailable, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(path_of("api-limits.v1"), "/v1/rule_sets/api-limits.v1");
        assert_eq!(path_of("a/b ?"), "/v1/rule_sets/a%2Fb%20%3F");
        assert_eq!(path_of("제"), "/v1/rule_sets/%EC%A0%9C");
    }
}
