//! Requests, read in place.

use smallvec::SmallVec;

/// How many arguments a request may have, the name of the command included.
pub(super) const MOST_ARGUMENTS: usize = 1_024;
/// How long an argument may be, and a request of one line.
pub(super) const LONGEST_ARGUMENT: usize = 64 * 1024;
/// How long a request may be in all.
pub(super) const LONGEST_REQUEST: usize = 128 * 1024;
/// How long a line with a length may be.
const LONGEST_NUMBER: usize = 12;

/// The arguments of a request, the name of the command first. Most requests
/// have few.
pub(super) type Arguments<'a> = SmallVec<[&'a [u8]; 16]>;

/// What bytes come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request of so many bytes. It asks for nothing if it has no arguments.
    Whole(Form, usize),
    /// The beginning of a request; nothing new can be said of it before there
    /// are so many bytes.
    Partial(usize),
}

/// How a request was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An array of bulk strings, as clients send it.
    Array,
    /// A line of words, as people type it.
    Inline,
}

/// Why bytes are no request. Where the next one begins is not known then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    /// The number of arguments.
    #[error("invalid multibulk length")]
    Count,
    /// The length of an argument.
    #[error("invalid bulk length")]
    Length,
    /// Something else where an argument should begin.
    #[error("expected '$', got '{}'", .0.escape_ascii())]
    NoArgument(u8),
    /// No line end after an argument or a number.
    #[error("expected a line end")]
    NoLineEnd,
    /// All arguments together.
    #[error("too big request")]
    TooLong,
    /// A line without an end.
    #[error("too big inline request")]
    LongLine,
    /// Quotes, which only people need.
    #[error("quotes in an inline request")]
    Quotes,
}

/// Reads the first request in `input`, which is not empty, into `arguments`.
#[inline]
pub(super) fn parse<'a>(
    input: &'a [u8],
    arguments: &mut Arguments<'a>,
) -> Result<Parsed, ProtocolError> {
    arguments.clear();
    match input.first() {
        Some(b'*') => parse_array(input, arguments),
        _ => parse_line(input, arguments),
    }
}

fn parse_array<'a>(
    input: &'a [u8],
    arguments: &mut Arguments<'a>,
) -> Result<Parsed, ProtocolError> {
    let (count, mut at) = match number(input, 1, ProtocolError::Count)? {
        Number::Whole(count, at) => (count, at),
        Number::Partial => return Ok(Parsed::Partial(input.len() + 1)),
    };
    // As Redis has it, no arguments or fewer are no request and no fault.
    let Ok(count) = usize::try_from(count) else {
        return Ok(Parsed::Whole(Form::Array, at));
    };
    if count > MOST_ARGUMENTS {
        return Err(ProtocolError::Count);
    }
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(Parsed::Partial(input.len() + 1)),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoArgument(*other)),
        }
        let (length, start) = match number(input, at + 1, ProtocolError::Length)? {
            Number::Whole(length, start) => (length, start),
            Number::Partial => return Ok(Parsed::Partial(input.len() + 1)),
        };
        let length = usize::try_from(length).map_err(|_| ProtocolError::Length)?;
        if length > LONGEST_ARGUMENT {
            return Err(ProtocolError::Length);
        }
        let end = start + length;
        at = end + 2;
        if at > LONGEST_REQUEST {
            return Err(ProtocolError::TooLong);
        }
        match input.get(end..at) {
            Some(b"\r\n") => arguments.push(&input[start..end]),
            Some(_) => return Err(ProtocolError::NoLineEnd),
            None => return Ok(Parsed::Partial(at)),
        }
    }
    Ok(Parsed::Whole(Form::Array, at))
}

/// A number and where it ends, its line end included.
enum Number {
    Whole(i64, usize),
    Partial,
}

