//! The key of a zone as the key of a rule.

use fluxgate_core::{KeyPart, OnMissingKey};

use crate::draft::Remark;

/// The key of a rule.
#[derive(Debug)]
pub(super) struct RuleKey {
    pub(super) parts: Vec<KeyPart>,
    pub(super) on_missing_key: OnMissingKey,
    pub(super) remarks: Vec<Remark>,
}

/// Returns the key of a rule, or the variable that a rule cannot count by.
pub(super) fn convert(text: &str, line: usize) -> Result<RuleKey, String> {
    let mut key = RuleKey {
        parts: Vec::new(),
        on_missing_key: OnMissingKey::Ip,
        remarks: Vec::new(),
    };
    let is_in_every_request =
        |part: &KeyPart| matches!(part, KeyPart::Ip | KeyPart::Path | KeyPart::Method);
    let mut is_never_empty = has_literal(text);
    for variable in variables(text) {
        let mut remark = |text: String| key.remarks.push(Remark::changed(line, text));
        let part = match variable {
            "binary_remote_addr" | "remote_addr" => KeyPart::Ip,
            "realip_remote_addr" => {
                let text = "$realip_remote_addr is the address of the client, not of the proxy";
                remark(text.into());
                KeyPart::Ip
            }
            "uri" | "document_uri" => KeyPart::Path,
            "request_method" => KeyPart::Method,
            "remote_user" => {
                let text = "$remote_user is the user of the request, see `identity` of the filter";
                remark(text.into());
                KeyPart::User
            }
            // Each server has its own rule set.
            "server_name" => {
                is_never_empty = true;
                continue;
            }
            "server_addr" | "server_port" => {
                remark(format!(
                    "${variable} is ignored: all addresses and ports of a server count together"
                ));
                is_never_empty = true;
                continue;
            }
            other => {
                let (part, source) = named(other).ok_or_else(|| format!("${other}"))?;
                if let Some(source) = source {
                    remark(format!(
                        "${other} is an attribute: the filter needs {source}"
                    ));
                }
                part
            }
        };
        is_never_empty |= is_in_every_request(&part);
        if !key.parts.contains(&part) {
            key.parts.push(part);
        }
    }
    key.on_missing_key = match key.parts.as_slice() {
        [] => OnMissingKey::Ip,
        [part] if is_in_every_request(part) => OnMissingKey::Ip,
        // nginx does not limit requests whose key is empty.
        [_] if !is_never_empty => OnMissingKey::Skip,
        _ => OnMissingKey::Anonymous,
    };
    Ok(key)
}

/// Returns the part for a variable with a prefix, and how a filter sets it.
fn named(variable: &str) -> Option<(KeyPart, Option<String>)> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = |name: &&str| !name.is_empty() && name.bytes().all(is_letter);
    if let Some(name) = variable.strip_prefix("http_").filter(is_name) {
        return Some((KeyPart::Header(name.replace('_', "-").into()), None));
    }
    let (kind, name) = match variable.split_once('_')? {
        ("arg", name) => ("query", name),
        ("cookie", name) => ("cookie", name),
        _ => return None,
    };
    let source = format!("`attributes: {{ {variable}: \"{kind}:{name}\" }}`");
    is_name(&name).then(|| (KeyPart::Attribute(variable.into()), Some(source)))
}

/// Returns the names of the variables in a text.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|piece| {
        let (name, _) = match piece.strip_prefix('{') {
            Some(rest) => rest.split_once('}').unwrap_or((rest, "")),
            None => {
                let end = piece.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
                piece.split_at(end.unwrap_or(piece.len()))
            }
        };
        name
    })
}

/// Returns whether a text has more than variables, so that it is never empty.
fn has_literal(text: &str) -> bool {
    let length: usize = variables(text).map(|name| name.len() + 1).sum();
    let braces = text.matches(['{', '}']).count();
    text.len() > length + braces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_parts() {
        use OnMissingKey::{Anonymous, Ip, Skip};
        for (text, parts, missing) in [
            ("$binary_remote_addr", "ip", Ip),
            ("${remote_addr}", "ip", Ip),
            ("$http_x_api_key", "header:x-api-key", Skip),
            ("$http_x_api_key$uri", "header:x-api-key path", Anonymous),
            (
                "$binary_remote_addr:$cookie_sid",
                "ip attr:cookie_sid",
                Anonymous,
            ),
            ("key-$arg_token", "attr:arg_token", Anonymous),
            ("$server_name", "", Ip),
            ("all", "", Ip),
            ("$remote_user", "user", Skip),
        ] {
            let key = convert(text, 1).unwrap();
            let found: Vec<_> = key.parts.iter().map(ToString::to_string).collect();
            assert_eq!(
                (found.join(" ").as_str(), key.on_missing_key),
                (parts, missing),
                "{text}"
            );
        }
    }

    #[test]
    fn other_variables_are_refused() {
        for text in [
            "$limit_key",
            "$request_uri",
            "$host",
            "$",
            "${",
            "$http_",
            "$ssl_client_s_dn",
        ] {
            assert!(convert(text, 1).is_err(), "{text}");
        }
    }
}
