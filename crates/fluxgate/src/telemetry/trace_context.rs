//! The W3C trace context of a request, and the ids that log lines name it by.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;

use std::fmt;

use fluxgate_http::server::Origin;

/// A parsed `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace_id: Hex<16>,
    /// The caller's span.
    pub(crate) span_id: Hex<8>,
    /// Whether the caller records its span.
    pub(super) sampled: bool,
}

/// The ids of a request in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestIds<'a> {
    pub(crate) request_id: &'a str,
    /// From the caller's `traceparent`, if it is valid.
    pub(crate) trace: Option<TraceContext>,
}

impl<'a> RequestIds<'a> {
    pub(crate) fn new(request_id: &'a str, traceparent: Option<&str>) -> Self {
        Self {
            request_id,
            trace: traceparent.and_then(TraceContext::parse),
        }
    }
}

/// A request without a trace.
impl<'a> From<&'a str> for RequestIds<'a> {
    fn from(request_id: &'a str) -> Self {
        Self::new(request_id, None)
    }
}

impl<'a> From<&'a Origin<'_>> for RequestIds<'a> {
    fn from(origin: &'a Origin<'_>) -> Self {
        Self::new(origin.request_id(), origin.traceparent)
    }
}

/// Bytes that are displayed as hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hex<const N: usize>(pub(super) [u8; N]);

impl TraceContext {
    /// Parses a header. Returns `None` if it is invalid in any way.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let mut parts = header.splitn(4, '-');
        let Hex([version]) = Hex::<1>::parse(parts.next()?)?;
        let trace_id = Hex::parse(parts.next()?)?;
        let span_id = Hex::parse(parts.next()?)?;
        let rest = parts.next()?;
        // Later versions may append fields after another dash.
        let flags = match version {
            0x00 => rest,
            0xff => return None,
            _ => rest.split('-').next()?,
        };
        let Hex([flags]) = Hex::<1>::parse(flags)?;
        let is_valid = trace_id.0 != [0; 16] && span_id.0 != [0; 8];
        is_valid.then_some(Self {
            trace_id,
            span_id,
            sampled: flags & 1 == 1,
        })
    }
}

impl<const N: usize> Hex<N> {
    /// Parses exactly two digits for each byte, in lower case.
    fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * N {
            return None;
        }
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

fn digit(char: u8) -> Option<u8> {
    match char {
        b'0'..=b'9' => Some(char - b'0'),
        b'a'..=b'f' => Some(char - b'a' + 10),
        _ => None,
    }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn valid_headers_are_parsed() {
        for (version, rest, sampled) in [
            ("00", "01", true),
            ("00", "00", false),
            ("00", "03", true),
            ("01", "01", true),
            ("cc", "01-what-comes-later", true),
        ] {
            let header = format!("{version}-{TRACE}-{SPAN}-{rest}");
            let context = TraceContext::parse(&header).unwrap();
            assert_eq!(context.trace_id.to_string(), TRACE);
            assert_eq!(context.span_id.to_string(), SPAN);
            assert_eq!(context.sampled, sampled);
        }
    }

    #[test]
    fn invalid_headers_are_rejected() {
        let (zero_trace, zero_span) = ("0".repeat(32), "0".repeat(16));
        let upper = TRACE.to_uppercase();
        for bad in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("00-{upper}-{SPAN}-01"),
            format!("00-{zero_trace}-{SPAN}-01"),
            format!("00-{TRACE}-{zero_span}-01"),
            format!("00-{SPAN}-{TRACE}-01"),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("cc-{TRACE}-{SPAN}-01x"),
            format!("00-ä{}-{SPAN}-01", &TRACE[2..]),
        ] {
            assert_eq!(TraceContext::parse(&bad), None, "{bad}");
        }
    }
}
