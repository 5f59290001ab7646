//! The requested lifetime of a hold, in the API and in commands.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use fluxgate_core::rules::values::parse_hold;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Parses a duration from 1s to 24h. The error names the field.
pub(crate) fn parse_hold_span(field: &str, text: &str) -> Result<Duration, String> {
    let error =
        || format!("`{field}` must be a duration from 1s to 24h, such as 60s, not {text:?}");
    parse_hold(text).ok_or_else(error)
}

/// The text of a duration in JSON, for [`parse_hold_span`]. The error of another type says what
/// to write.
#[derive(Debug)]
pub(crate) struct HoldText<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for HoldText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HoldVisitor;

        impl<'de> Visitor<'de> for HoldVisitor {
            type Value = HoldText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration from 1s to 24h, such as \"60s\"")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(HoldText(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(HoldText(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(HoldVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_lives_for_a_second_to_a_day() {
        for (text, seconds) in [("1s", Some(1)), ("60s", Some(60)), ("24h", Some(86_400))] {
            let span = parse_hold_span("hold", text).ok();
            assert_eq!(span.map(|span| span.as_secs()), seconds);
        }
        for text in ["", "999ms", "25h", "60", "1.5s", "-1s"] {
            let fault = parse_hold_span("hold", text).unwrap_err();
            assert!(fault.starts_with("`hold` must be a duration"), "{text}");
        }
    }
}