/// Reads the number that begins at `start`.
#[inline]
fn number(input: &[u8], start: usize, fault: ProtocolError) -> Result<Number, ProtocolError> {
    let mut rest = input[start..].iter();
    let mut number = 0_i64;
    let mut negative = false;
    for index in 0.. {
        match rest.next() {
            None => return Ok(Number::Partial),
            // So few digits fit.
            Some(_) if index == LONGEST_NUMBER => return Err(fault),
            Some(digit @ b'0'..=b'9') => number = number * 10 + i64::from(digit - b'0'),
            Some(b'-') if index == 0 => negative = true,
            Some(b'\r') if index > usize::from(negative) => {
                let at = start + index + 2;
                return match rest.next() {
                    None => Ok(Number::Partial),
                    Some(b'\n') if negative => Ok(Number::Whole(-number, at)),
                    Some(b'\n') => Ok(Number::Whole(number, at)),
                    Some(_) => Err(ProtocolError::NoLineEnd),
                };
            }
            Some(_) => return Err(fault),
        }
    }
    Err(fault)
}

#[cold]
fn parse_line<'a>(input: &'a [u8], arguments: &mut Arguments<'a>) -> Result<Parsed, ProtocolError> {
    let within = &input[..input.len().min(LONGEST_ARGUMENT)];
    let Some(end) = memchr::memchr(b'\n', within) else {
        return match within.len() < LONGEST_ARGUMENT {
            true => Ok(Parsed::Partial(input.len() + 1)),
            false => Err(ProtocolError::LongLine),
        };
    };
    let line = &input[..end];
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return Err(ProtocolError::Quotes);
    }
    let words = line.split(u8::is_ascii_whitespace);
    for word in words.filter(|word| !word.is_empty()) {
        if arguments.len() == MOST_ARGUMENTS {
            return Err(ProtocolError::Count);
        }
        arguments.push(word);
    }
    Ok(Parsed::Whole(Form::Inline, end + 1))
}

/// Parses an integer argument: digits, after an optional minus.
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

    /// The arguments as text, and the length.
    fn whole(input: &[u8]) -> (Vec<String>, usize) {
        let mut arguments = Arguments::new();
        let Ok(Parsed::Whole(_, length)) = parse(input, &mut arguments) else {
            panic!("not whole: {}", input.escape_ascii());
        };
        let text = |argument: &&[u8]| argument.escape_ascii().to_string();
        (arguments.iter().map(text).collect(), length)
    }

    fn outcome(input: &[u8]) -> Result<Parsed, ProtocolError> {
        parse(input, &mut Arguments::new())
    }

    #[test]
    fn requests_are_read() {
        let ping = b"*1\r\n$4\r\nPING\r\n*1\r\n";
        assert_eq!(whole(ping), (vec!["PING".into()], 14));
        let echo = b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\0x\r\n";
        assert_eq!(whole(echo).0, ["ECHO", "\\r\\n\\x00x"]);
        assert_eq!(whole(b"*1\r\n$0\r\n\r\n").0, [""]);
        assert_eq!(whole(b"*0\r\nX"), (vec![], 4));
        assert_eq!(whole(b"*-1\r\nX"), (vec![], 5));
    }

    #[test]
    fn lines_are_read() {
        assert_eq!(whole(b"PING\r\nX"), (vec!["PING".into()], 6));
        assert_eq!(whole(b"  echo \t hi \n").0, ["echo", "hi"]);
        assert_eq!(whole(b"\r\n"), (vec![], 2));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        use ProtocolError::*;
        let long_line = [b'a'; LONGEST_ARGUMENT + 10];
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
            let input = &input[..input.len().min(LONGEST_ARGUMENT + 10)];
            assert_eq!(outcome(input), Err(error), "{}", input.escape_ascii());
        }
        let mut three = b"*3\r\n".to_vec();
        for _ in 0..3 {
            three.extend(format!("${LONGEST_ARGUMENT}\r\n").bytes());
            three.extend([b'a'; LONGEST_ARGUMENT]);
            three.extend(b"\r\n");
        }
        assert_eq!(outcome(&three), Err(TooLong));
    }

    #[test]
    fn every_beginning_of_a_request_waits_for_more() {
        let request = b"*2\r\n$4\r\nECHO\r\n$11\r\nhello world\r\n";
        for length in 1..request.len() {
            let Ok(Parsed::Partial(needed)) = outcome(&request[..length]) else {
                panic!("{length}");
            };
            assert!((length + 1..=request.len()).contains(&needed), "{length}");
        }
        assert_eq!(outcome(&request[..22]), Ok(Parsed::Partial(request.len())));
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
