//! A directory of its own for each test, and the binary run in it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// One token bucket of two units a second for each user.
pub(crate) const TWO_A_SECOND: &str = "
rule_sets:
  api:
    rules:
      - { id: r, scope: per_user, bands: [ { capacity: 2, window: 1s } ] }
";

/// A rule file with one set `api` of one rule `r`, global and with one band
/// unless `fields` say otherwise.
pub(crate) fn one_rule(fields: &str) -> String {
    format!("rule_sets:\n  api:\n    rules:\n      - {{ id: r, {fields} }}\n")
}

/// A directory that goes when the test ends, and in which the binary is run:
/// so files have the same names in every message.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fluxgate-it-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// With `rules.yaml`.
    pub(crate) fn with_rules(rules: &str) -> Self {
        let dir = Self::new();
        dir.write("rules.yaml", rules);
        dir
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fluxgate"));
        command.args(arguments).current_dir(&self.0);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.command(arguments).output().unwrap().into()
    }

    /// `simulate` by `rules.yaml` on `input`, which becomes `input.ndjson`.
    pub(crate) fn simulate(&self, input: impl AsRef<[u8]>, more: &[&str]) -> Run {
        self.write("input.ndjson", input);
        let mut arguments = vec!["simulate", "--rules", "rules.yaml"];
        arguments.extend(["--input", "input.ndjson"]);
        arguments.extend(more);
        self.run(&arguments)
    }

    /// The binary started with pipes on all sides.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The binary with `input` on its standard input.
    pub(crate) fn run_with_stdin(&self, arguments: &[&str], input: &str) -> Run {
        let mut child = self.spawn(arguments);
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // It may end before it has read everything.
            scope.spawn(move || stdin.write_all(input.as_bytes()).ok());
            child.wait_with_output().unwrap().into()
        })
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The lines written, after making sure that all went well.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<&str> {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout.lines().collect()
    }

    /// Whether each request was allowed, as letters: `a` or `d`.
    #[track_caller]
    pub(crate) fn outcomes(&self) -> String {
        let outcome = |line: &&str| match line.contains("\"allowed\":true") {
            true => 'a',
            false => 'd',
        };
        self.lines().iter().map(outcome).collect()
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A band in an expected line: its name, its limit and what remains.
pub(crate) type Band<'a> = (&'a str, u64, u64);

pub(crate) fn allowed(t: u64, band: Band<'_>, reset: u64) -> String {
    delayed(t, band, reset, 0)
}

pub(crate) fn delayed(
    t: u64,
    (band, limit, remaining): Band<'_>,
    reset: u64,
    delay: u64,
) -> String {
    let (rule, band) = band.split_once('/').unwrap();
    format!(
        r#"{{"t":{t},"allowed":true,"outcome":"allowed","rule":"{rule}","band":"{band}","limit":{limit},"remaining":{remaining},"retry_after_us":0,"reset_after_us":{reset},"delay_us":{delay},"violated":[]}}"#
    )
}

/// A denial by one band, or by the first of several.
pub(crate) fn denied(
    t: u64,
    (band, limit, remaining): Band<'_>,
    retry: impl Into<Option<u64>>,
    reset: u64,
    violated: &[&str],
) -> String {
    let (outcome, retry) = match retry.into() {
        Some(retry) => ("denied", retry.to_string()),
        None => ("never", "null".to_owned()),
    };
    let (rule, band) = band.split_once('/').unwrap();
    let violated: Vec<_> = violated.iter().map(|band| format!("\"{band}\"")).collect();
    let violated = violated.join(",");
    format!(
        r#"{{"t":{t},"allowed":false,"outcome":"{outcome}","rule":"{rule}","band":"{band}","limit":{limit},"remaining":{remaining},"retry_after_us":{retry},"reset_after_us":{reset},"delay_us":0,"violated":[{violated}]}}"#
    )
}

/// Where no rule is reported.
pub(crate) fn unreported(t: u64, outcome: &str, violated: &str) -> String {
    format!(
        r#"{{"t":{t},"allowed":true,"outcome":"{outcome}","rule":null,"band":null,"limit":null,"remaining":null,"retry_after_us":0,"reset_after_us":0,"delay_us":0,"violated":[{violated}]}}"#
    )
}

/// A file of the project, by its path from the root.
pub(crate) fn project_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A program that `scripts/test` fetches: where a variable says, or in `target`.
pub(crate) fn fetched(variable: &str, path: &str) -> PathBuf {
    let named = std::env::var_os(variable).filter(|named| !named.is_empty());
    let file = named.map_or_else(|| project_file("target").join(path), PathBuf::from);
    assert!(
        file.is_file(),
        "{} is missing; scripts/test fetches it",
        file.display()
    );
    file
}

/// Python with the packages that `scripts/test` fetches.
pub(crate) fn python() -> PathBuf {
    fetched("FLUXGATE_PYTHON", "venv/bin/python")
}
