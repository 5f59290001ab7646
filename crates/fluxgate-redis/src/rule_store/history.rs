//! The past changes of a rule set.

/// A change of a rule set, for its history.
#[derive(Clone, Copy, Debug)]
pub struct RuleChange<'a> {
    /// The caller's name.
    pub who: &'a str,
    /// What is done, such as `put rule set`.
    pub what: &'a str,
}

impl<'a> RuleChange<'a> {
    /// Returns a change that a program makes on its own, without a caller's name.
    pub const fn by_program(what: &'a str) -> Self {
        Self { who: "", what }
    }
}

/// A past change of a rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastChange {
    /// When it was made, in milliseconds since 1970 by the server's clock.
    pub at_ms: u64,
    /// Who made it.
    pub who: String,
    /// What was done.
    pub what: String,
    /// The text after it; `None` if the set was deleted.
    pub text: Option<String>,
}

/// Returns the line of a change: who and what, separated by a tab. The script adds the time and
/// the text.
pub(super) fn change_line(change: &RuleChange<'_>) -> String {
    let clean = |text: &str| text.replace(['\t', '\n'], " ");
    format!("{}\t{}", clean(change.who), clean(change.what))
}

impl PastChange {
    /// Reads an entry of the list; `None` if something else wrote it.
    pub(super) fn read(entry: &str) -> Option<Self> {
        let (line, text) = entry.split_once('\n')?;
        let (at, line) = line.split_once(' ')?;
        let (who, what) = line.split_once('\t')?;
        Some(Self {
            at_ms: at.parse().ok()?,
            who: who.to_owned(),
            what: what.to_owned(),
            text: (!text.is_empty()).then(|| text.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let written = RuleChange {
            who: "a\tnn",
            what: "put rule set",
        };
        let entry = format!("17 {}\n{{\n}}", change_line(&written));
        let change = PastChange::read(&entry).unwrap();
        assert_eq!((change.at_ms, &*change.who), (17, "a nn"));
        assert_eq!(change.what, "put rule set");
        assert_eq!(change.text.as_deref(), Some("{\n}"));
        assert_eq!(PastChange::read("x"), None);
    }
}
