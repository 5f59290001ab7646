//! The parser of requests. Arguments borrow from the input.

use smallvec::SmallVec;

/// How many arguments a request may have, including the command's name.
pub(super) const MAX_ARGUMENTS: usize = 1_024;
/// The maximum length of an argument, and of an inline request.
pub(super) const MAX_ARGUMENT_BYTES: usize = 64 * 1024;
/// The maximum length of a request.
pub(super) const MAX_REQUEST_BYTES: usize = 128 * 1024;
/// The maximum length of a number.
const MAX_NUMBER_BYTES: usize = 12;

/// The arguments of a request, starting with the command's name. Most requests have few.
pub(super) type Arguments<'a> = SmallVec<[&'a [u8]; 16]>;

/// The result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedRequest {
    /// A complete request and its length. It is ignored if it has no arguments.
    Whole(RequestForm, usize),
    /// The beginning of a request, and the length of input that is needed to parse on.
    Partial(usize),
}

/// The form of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestForm {
    /// An array of bulk strings, which clients send.
    Array,
    /// A line of words, which humans type.
    Inline,
}

/// A violation of the protocol. Where the next request starts is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("invalid multibulk length")]
    Count,
    #[error("invalid bulk length")]
    Length,
    #[error("expected '$', got '{}'", .0.escape_ascii())]
    NoArgument(u8),
    #[error("expected CRLF")]
    NoLineEnd,
    #[error("too big request")]
    TooLong,
    #[error("too big inline request")]
    LongLine,
    #[error("quotes are not supported in inline requests")]
    Quotes,
}

/// Parses the first request in `input`, which is not empty, into `arguments`.
#[inline]
pub(super) fn parse<'a>(
    input: &'a [u8],
    arguments: &mut Arguments<'a>,
) -> Result<ParsedRequest, ProtocolError> {
    arguments.clear();
    match input.first() {
        Some(b'*') => parse_array(input, arguments),
        _ => parse_line(input, arguments),
    }
}

fn parse_array<'a>(
    input: &'a [u8],
    arguments: &mut Arguments<'a>,
) -> Result<ParsedRequest, ProtocolError> {
    let (count, mut at) = match number(input, 1, ProtocolError::Count)? {
        ParsedNumber::Whole(count, at) => (count, at),
        ParsedNumber::Partial => return Ok(ParsedRequest::Partial(input.len() + 1)),
    };
    // Like Redis, ignores a request with a negative number of arguments.
    let Ok(count) = usize::try_from(count) else {
        return Ok(ParsedRequest::Whole(RequestForm::Array, at));
    };
    if count > MAX_ARGUMENTS {
        return Err(ProtocolError::Count);
    }
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(ParsedRequest::Partial(input.len() + 1)),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoArgument(*other)),
        }
        let (length, start) = match number(input, at + 1, ProtocolError::Length)? {
            ParsedNumber::Whole(length, start) => (length, start),
            ParsedNumber::Partial => return Ok(ParsedRequest::Partial(input.len() + 1)),
        };
        let length = usize::try_from(length).map_err(|_| ProtocolError::Length)?;
        if length > MAX_ARGUMENT_BYTES {
            return Err(ProtocolError::Length);
        }
        let end = start + length;
        at = end + 2;
        if at > MAX_REQUEST_BYTES {
            return Err(ProtocolError::TooLong);
        }
        match input.get(end..at) {
            Some(b"\r\n") => arguments.push(&input[start..end]),
            Some(_) => return Err(ProtocolError::NoLineEnd),
            None => return Ok(ParsedRequest::Partial(at)),
        }
    }
    Ok(ParsedRequest::Whole(RequestForm::Array, at))
}

enum ParsedNumber {
    /// A number, and where the input continues after its line end.
    Whole(i64, usize),
    Partial,
}

/// Parses the number that starts at `start`.
#[inline]
fn number(input: &[u8], start: usize, fault: ProtocolError) -> Result<ParsedNumber, ProtocolError> {
    let mut rest = input[start..].iter();
    let mut number = 0_i64;
    let mut negative = false;
    for index in 0.. {
        match rest.next() {
            None => return Ok(ParsedNumber::Partial),
            // More digits could overflow.
            Some(_) if index == MAX_NUMBER_BYTES => return Err(fault),
            Some(digit @ b'0'..=b'9') => number = number * 10 + i64::from(digit - b'0'),
            Some(b'-') if index == 0 => negative = true,
            Some(b'\r') if index > usize::from(negative) => {
                let at = start + index + 2;
                return match rest.next() {
                    None => Ok(ParsedNumber::Partial),
                    Some(b'\n') if negative => Ok(ParsedNumber::Whole(-number, at)),
                    Some(b'\n') => Ok(ParsedNumber::Whole(number, at)),
                    Some(_) => Err(ProtocolError::NoLineEnd),
                };
            }
            Some(_) => return Err(fault),
        }
    }
    Err(fault)
}

