use super::*;

/// Reads a body; returns each call with what it names.
fn calls(body: &str) -> Vec<(String, Option<String>)> {
    let messages = Messages::read(body.as_bytes()).unwrap_or_else(|it| panic!("{body}: {}", it.0));
    let calls = messages.calls.iter().map(Call::as_mcp_call);
    calls
        .map(|call| (call.method.to_owned(), call.name.map(str::to_owned)))
        .collect()
}

fn fault(body: &str) -> String {
    match Messages::read(body.as_bytes()) {
        Err(fault) => fault.0,
        Ok(messages) => panic!("{body}: {messages:?}"),
    }
}

fn named(method: &str, name: &str) -> Vec<(String, Option<String>)> {
    vec![(method.to_owned(), Some(name.to_owned()))]
}

#[test]
fn calls_name_a_tool_a_resource_or_a_prompt() {
    for (method, member) in [
        ("tools/call", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("resources/subscribe", "uri"),
        ("resources/unsubscribe", "uri"),
    ] {
        let other = if member == "name" { "uri" } else { "name" };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"{other}":"y","{member}":"x"}}}}"#
        );
        assert_eq!(calls(&body), named(method, "x"));
    }
    let plain = |method: &str| vec![(method.to_owned(), None)];
    for (body, method) in [
        (r#"{"id":1,"method":"ping"}"#, "ping"),
        (r#"{"method":"tools/list","params":null}"#, "tools/list"),
        (
            r#"{"method":"logging/setLevel","params":{"name":"x","uri":"y"}}"#,
            "logging/setLevel",
        ),
        (
            r#"{"method":"tasks/get","params":{"taskId":"x"}}"#,
            "tasks/get",
        ),
        // A server may execute it although it is an answer too.
        (r#"{"result":{},"method":"ping","id":1}"#, "ping"),
    ] {
        assert_eq!(calls(body), plain(method));
    }
    assert_eq!(calls(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), []);
    assert_eq!(calls(r#"{"jsonrpc":"2.0","id":1,"error":{}}"#), []);
}

#[test]
fn escapes_and_the_order_of_members_make_no_difference() {
    let tool = named("tools/call", "écho");
    for body in [
        r#"{"params":{"arguments":{"name":"other","method":"x"},"name":"écho"},"method":"tools/call","id":"a"}"#,
        r#" { "\u006dethod" : "tools\/call" , "p\u0061rams":{"n\u0061me":"\u00e9cho"} } "#,
        r#"{"method":"tools/call","params":{"_meta":{"name":"x"},"name":"\u00e9cho","uri":5}}"#,
    ] {
        assert_eq!(calls(body), tool, "{body}");
    }
    assert_eq!(
        calls(r#"{"method":"tools/call","params":{"name":"\ud83d\ude00"}}"#)[0]
            .1
            .as_deref(),
        Some("😀")
    );
}

#[test]
fn a_batch_is_a_list_of_messages() {
    let call = r#"{"method":"tools/call","params":{"name":"a"},"id":1}"#;
    let body = format!(r#"[{call},{{"method":"ping"}},{{"id":2,"result":1}},{call}]"#);
    let messages = Messages::read(body.as_bytes()).unwrap();
    assert!(messages.is_batch && messages.only_call().is_none());
    let methods: Vec<_> = messages.calls.iter().map(|call| &*call.method).collect();
    assert_eq!(methods, ["tools/call", "ping", "tools/call"]);
    let one = Messages::read(format!("[{call}]").as_bytes()).unwrap();
    assert!(one.is_batch && one.only_call().is_none());

    let most = vec![call; MAX_BATCH].join(",");
    assert_eq!(calls(&format!("[{most}]")).len(), MAX_BATCH);
    assert_eq!(
        fault(&format!("[{most},{call}]")),
        "the batch has more than 1000 messages"
    );
    for (body, expected) in [
        ("[]".to_owned(), "the batch is empty"),
        (format!("[[{call}]]"), "a message must be an object"),
        (format!("[{call},[]]"), "a message must be an object"),
        (format!("[{call},1]"), "a message must be an object"),
    ] {
        assert_eq!(fault(&body), expected, "{body}");
    }
}

#[test]
fn ids_are_kept_as_they_are_written() {
    let id = |id: &str| {
        let body = format!(r#"{{"method":"ping","id":{id}}}"#);
        let messages = Messages::read(body.as_bytes());
        messages.map(|it| {
            it.calls[0]
                .id
                .as_ref()
                .map(|id| String::from_utf8_lossy(id).into_owned())
        })
    };
    for text in [
        "1",
        "-1.50e3",
        "0",
        r#""""#,
        r#""\u00e9\"x""#,
        "123456789012345678901234567890",
    ] {
        assert_eq!(id(text), Ok(Some(text.to_owned())));
    }
    assert_eq!(id("null"), Ok(None));
    for text in ["true", "[]", "{}", "[1]"] {
        let fault = MessageFault::new("`id` must be a string or a number");
        assert_eq!(id(text), Err(fault));
    }
}

#[test]
fn what_servers_read_in_different_ways_is_refused() {
    for (body, expected) in [
        (
            r#"{"method":"ping","method":"tools/call"}"#,
            "the member `method` occurs twice",
        ),
        (
            r#"{"method":"ping","m\u0065thod":"tools/call"}"#,
            "the member `method` occurs twice",
        ),
        (
            r#"{"method":"ping","Method":"tools/call"}"#,
            "the member \"Method\" must be written `method`",
        ),
        (
            r#"{"METHOD":"tools/call","result":1}"#,
            "the member \"METHOD\" must be written `method`",
        ),
        (
            "{\"method\":\"ping\",\"param\u{17f}\":{}}",
            "the member \"paramſ\" must be written `params`",
        ),
        (
            r#"{"method":"tools/call","params":{"name":"a","name":"b"}}"#,
            "the member `name` occurs twice",
        ),
        (
            r#"{"method":"tools/call","params":{"name":"a","NAME":"b"}}"#,
            "the member \"NAME\" must be written `name`",
        ),
        (
            r#"{"method":"tools/call","params":{"name":"a"},"params":{}}"#,
            "the member `params` occurs twice",
        ),
        (
            r#"{"__proto__":{"method":"tools/call"},"result":1}"#,
            "the member `__proto__` is not allowed",
        ),
        (
            r#"{"method":"tools/call","params":["a"]}"#,
            "`params` must be an object",
        ),
        (
            r#"{"method":"tools/call","params":"a"}"#,
            "`params` must be an object",
        ),
        (
            r#"{"method":"tools/call"}"#,
            "`tools/call` needs `params.name`, a string",
        ),
        (
            r#"{"method":"tools/call","params":{"name":null}}"#,
            "`tools/call` needs `params.name`, a string",
        ),
        (
            r#"{"method":"resources/read","params":{"name":"a"}}"#,
            "`resources/read` needs `params.uri`, a string",
        ),
        (
            r#"{"method":"Tools/Call","params":{"name":"a"}}"#,
            "the method \"Tools/Call\" must be written `tools/call`",
        ),
        (r#"{"method":1}"#, "`method` must be a string"),
        (r#"{"method":["tools/call"]}"#, "`method` must be a string"),
        (r#"{"method":""}"#, "`method` is empty"),
        (
            r#"{"method":" tools/call"}"#,
            "`method` begins or ends with white space",
        ),
        (
            r#"{"method":"tools/call","params":{"name":"a\u00a0"}}"#,
            "`params.name` begins or ends with white space",
        ),
        (
            r#"{"method":"tools/call","params":{"name":"a\u0000b"}}"#,
            "`params.name` has control characters or half a surrogate pair",
        ),
        (
            r#"{"method":"tools/call","params":{"name":"a\ud800b"}}"#,
            "`params.name` has control characters or half a surrogate pair",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1}"#,
            "a message must have `method`, `result` or `error`",
        ),
        ("{}", "a message must have `method`, `result` or `error`"),
        (r#""ping""#, "the body is not a message"),
        ("null", "the body is not a message"),
        ("1", "the body is not a message"),
    ] {
        assert_eq!(fault(body), expected, "{body}");
    }
    for body in [
        "",
        " ",
        "\u{feff}{\"method\":\"ping\"}",
        "{\"method\":\"ping\"}{\"method\":\"tools/call\"}",
        "{\"method\":\"ping\"}\n{\"method\":\"ping\"}",
        "{\"method\":\"ping\",}",
        "{'method':'ping'}",
        "{\"method\":\"ping\"}//",
        "{\"method\":\"ping\",\"params\":{\"x\":NaN}}",
        "{\"method\":\"pi\nng\"}",
    ] {
        assert!(
            fault(body).starts_with("the body is not JSON: expected "),
            "{body}"
        );
    }
    let deep = format!(
        r#"{{"method":"ping","params":{{"x":{}1{}}}}}"#,
        "[".repeat(500),
        "]".repeat(500)
    );
    assert!(fault(&deep).starts_with("the body is nested deeper than 128 levels"));
    let long = format!(
        r#"{{"method":"tools/call","params":{{"name":"{}"}}}}"#,
        "a".repeat(MAX_TEXT + 1)
    );
    assert_eq!(fault(&long), "`params.name` has more than 8192 bytes");
}

#[test]
fn a_body_must_be_utf_8() {
    for body in [&b"{\"method\":\"\xff\"}"[..], b"\xff\xfe{\0}\0"] {
        let fault = Messages::read(body).unwrap_err();
        assert!(
            fault.0.starts_with("the body is not UTF-8: byte "),
            "{fault:?}"
        );
    }
    // UTF-16 without a mark is UTF-8 by accident, but not JSON.
    let utf16: Vec<u8> = "{\"method\":\"ping\"}"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert!(Messages::read(&utf16).is_err());
}
