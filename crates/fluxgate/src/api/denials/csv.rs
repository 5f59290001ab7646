//! Comma-separated values (RFC 4180) that spreadsheets do not run.

/// The first characters of what spreadsheets take for a formula.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// Appends a line. A text that a spreadsheet would take for a formula, which clients could have sent,
/// gets an apostrophe in front.
pub(super) fn write_csv_line(out: &mut String, texts: &[String]) {
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_text(out, text);
    }
    out.push_str("\r\n");
}

fn write_text(out: &mut String, text: &str) {
    let is_formula = text.starts_with(FORMULA);
    let is_plain = !text.contains(['"', ',', '\r', '\n', '\t', ';']) && text.trim() == text;
    if !is_formula && is_plain {
        out.push_str(text);
        return;
    }
    out.push('"');
    if is_formula {
        out.push('\'');
    }
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_formulas_are_not_run() {
        for (text, expected) in [
            ("", ""),
            ("user=ann", "user=ann"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("a\r\nb", "\"a\r\nb\""),
            (" a", "\" a\""),
            ("=1+1", "\"'=1+1\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(1)", "\"'@SUM(1)\""),
            ("\t=1", "\"'\t=1\""),
            ("\r=1", "\"'\r=1\""),
            ("=cmd|' /C calc'!\"A1\"", "\"'=cmd|' /C calc'!\"\"A1\"\"\""),
        ] {
            let mut line = String::new();
            write_csv_line(&mut line, &[text.into(), "1".into()]);
            assert_eq!(line, format!("{expected},1\r\n"));
        }
    }
}
