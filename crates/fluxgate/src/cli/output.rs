//! The output of commands. Names in files and responses are untrusted text, which a terminal must
//! not interpret.

use std::io::{self, IsTerminal as _, Write as _};

use fluxgate_core::text;

use crate::failure::{Exit, Failure};

/// Prints a text to standard output, escaped. JSON and quoted YAML keep their meaning.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_unescaped(escape(text).as_bytes())
}

/// Prints a file to standard output: escaped for a person, byte by byte for a program.
pub(super) fn print_file(text: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        print(text)
    } else {
        print_unescaped(text.as_bytes())
    }
}

/// Prints bytes that contain no untrusted text, such as terminal control sequences.
pub(super) fn print_unescaped(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::new(Exit::Io, format!("standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Prints a message to standard error, escaped. Nothing can be done if that is closed.
pub(super) fn print_message(text: &str) {
    let mut line = escape(text);
    line.push('\n');
    let _ = io::stderr().write_all(line.as_bytes());
}

fn escape(text: &str) -> String {
    text::escape_unprintable(text, &['\n', '\t'])
}
