//! The key of a zone as the key of a rule.

use crate::draft::Remark;

/// The parts of a key, and what replaces a missing one.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) parts: Vec<String>,
    pub(super) on_missing_key: &'static str,
    pub(super) remarks: Vec<Remark>,
}

/// Returns the key of a rule, or the variable that a rule cannot count by.
pub(super) fn convert(text: &str, line: usize) -> Result<Key, String> {
    let mut key = Key {
        parts: Vec::new(),
        on_missing_key: "ip",
        remarks: Vec::new(),
    };
    // A part that every request has.
    let mut is_never_empty = false;
    let variables = variables(text);
    for variable in &variables {
        let part = match variable.as_str() {
            "binary_remote_addr" | "remote_addr" => "ip".to_owned(),
            "realip_remote_addr" => {
                let text = "$realip_remote_addr is the address of the client, not of the proxy";
                key.remarks.push(Remark::changed(line, text));
                "ip".to_owned()
            }
            "uri" | "document_uri" => "path".to_owned(),
            "request_method" => "method".to_owned(),
            "remote_user" => {
                let text = "$remote_user is the user of the request, see `identity` of the filter";
                key.remarks.push(Remark::changed(line, text));
                "user".to_owned()
            }
            // Each server has its own rule set.
            "server_name" => {
                is_never_empty = true;
                continue;
            }
            "server_addr" | "server_port" => {
                let text = format!(
                    "${variable} is ignored: all addresses and ports of a server count together"
                );
                key.remarks.push(Remark::changed(line, text));
                is_never_empty = true;
                continue;
            }
            other => match named(other) {
                Some((part, source)) => {
                    if let Some(source) = source {
                        let text = format!("${other} is an attribute: the filter needs {source}");
                        key.remarks.push(Remark::changed(line, text));
                    }
                    part
                }
                None => return Err(format!("${other}")),
            },
        };
        is_never_empty |= matches!(part.as_str(), "ip" | "path" | "method");
        if !key.parts.contains(&part) {
            key.parts.push(part);
        }
    }
    // A literal text alone is one counter, and nginx does not limit requests without a key.
    let is_constant = variables.is_empty() || is_never_empty;
    let is_one_part = key.parts.len() == 1;
    key.on_missing_key = match key.parts.as_slice() {
        [] => "ip",
        [part] if part == "ip" || part == "path" || part == "method" => "ip",
        _ if is_one_part && !is_constant && !has_literal(text) => "skip",
        _ => "anonymous",
    };
    Ok(key)
}

/// Returns the part for a variable with a prefix, and how a filter sets it.
fn named(variable: &str) -> Option<(String, Option<String>)> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = |name: &&str| !name.is_empty() && name.bytes().all(is_letter);
    if let Some(name) = variable.strip_prefix("http_").filter(is_name) {
        return Some((format!("header:{}", name.replace('_', "-")), None));
    }
    let (kind, name) = match variable.split_once('_')? {
        ("arg", name) => ("query", name),
        ("cookie", name) => ("cookie", name),
        _ => return None,
    };
    let source = format!("`attributes: {{ {variable}: \"{kind}:{name}\" }}`");
    is_name(&name).then(|| (format!("attr:{variable}"), Some(source)))
}

/// Returns the names of the variables in a text.
fn variables(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for piece in text.split('$').skip(1) {
        let name = match piece.strip_prefix('{') {
            Some(rest) => rest.split('}').next().unwrap_or_default(),
            None => {
                let end = piece.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
                &piece[..end.unwrap_or(piece.len())]
            }
        };
        names.push(name.to_owned());
    }
    names
}

/// Returns whether a text has more than variables, so that it is never empty.
fn has_literal(text: &str) -> bool {
    let names = variables(text);
    let length: usize = names.iter().map(|name| name.len() + 1).sum();
    let braces = text.matches(['{', '}']).count();
    text.len() > length + braces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_parts() {
        for (text, parts, missing) in [
            ("$binary_remote_addr", "ip", "ip"),
            ("${remote_addr}", "ip", "ip"),
            ("$http_x_api_key", "header:x-api-key", "skip"),
            ("$http_x_api_key$uri", "header:x-api-key path", "anonymous"),
            (
                "$binary_remote_addr:$cookie_sid",
                "ip attr:cookie_sid",
                "anonymous",
            ),
            ("key-$arg_token", "attr:arg_token", "anonymous"),
            ("$server_name", "", "ip"),
            ("all", "", "ip"),
            ("$remote_user", "user", "skip"),
        ] {
            let key = convert(text, 1).unwrap();
            assert_eq!(
                (key.parts.join(" ").as_str(), key.on_missing_key),
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
