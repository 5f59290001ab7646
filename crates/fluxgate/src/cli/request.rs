//! A request as an argument of a command.

use std::io::{self, Read};

use super::{Exit, Failure};

/// The maximum size of a request in a file or on standard input.
const MAX_REQUEST_BYTES: u64 = 1024 * 1024;

/// Reads a request: JSON, `@FILE`, or `-` for standard input.
pub(super) fn read_request(argument: &str) -> Result<Vec<u8>, Failure> {
    let read = |from: Box<dyn Read>| {
        let mut text = Vec::new();
        from.take(MAX_REQUEST_BYTES + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    let (name, text) = match argument.strip_prefix('@') {
        Some(path) => (
            path,
            std::fs::File::open(path).and_then(|it| read(Box::new(it))),
        ),
        None if argument == "-" => ("-", read(Box::new(io::stdin()))),
        None => return Ok(argument.into()),
    };
    let text =
        text.map_err(|error: io::Error| Failure::new(Exit::NoInput, format!("{name}: {error}")))?;
    if text.len() as u64 > MAX_REQUEST_BYTES {
        Err(Failure::new(
            Exit::Data,
            format!("--request: {name} is larger than {MAX_REQUEST_BYTES} bytes"),
        ))
    } else {
        Ok(text)
    }
}
