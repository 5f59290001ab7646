//! Calls of the Model Context Protocol: whatever a server executes has been counted.

use fluxgate_gateway::fuzz::McpRequest;
use serde_json::Value;

/// A method, and what it names.
type CallName = (String, Option<String>);

/// Checks that the calls that are counted are those that another reader finds, and that
/// headers agree with them.
pub fn check(bytes: &[u8]) {
    let request = McpRequest::read(bytes);
    let Some(counted) = request.calls() else {
        return;
    };
    let body: Value = match serde_json::from_slice(request.body) {
        Ok(body) => body,
        // It reads numbers as doubles, and refuses halves of surrogate pairs.
        Err(error) => {
            let error = error.to_string();
            let is_known = ["number out of range", "surrogate", "hex escape"];
            assert!(is_known.iter().any(|it| error.contains(it)), "{error}");
            return;
        }
    };
    let messages = match &body {
        Value::Array(messages) => &messages[..],
        message => std::slice::from_ref(message),
    };
    assert!(!messages.is_empty());
    let executed: Vec<CallName> = messages.iter().filter_map(executed_by).collect();
    assert_eq!(counted, executed);
    for (name, value) in &request.headers {
        let [(method, named)] = &counted[..] else {
            panic!("headers and {} calls", counted.len());
        };
        assert!(!body.is_array(), "headers and a batch");
        let Some(plain) = plain(value) else {
            // The base64 form.
            continue;
        };
        match *name {
            "mcp-method" => assert_eq!(plain, *method),
            _ if method.starts_with("tasks/") => assert_eq!(body["params"]["taskId"], plain),
            _ => assert_eq!(Some(plain), *named),
        }
    }
}

/// Returns the call that a server executes for a message, however leniently it finds the
/// members.
fn executed_by(message: &Value) -> Option<CallName> {
    let member = |object: &Value, name: &str| {
        let members = object.as_object()?.iter();
        let mut named = members.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let found = named.next().map(|(_, value)| value.clone());
        assert!(named.next().is_none(), "`{name}` in two spellings");
        found
    };
    assert!(message.is_object(), "{message}");
    let method = member(message, "method")?;
    let method = method.as_str().expect("a method is a string").to_owned();
    let params = member(message, "params").unwrap_or_default();
    let name = match method.to_ascii_lowercase().as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        _ => return Some((method, None)),
    };
    let name = member(&params, name).expect("the call names something");
    let name = name.as_str().expect("a name is a string").to_owned();
    Some((method, Some(name)))
}

/// Returns the value of a header, unless it is in base64.
fn plain(value: &[u8]) -> Option<String> {
    let text = String::from_utf8(value.to_vec()).expect("it is plain");
    let is_encoded = text.starts_with("=?base64?") && text.ends_with("?=") && text.len() >= 11;
    (!is_encoded).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;

    /// What messages, and attempts to hide one, are made of.
    const PARTS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\n",
        "\u{feff}",
        "\"",
        "\\",
        "null",
        "1",
        "-1e999",
        "true",
        r#""jsonrpc":"2.0""#,
        r#""id":1"#,
        r#""id":"a\"b""#,
        r#""id":null"#,
        r#""method""#,
        r#""Method""#,
        r#""m\u0065thod""#,
        r#""params""#,
        r#""paramſ""#,
        r#""result":{}"#,
        r#""name""#,
        r#""NAME""#,
        r#""n\u0061me""#,
        r#""uri""#,
        r#""taskId""#,
        r#""__proto__""#,
        r#""tools/call""#,
        r#""tools\/call""#,
        r#""Tools/Call""#,
        r#""resources/read""#,
        r#""prompts/get""#,
        r#""tasks/get""#,
        r#""ping""#,
        r#""a""#,
        r#""b\ud800""#,
        r#"" c""#,
        r#""d\u0000""#,
        r#""😀""#,
        r#""method":"ping""#,
        r#""method":"tools/call""#,
        r#""params":{"name":"a"}"#,
        r#""params":{"uri":"a","name":"b"}"#,
        r#""params":["a"]"#,
        r#""params":{"arguments":{"name":"x"},"name":"a"}"#,
        r#"{"method":"tools/call","params":{"name":"a"}}"#,
        r#"{"method":"ping","id":2}"#,
        r#"{"id":1,"result":1}"#,
        r#"{"method":"resources/read","params":{"uri":"f:/a"}}"#,
        r#"{"method":"tasks/get","params":{"taskId":"a"}}"#,
    ];
    /// Whole members, of which some make a call together.
    const MEMBERS: &[&str] = &[
        r#""method":"ping""#,
        r#""method":"tools/call""#,
        r#""m\u0065thod":"tools\/call""#,
        r#""Method":"ping""#,
        r#""params":{"name":"a"}"#,
        r#""params":{"name":"b","uri":"a"}"#,
        r#""id":1"#,
        r#""id":"x""#,
        r#""jsonrpc":"2.0""#,
        r#""result":1"#,
    ];
    const HEADERS: &[&str] = &[
        "",
        "",
        "",
        "Mcp-Method: tools/call\n",
        "Mcp-Method: ping\n",
        "MCP-METHOD: Tools/Call\n",
        "Mcp-Name: a\n",
        "Mcp-Name: b\n",
        "Mcp-Name: =?base64?YQ==?=\n",
        "Mcp-Name: =?base64?!?=\n",
        "mcp-name:\n",
        "Mcp-Name: a\u{e9}\n",
    ];

    #[test]
    fn no_call_of_a_hostile_body_is_uncounted() {
        const CASES: u32 = 100_000;
        let message = vec(select(PARTS), 0..8).prop_map(|parts| parts.concat());
        let object = vec(select(PARTS), 0..5).prop_map(|parts| format!("{{{}}}", parts.join(",")));
        let members =
            vec(select(MEMBERS), 1..4).prop_map(|parts| format!("{{{}}}", parts.join(",")));
        let whole = prop_oneof![
            4 => members.clone(),
            2 => vec(members, 1..4).prop_map(|it| format!("[{}]", it.join(","))),
            2 => message,
            4 => object.clone(),
            2 => vec(object, 0..4).prop_map(|it| format!("[{}]", it.join(","))),
            2 => vec(select(PARTS), 0..4).prop_map(|it| format!("[{}]", it.join(","))),
            2 => select(PARTS).prop_map(str::to_owned),
        ];
        let request = (vec(select(HEADERS), 0..3), whole)
            .prop_map(|(headers, body)| format!("{}\n{body}", headers.concat() + "\n"));
        let config = Config {
            failure_persistence: None,
            ..Config::with_cases(CASES)
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let accepted = Cell::new(0);
        let result = TestRunner::new_with_rng(config, rng).run(&request, |text| {
            check(text.as_bytes());
            let calls = McpRequest::read(text.as_bytes()).calls();
            accepted.set(accepted.get() + u32::from(calls.is_some_and(|it| !it.is_empty())));
            Ok(())
        });
        result.unwrap();
        // Otherwise nothing was compared.
        assert!(accepted.get() > CASES / 50, "{}", accepted.get());
    }
}
