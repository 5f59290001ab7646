//! Answers that two parsers could read in two ways: a client's connection never
//! loses its place.

mod ambiguous;
mod cut;
mod early;
mod surplus;

use fluxgate_testkit::{RawUpstream, WireAnswer};

use super::{OK, client, gateway};

/// What an upstream does after its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Close,
    Stay,
}

/// An answer, and what a client may see of it.
struct Case {
    bytes: Vec<u8>,
    then: Then,
    /// Status and body, if it may be passed on in a clean form.
    clean: Option<(u16, &'static str)>,
}

/// It must not be passed on as a whole.
fn bad(bytes: impl AsRef<[u8]>) -> Case {
    Case {
        bytes: bytes.as_ref().to_vec(),
        then: Then::Stay,
        clean: None,
    }
}

/// It may be passed on in this form.
fn clean(bytes: impl AsRef<[u8]>, status: u16, body: &'static str) -> Case {
    Case {
        clean: Some((status, body)),
        ..bad(bytes)
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

/// Runs all cases and tells of all that fail.
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
            if let Err(why) = one(case, number, &mut client) {
                let bytes = case.bytes.escape_ascii().to_string();
                let bytes = &bytes[..bytes.len().min(300)];
                failures.push(format!("first: {is_first} {bytes}\n    {why}"));
            }
            // Whatever became of it, the next is told nothing of it.
            let next = super::client(&service).get("/next").unwrap();
            if (next.status, next.text().as_str()) != (200, "ok") {
                failures.push(format!("another after case {number}: {next:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn one(case: &Case, number: usize, client: &mut fluxgate_testkit::RawClient) -> Result<(), String> {
    let mut answer = client.get(&format!("/case/{number}"));
    while answer.as_ref().is_ok_and(|answer| answer.status < 200) {
        answer = client.read_answer();
    }
    let answer = match answer {
        // Cut off, which nobody can take for a whole answer.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            // Without a head there was no need to cut it.
            let has_head = error.to_string().contains("HTTP/1.1 ");
            return has_head.then_some(()).ok_or(format!("no answer: {error}"));
        }
        Err(error) => return Err(error.to_string()),
        Ok(answer) => answer,
    };
    let seen = (answer.status, answer.text());
    let is_clean = |(status, body): (u16, &str)| seen == (status, body.to_owned());
    if seen.0 != 502 && !case.clean.is_some_and(is_clean) {
        return Err(format!("{answer:?}"));
    }
    if answer.is_last() {
        let more = client.read_to_end().map_err(|error| error.to_string())?;
        return more
            .is_empty()
            .then_some(())
            .ok_or(format!("more: {}", more.escape_ascii()));
    }
    let next: WireAnswer = client.get("/next").map_err(|error| error.to_string())?;
    match (next.status, next.text().as_str()) {
        (200, "ok") => Ok(()),
        _ => Err(format!("the next: {next:?}")),
    }
}
