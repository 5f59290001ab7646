//! Responses that two parsers could read differently. The client's connection stays in
//! sync.

mod ambiguous;
mod early;
mod truncated;
mod unsolicited;

use fluxgate_testkit::{RawClient, RawUpstream, wait_until};

use super::{OK, client, gateway};

/// What an upstream does with the connection after its response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Close,
    KeepOpen,
}

/// A response, and what a client may see of it.
struct Case {
    bytes: Vec<u8>,
    then: Then,
    /// Status and body, if it may be forwarded in an unambiguous form.
    forwarded: Option<(u16, &'static str)>,
}

/// Returns a case that must not be forwarded as a complete response.
fn invalid(bytes: impl AsRef<[u8]>) -> Case {
    Case {
        bytes: bytes.as_ref().to_vec(),
        then: Then::KeepOpen,
        forwarded: None,
    }
}

/// Returns a case that may be forwarded in this form.
fn valid(bytes: impl AsRef<[u8]>, status: u16, body: &'static str) -> Case {
    Case {
        forwarded: Some((status, body)),
        ..invalid(bytes)
    }
}

impl Case {
    fn then_close(self) -> Self {
        Self {
            then: Then::Close,
            ..self
        }
    }
}

/// Runs all cases and reports all failures.
fn run(cases: Vec<Case>) {
    let script: Vec<_> = cases
        .iter()
        .map(|case| (case.bytes.clone(), case.then))
        .collect();
    let upstream = RawUpstream::start(move |connection| {
        while let Some(request) = connection.read_request() {
            let number = request.target.strip_prefix("/case/");
            match number.map(|number| &script[number.parse::<usize>().unwrap()]) {
                None => connection.send(OK),
                Some((bytes, then)) => {
                    connection.send(bytes);
                    if *then == Then::Close {
                        return;
                    }
                }
            }
        }
    });
    let service = gateway(
        &[upstream.address()],
        "  timeouts: { request: 5s, idle: 5s }\n",
    );
    let mut failures = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        for is_first in [true, false] {
            let mut client = client(&service);
            let before = (!is_first).then(|| client.get("/before").unwrap().status);
            assert_eq!(before.unwrap_or(200), 200);
            if let Err(why) = run_case(case, number, &mut client, &upstream) {
                let bytes = case.bytes.escape_ascii().to_string();
                let bytes = &bytes[..bytes.len().min(300)];
                failures.push(format!("first: {is_first} {bytes}\n    {why}"));
            }
            // The next client is not affected.
            let next = super::client(&service).get("/next").unwrap();
            if (next.status, next.text().as_str()) != (200, "ok") {
                failures.push(format!("the next client after case {number}: {next:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn run_case(
    case: &Case,
    number: usize,
    client: &mut RawClient,
    upstream: &RawUpstream,
) -> Result<(), String> {
    let mut response = client.get(&format!("/case/{number}"));
    while response
        .as_ref()
        .is_ok_and(|response| response.status < 200)
    {
        response = client.read_answer();
    }
    let response = match response {
        // Closed early, which no client takes for a complete response.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            // Before the head is sent, the gateway must respond with an error instead.
            let has_head = error.to_string().contains("HTTP/1.1 ");
            return has_head
                .then_some(())
                .ok_or(format!("no response: {error}"));
        }
        Err(error) => return Err(error.to_string()),
        Ok(response) => response,
    };
    let received = (response.status, response.text());
    let is_expected = |(status, body): (u16, &str)| received == (status, body.to_owned());
    if received.0 != 502 && !case.forwarded.is_some_and(is_expected) {
        return Err(format!("{response:?}"));
    }
    if response.is_last() {
        let more = client.read_to_end().map_err(|error| error.to_string())?;
        return more
            .is_empty()
            .then_some(())
            .ok_or(format!("more: {}", more.escape_ascii()));
    }
    if case.then == Then::Close {
        // The gateway may not send a request over a connection that is closing.
        let target = format!("/case/{number} ");
        wait_until("the upstream has closed the connection", || {
            let received = upstream.received();
            let mut received = received.iter();
            received.all(|it| it.is_over || !it.bytes.escape_ascii().to_string().contains(&target))
        });
    }
    let next = client.get("/next").map_err(|error| error.to_string())?;
    match (next.status, next.text().as_str()) {
        (200, "ok") => Ok(()),
        _ => Err(format!("the next response: {next:?}")),
    }
}
