//! Invalid requests are explained, and do not affect other clients.

use std::io::{Read, Write};
use std::net::TcpStream;

use fluxgate_testkit::WAIT_TIMEOUT;
use serde_json::Value;

use super::{RULES, json_of};
use crate::service::Service;

/// Lines `ENDPOINT BODY -> DETAIL`, with the beginning of the problem's detail.
const INVALID: &str = r#"
check  -> the body is not a JSON object
check [] -> the body is not a JSON object
check { -> EOF while parsing an object (line 1, column 1)
check {} -> `rule_set` is missing
check {"rule_set":"api"} x -> trailing characters (line 1, column 20)
check {"nope":1} -> unknown field `nope`, expected one of `rule_set`
check {"user":"a","user":"b"} -> duplicate field `user`
check {"user":7} -> `user`: invalid type: integer `7`, expected a string
check {"rule_set":"api","ip":"1.2.3"} -> `ip` must be an IP address, found "1.2.3"
check {"rule_set":"api","cost":-1} -> `cost` must be a whole number from 0
check {"rule_set":"api","cost":1.5} -> `cost` must be a whole number from 0
check {"rule_set":"api","cost":"1"} -> `cost` must be a whole number from 0
check {"peek":"yes"} -> `peek`: invalid type: string "yes", expected a boolean
check {"headers":{"a":[]}} -> `headers`: the value of "a" must be a string
check {"rule_set":"api","headers":{"a":1,"A":2}} -> header "A" appears twice
check?status=maybe {"rule_set":"api"} -> `status` must be true or false
check?verbose=1 {"rule_set":"api"} -> the query may contain only `status` and `failed_closed_status`
check/batch {} -> missing field `checks`
check/batch {"checks":7} -> `checks`: invalid type: integer `7`
check/batch {"checks":[[]]} -> `checks[0]`: invalid type: sequence, expected an object
check/batch {"checks":[{"ip":7}]} -> `checks[0]`: `ip`: invalid type: integer `7`
check/batch {"checks":[{"rule_set":"api"},{}]} -> `checks[1]`: `rule_set` is missing
consume {} -> `rule_id` is missing
consume {"rule_id":null} -> `rule_id` is missing
consume {"refillTokensPerSecond":1,"capacity":5} -> `ruleId` is missing
consume {"rule_id":"x","ruleId":"x","capacity":5,"refillTokensPerSecond":1} -> `ruleId` is another name of `rule_id`; give one of them
consume {"ruleId":"x","capacity":5,"refill_tokens_per_second":1,"refillTokensPerSecond":1} -> `refillTokensPerSecond` is another name of `refill_tokens_per_second`
consume {"ruleId":"x"} -> `ruleId` must be "SET/RULE" if `capacity` and `refillTokensPerSecond` are not given
consume {"ruleId":"","capacity":1,"refillTokensPerSecond":1} -> `ruleId` must have 1 to 200 bytes
consume {"ruleId":"x","capacity":5} -> `refillTokensPerSecond` is missing
consume {"ruleId":"x","capacity":5,"refillTokensPerSecond":0} -> `refillTokensPerSecond` must be a number above 0 with at most 6 decimals
consume {"ruleId":7} -> `ruleId`: invalid type: integer `7`, expected a string
consume {"rule_id":"x"} -> `rule_id` must be "SET/RULE"
consume {"rule_id":"","capacity":1,"refill_tokens_per_second":1} -> `rule_id` must have 1 to 200 bytes
consume {"rule_id":"x","capacity":5} -> `refill_tokens_per_second` is missing
consume {"rule_id":"x","refill_tokens_per_second":5} -> `capacity` is missing
consume {"rule_id":"x","capacity":0,"refill_tokens_per_second":5} -> `capacity` must be a whole number
consume {"rule_id":"x","capacity":5,"refill_tokens_per_second":0.0000001} -> `refill_tokens_per_second` must be a number above 0 with at most 6 decimals
consume {"rule_id":"x","capacity":5,"refill_tokens_per_second":1e-7} -> `refill_tokens_per_second` must be a number above 0 with at most 6 decimals
consume {"rule_id":"x","capacity":5,"refill_tokens_per_second":1234.567891} -> `refill_tokens_per_second` must be at most 1000000000, and so must be its numerator
consume {"rule_id":"x","capacity":1000000000,"refill_tokens_per_second":1e-6} -> `capacity` and `refill_tokens_per_second`: filling from empty would take more than
consume {"rule_id":"x","identity":[1],"capacity":5,"refill_tokens_per_second":1} -> `identity[0]`: invalid type: integer `1`
consume {"rule_id":"api/by-user","identity":"a","cost":-1} -> `cost` must be a whole number from 0
consume {"rule_id":"api/by-user"} -> `identity`: the key has 1 part(s), the identity 0 value(s)
"#;

#[test]
fn the_invalid_field_is_named() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for line in INVALID.trim().lines() {
        let (call, expected) = line.split_once(" -> ").unwrap();
        let (endpoint, body) = call.split_once(' ').unwrap();
        let answer = http.post(&format!("/v1/{endpoint}"), body);
        assert_eq!(answer.status, 400, "{line}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        let problem = json_of(&answer);
        assert_eq!(problem["title"], "Bad Request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(expected), "{line}: {detail}");
    }
}

/// The same rule for every call with a body, on the fast path and elsewhere.
#[test]
fn a_body_is_declared_as_json_or_not_at_all() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let rule = r#"{"rule_set":"api","rule":"by-user","identity":"a"}"#;
    for (path, body) in [
        ("/v1/check", r#"{"rule_set":"api"}"#),
        ("/v1/check?status=false", r#"{"rule_set":"api"}"#),
        ("/v1/check/batch", r#"{"checks":[]}"#),
        (
            "/v1/consume",
            r#"{"rule_id":"x","capacity":9,"refill_tokens_per_second":1}"#,
        ),
        ("/api/ratelimit/check", r#"{"ruleSetId":"api"}"#),
        ("/v1/reset", rule),
        (
            "/v1/refund",
            r#"{"rule_set":"api","rule":"by-user","identity":"a","units":1}"#,
        ),
    ] {
        let mut status = |types: &[&str]| {
            let headers: Vec<_> = types.iter().map(|kind| ("Content-Type", *kind)).collect();
            let answer = http.request("POST", path, &headers, body);
            if answer.status == 415 {
                let detail = json_of(&answer)["detail"].to_string();
                let expected = format!(
                    "`Content-Type` must be application/json, not {}",
                    types[types.len() - 1]
                );
                assert!(detail.contains(&expected), "{detail}");
            }
            answer.status
        };
        for accepted in [
            &[][..],
            &["application/json"],
            &["application/json; charset=utf-8"],
            &["application/merge-patch+json"],
            // The default of `curl -d`.
            &["application/x-www-form-urlencoded"],
        ] {
            assert_eq!(status(accepted), 200, "{path} {accepted:?}");
        }
        for refused in [&["text/plain"][..], &["application/json", "text/plain"]] {
            assert_eq!(status(refused), 415, "{path} {refused:?}");
        }
    }
}

#[test]
fn other_errors_have_their_own_status() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let large = format!("{{\"user\":\"{}\"}}", "x".repeat(64 * 1024));
    let long = "x".repeat(128 * 1024);
    for (method, path, headers, body, status) in [
        ("GET", "/nothing", &[][..], "", 404),
        ("GET", "/v1/check", &[], "", 405),
        ("PUT", "/v1/check/batch", &[], "{}", 405),
        ("POST", "/livez", &[], "", 405),
        ("POST", "/v1/check", &[], &large, 413),
        ("POST", "/v1/consume", &[], &large, 413),
        ("POST", "/v1/check", &[("X-Long", &long[..])], "{}", 431),
    ] {
        // A new connection, because some of these requests close theirs.
        let mut http = service.http();
        let answer = http.request(method, path, headers, body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        assert_eq!(json_of(&answer)["status"], Value::from(status));
        if status == 405 {
            assert!(answer.header("allow").is_some(), "{method} {path}");
        }
    }
    assert_eq!(http.get("/livez").status, 200);
}

#[test]
fn garbage_affects_only_its_own_connection() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let mut seed = 7_u64;
    for length in 0..200 {
        let mut garbage = vec![0; length];
        for byte in &mut garbage {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (seed >> 56) as u8;
        }
        if length % 3 == 0 {
            let mut start =
                b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n".to_vec();
            start.extend_from_slice(&garbage);
            garbage = start;
        }
        let mut stream = TcpStream::connect(service.address("api")).unwrap();
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        // The service may close the connection before all has been sent.
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        let answer = http.post("/v1/check", r#"{"rule_set":"api"}"#);
        assert_eq!(answer.status, 200);
    }
    assert!(service.program.ended().is_none());
    let panics = service
        .program
        .lines()
        .into_iter()
        .filter(|line| line.contains("panicked"));
    assert_eq!(panics.count(), 0);
}

#[test]
fn a_body_may_arrive_in_many_chunks() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    let mut request =
        b"POST /v1/check HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for byte in r#"{"rule_set":"api","user":"u1"}"#.bytes() {
        request.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
    }
    request.extend_from_slice(b"0\r\n\r\n");
    for piece in request.chunks(7) {
        http.send_raw(piece).unwrap();
    }
    let answer = http.read_answer(false).unwrap();
    assert_eq!(json_of(&answer)["rule"], "by-user");
}

#[test]
fn invalid_utf8_in_json_is_refused_and_charges_nothing() {
    let service = Service::start(&[], RULES);
    let mut http = service.http();
    for body in [
        &b"{\"rule_set\":\"api\",\"user\":\"ann\xff\"}"[..],
        b"{\"rule_set\":\"api\",\"user\":\"ann\xc3\x28\"}",
        br#"{"rule_set":"api","user":"ann\ud800"}"#,
        br#"{"rule_set":"api","user":"ann","headers":{"X-A":"\udfff"}}"#,
    ] {
        for (path, wrap) in [
            ("/v1/check", false),
            ("/v1/check?status=true", false),
            ("/v1/check/batch", true),
        ] {
            let body = if wrap {
                [b"{\"checks\":[", body, b"]}"].concat()
            } else {
                body.to_vec()
            };
            let length = body.len();
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
            http.send_raw(&[head.as_bytes(), &body].concat()).unwrap();
            let answer = http.read_answer(false).unwrap();
            assert_eq!(answer.status, 400, "{}: {answer:?}", body.escape_ascii());
            let kind = answer.header("content-type");
            assert_eq!(kind, Some("application/problem+json"));
        }
    }
    let body = r#"{"rule_set":"api","user":"ann"}"#;
    assert_eq!(json_of(&http.post("/v1/check", body))["remaining"], 1);
}
