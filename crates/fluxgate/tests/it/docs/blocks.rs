//! Code blocks of a document.

use std::fmt;

use super::{KINDS_NOT_RUN, is_not_run, read};

/// A code block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The path of its document, relative to the root.
    pub(crate) document: String,
    /// Its first line.
    pub(crate) line: usize,
    /// The words after the fence, without the name of a file.
    pub(crate) kind: String,
    /// The name of the file, if given.
    pub(crate) file: Option<String>,
    pub(crate) text: String,
}

/// A command and its documented output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) shown: Vec<String>,
}

impl Block {
    pub(crate) fn all_of(document: &str) -> Vec<Self> {
        let mut blocks = Vec::new();
        let mut open: Option<Self> = None;
        for (index, line) in read(document).lines().enumerate() {
            match &mut open {
                Some(_) if line.trim() == "```" => blocks.extend(open.take()),
                Some(block) => block.text += &format!("{line}\n"),
                None => {
                    if let Some(info) = line.trim_start().strip_prefix("```") {
                        open = Some(Self::opened(document, index + 2, info));
                    }
                }
            }
        }
        assert!(open.is_none(), "{document}: a block is not closed");
        blocks
    }

    fn opened(document: &str, line: usize, info: &str) -> Self {
        let is_file = |word: &&str| word.contains('.');
        let words = || info.split_whitespace();
        let kind: Vec<_> = words().filter(|word| !is_file(word)).collect();
        Self {
            document: document.to_owned(),
            line,
            kind: kind.join(" "),
            file: words().find(is_file).map(str::to_owned),
            text: String::new(),
        }
    }

    /// Returns its commands: after `$ ` and `> ` in a console, otherwise lines, which a
    /// backslash may continue.
    pub(crate) fn commands(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let begin = |steps: &mut Vec<Step>, command: &str| {
            let command = command.to_owned();
            let shown = Vec::new();
            steps.push(Step { command, shown });
        };
        if self.kind.starts_with("sh ") {
            for command in self.text.replace("\\\n", "").lines() {
                begin(&mut steps, command);
            }
        } else if self.kind == "console" {
            for line in self.text.lines() {
                if let Some(command) = line.strip_prefix("$ ") {
                    begin(&mut steps, command);
                    continue;
                }
                let step = steps.last_mut();
                let step = step.unwrap_or_else(|| panic!("{self} begins without a command"));
                match line.strip_prefix("> ") {
                    Some(more) => step.command += &format!("\n{more}"),
                    None => step.shown.push(line.to_owned()),
                }
            }
        }
        steps
    }

    /// Returns the commands that the tests can run.
    pub(crate) fn runnable(&self) -> Vec<Step> {
        if KINDS_NOT_RUN.iter().any(|(kind, _)| *kind == self.kind) {
            return Vec::new();
        }
        let mut steps = self.commands();
        steps.retain(|step| !is_not_run(&step.command));
        steps
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.document, self.line)
    }
}