#[cold]
fn parse_line<'a>(
    input: &'a [u8],
    arguments: &mut Arguments<'a>,
) -> Result<ParsedRequest, ProtocolError> {
    let start = &input[..input.len().min(MAX_ARGUMENT_BYTES)];
    let Some(end) = memchr::memchr(b'\n', start) else {
        return if start.len() < MAX_ARGUMENT_BYTES {
            Ok(ParsedRequest::Partial(input.len() + 1))
        } else {
            Err(ProtocolError::LongLine)
        };
    };
    let line = &input[..end];
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return Err(ProtocolError::Quotes);
    }
    let words = line.split(u8::is_ascii_whitespace);
    for word in words.filter(|word| !word.is_empty()) {
        if arguments.len() == MAX_ARGUMENTS {
            return Err(ProtocolError::Count);
        }
        arguments.push(word);
    }
    Ok(ParsedRequest::Whole(RequestForm::Inline, end + 1))
}

/// Parses an integer argument: an optional minus and digits.
#[inline]
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number
            .checked_mul(10)?
            .checked_add(i64::from(digit - b'0'))?;
    }
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the arguments as text, and the length of the request.
    fn whole(input: &[u8]) -> (Vec<String>, usize) {
        let mut arguments = Arguments::new();
        let Ok(ParsedRequest::Whole(_, length)) = parse(input, &mut arguments) else {
            panic!("not whole: {}", input.escape_ascii());
        };
        let text = |argument: &&[u8]| argument.escape_ascii().to_string();
        (arguments.iter().map(text).collect(), length)
    }

    fn parsed(input: &[u8]) -> Result<ParsedRequest, ProtocolError> {
        parse(input, &mut Arguments::new())
    }

    #[test]
    fn arrays_are_parsed() {
        let ping = b"*1\r\n$4\r\nPING\r\n*1\r\n";
        assert_eq!(whole(ping), (vec!["PING".into()], 14));
        let echo = b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\0x\r\n";
        assert_eq!(whole(echo).0, ["ECHO", "\\r\\n\\x00x"]);
        assert_eq!(whole(b"*1\r\n$0\r\n\r\n").0, [""]);
        assert_eq!(whole(b"*0\r\nX"), (vec![], 4));
        assert_eq!(whole(b"*-1\r\nX"), (vec![], 5));
    }

    #[test]
    fn inline_requests_are_parsed() {
        assert_eq!(whole(b"PING\r\nX"), (vec!["PING".into()], 6));
        assert_eq!(whole(b"  echo \t hi \n").0, ["echo", "hi"]);
        assert_eq!(whole(b"\r\n"), (vec![], 2));
    }

    #[test]
    fn invalid_requests_are_rejected() {
        use ProtocolError::*;
        let long_line = [b'a'; MAX_ARGUMENT_BYTES + 10];
        for (input, error) in [
            (&b"*x\r\n"[..], Count),
            (b"*\r\n", Count),
            (b"*-\r\n", Count),
            (b"*1025\r\n", Count),
            (b"*123456789012345", Count),
            (b"*1\rx", NoLineEnd),
            (b"*1\r\n+OK", NoArgument(b'+')),
            (b"*1\r\n$-1\r\n", Length),
            (b"*1\r\n$65537\r\n", Length),
            (b"*1\r\n$1x\r\n", Length),
            (b"*1\r\n$1\r\nab\r\n", NoLineEnd),
            (b"ECHO \"a\"\r\n", Quotes),
            (&long_line, LongLine),
        ] {
            let input = &input[..input.len().min(MAX_ARGUMENT_BYTES + 10)];
            assert_eq!(parsed(input), Err(error), "{}", input.escape_ascii());
        }
        let mut three = b"*3\r\n".to_vec();
        for _ in 0..3 {
            three.extend(format!("${MAX_ARGUMENT_BYTES}\r\n").bytes());
            three.extend([b'a'; MAX_ARGUMENT_BYTES]);
            three.extend(b"\r\n");
        }
        assert_eq!(parsed(&three), Err(TooLong));
    }

    #[test]
    fn every_prefix_of_a_request_needs_more_bytes() {
        let request = b"*2\r\n$4\r\nECHO\r\n$11\r\nhello world\r\n";
        for length in 1..request.len() {
            let Ok(ParsedRequest::Partial(needed)) = parsed(&request[..length]) else {
                panic!("{length}");
            };
            assert!((length + 1..=request.len()).contains(&needed), "{length}");
        }
        assert_eq!(
            parsed(&request[..22]),
            Ok(ParsedRequest::Partial(request.len()))
        );
    }

    #[test]
    fn integers_are_only_digits() {
        for (text, number) in [
            ("0", Some(0)),
            ("-12", Some(-12)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("+1", None),
            (" 1", None),
            ("1.5", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), number, "{text}");
        }
    }
}
