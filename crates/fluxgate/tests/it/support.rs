//! Helpers of all tests: a temporary directory to run the binary in, and expected output.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A token bucket of two units per second for each user.
pub(crate) const TWO_A_SECOND: &str = "
rule_sets:
  api:
    rules:
      - { id: r, scope: per_user, bands: [ { capacity: 2, window: 1s } ] }
";

/// Returns a rule file with the set `api` of one rule `r`, which has these fields.
pub(crate) fn one_rule(fields: &str) -> String {
    format!("rule_sets:\n  api:\n    rules:\n      - {{ id: r, {fields} }}\n")
}

/// A directory that is removed when dropped. The binary runs in it, so messages contain
/// relative paths only.
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

    /// Creates a directory with the file `rules.yaml`.
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

    /// Runs `simulate` with `rules.yaml` on `input`, which is written to `input.ndjson`.
    pub(crate) fn simulate(&self, input: impl AsRef<[u8]>, more: &[&str]) -> Run {
        self.write("input.ndjson", input);
        let mut arguments = vec!["simulate", "--rules", "rules.yaml"];
        arguments.extend(["--input", "input.ndjson"]);
        arguments.extend(more);
        self.run(&arguments)
    }

    /// Starts the binary with pipes for all standard streams.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs the binary with `input` on its standard input.
    pub(crate) fn run_with_stdin(&self, arguments: &[&str], input: &str) -> Run {
        let mut child = self.spawn(arguments);
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // The binary may exit before it has read everything.
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

/// The exit code and the output of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// `None` if a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Asserts success and returns the lines of standard output.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<&str> {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout.lines().collect()
    }

    /// Returns a letter for each decision: `a` if allowed, `d` if denied.
    #[track_caller]
    pub(crate) fn outcomes(&self) -> String {
        let outcome = |line: &&str| {
            if line.contains("\"allowed\":true") {
                'a'
            } else {
                'd'
            }
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

/// Returns the line of an allowed request. The band is `RULE/BAND`, its limit, and the
/// remaining units.
pub(crate) fn allowed(t: u64, (band, limit, remaining): (&str, u64, u64), reset: u64) -> String {
    let (rule, band) = band.split_once('/').unwrap();
    format!(
        r#"{{"t":{t},"allowed":true,"outcome":"allowed","rule":"{rule}","band":"{band}","limit":{limit},"remaining":{remaining},"retry_after_us":0,"reset_after_us":{reset},"delay_us":0,"violated":[]}}"#
    )
}

/// Returns the path of a file of the repository.
pub(crate) fn project_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Returns the path of a program that `scripts/test` downloads: the value of an environment
/// variable, or a path in `target`.
pub(crate) fn fetched(variable: &str, path: &str) -> PathBuf {
    let file = std::env::var_os(variable).filter(|value| !value.is_empty());
    let file = file.map_or_else(|| project_file("target").join(path), PathBuf::from);
    assert!(
        file.is_file(),
        "{} is missing; scripts/test downloads it",
        file.display()
    );
    file
}

/// Returns the path of the Python with the packages that `scripts/test` installs.
pub(crate) fn python() -> PathBuf {
    fetched("FLUXGATE_PYTHON", "venv/bin/python")
}

/// Returns the time since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "reports carry the time of the machine"
)]
pub(crate) fn unix_time() -> std::time::Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap()
}
