//! Bodies that a server could read otherwise than the gateway.

use super::*;

/// Sends a chat with these lines of the head; returns the status.
fn status(service: &Service, is_fast: bool, headers: &str) -> u16 {
    let more = if is_fast {
        ""
    } else {
        "TE: trailers\r\nConnection: TE\r\n"
    };
    let chat = chat("m").to_string();
    let length = chat.len();
    let mut client = RawClient::connect(service.address("gateway"));
    client.send(format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nX-API-Key: k\r\n{more}{headers}\
         Content-Length: {length}\r\n\r\n{chat}"
    ));
    client.read_answer().unwrap().status
}

#[test]
fn a_body_that_is_not_json_in_utf8_by_its_head_is_refused_and_free() {
    let model = ModelServer::start();
    let service = start(&model);
    for is_fast in [true, false] {
        for headers in [
            "Content-Type: application/json; charset=utf-7\r\n",
            "Content-Type: application/json;charset=\"UTF-7\"\r\n",
            "Content-Type: application/json; charset=utf-16le\r\n",
            "Content-Type: application/json; charset=utf-8; charset=utf-7\r\n",
            "Content-Type: application/json; charset*=utf-8''utf-7\r\n",
            "Content-Type: application/json\r\nContent-Type: application/json; charset=utf-7\r\n",
            "Content-Type: application/json\r\ncontent-type: application/json\r\n",
            "Content-Type: text/plain\r\n",
            "Content-Type: application/x-www-form-urlencoded\r\n",
            "Content-Type: multipart/form-data; boundary=x\r\n",
            "Content-Type: \r\n",
            "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
            "Content-Encoding: identity\r\nContent-Encoding: br\r\n",
        ] {
            assert_eq!(status(&service, is_fast, headers), 415, "{headers}");
        }
    }
    assert!(model.requests().is_empty());
    assert_eq!(charged(&service), [0; 4]);
}

#[test]
fn headers_that_say_otherwise_to_some_servers_are_not_forwarded() {
    let model = ModelServer::start();
    let service = start(&model);
    for (is_fast, headers) in [
        (false, "Content_Type: application/json; charset=utf-7\r\n"),
        (false, "Content.Type: application/json; charset=utf-7\r\n"),
        (false, "Content_Encoding: gzip\r\n"),
        (true, "Content~Type: text/plain\r\n"),
        (true, "Range: bytes=0-1\r\nIf-Range: x\r\n"),
        (false, "Range: bytes=0-1\r\n"),
    ] {
        let status = status(&service, is_fast, headers);
        assert!(matches!(status, 200 | 400), "{headers}: {status}");
    }
    for request in model.requests() {
        let mut names = request.headers.iter().map(|(name, _)| name.to_lowercase());
        let found = names.find(|name| name.starts_with("content") && *name != "content-length");
        assert_eq!(found, None);
        assert!(request.values("range").is_empty() && request.values("if-range").is_empty());
    }
}

#[test]
fn a_body_that_is_json_in_utf8_by_its_head_is_counted() {
    let model = ModelServer::start();
    let service = start(&model);
    let mut count = 0;
    for is_fast in [true, false] {
        for headers in [
            "",
            "Content-Type: application/json\r\n",
            "Content-Type: Application/JSON; Charset=\"UTF-8\"\r\n",
            "Content-Type: application/vnd.api+json; version=1\r\n",
            "Content-Encoding: identity\r\n",
        ] {
            assert_eq!(status(&service, is_fast, headers), 200, "{headers}");
            count += 1;
        }
    }
    assert_eq!(charged(&service), REPORTED.map(|number| number * count));
}
