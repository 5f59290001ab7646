//! Writes a draft as a rule file with comments.

use std::fmt::Write as _;

use fluxgate_core::RuleSets;

use crate::draft::{Draft, InvalidDraft, Remark, on_one_line};

/// Returns the rule file of a draft. The remarks on a set or a rule are comments before it.
pub(crate) fn to_yaml(draft: &Draft, origin: &str) -> Result<String, InvalidDraft> {
    let mut text = format!("# Imported from {}\n", on_one_line(origin));
    write_comments(&draft.remarks, "", &mut text);
    text.push_str("rule_sets:\n");
    for set in &draft.sets {
        write_comments(&set.remarks, "  ", &mut text);
        let mut rules = set.rules.iter();
        let yaml = RuleSets::from(set.to_rule_set()?).to_yaml();
        // Each set is written by itself, to keep their order. The first line is `rule_sets:`.
        for line in yaml.lines().skip(1) {
            if line.starts_with("      - ") {
                let remarks = rules.next().map_or(&[][..], |rule| &rule.remarks);
                write_comments(remarks, "      ", &mut text);
            }
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(text)
}

fn write_comments(remarks: &[Remark], indent: &str, text: &mut String) {
    for remark in remarks {
        let (sentence, line) = (remark.sentence(), remark.line);
        let _ = writeln!(text, "{indent}# {sentence} (line {line})");
    }
}
