//! A shifted wall clock for a server.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use crate::dir::Dir;

/// The offset of a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// The clock is fast.
    Ahead(Duration),
    /// The clock is slow.
    Behind(Duration),
}

impl Skew {
    /// The clock is right.
    pub const NONE: Self = Self::Ahead(Duration::ZERO);

    fn nanos(self) -> i64 {
        let nanos = |by: Duration| i64::try_from(by.as_nanos()).expect("a skew of under 292 years");
        match self {
            Self::Ahead(by) => nanos(by),
            Self::Behind(by) => -nanos(by),
        }
    }
}

/// The file with the offset that a process adds whenever it reads its clock.
#[derive(Debug)]
pub(crate) struct ShiftedClock {
    offset: File,
}

const LIBRARY: &str = "clock.so";
const OFFSET: &str = "clock.offset";

impl ShiftedClock {
    /// Compiles the library and creates the file of the offset.
    pub(crate) fn new(dir: &Dir, skew: Skew) -> Self {
        let source = dir.write("clock.c", include_str!("clock.c"));
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(dir.file(LIBRARY))
            .arg(source)
            .output()
            .expect("run cc, which a shifted clock needs");
        assert!(
            output.status.success(),
            "compile clock.c: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let offset = File::create(dir.file(OFFSET)).expect("create the file of the clock's offset");
        let clock = Self { offset };
        clock.set(skew);
        clock
    }

    pub(crate) fn set(&self, skew: Skew) {
        self.offset
            .write_all_at(&skew.nanos().to_ne_bytes(), 0)
            .expect("write the clock's offset");
    }

    /// Makes `command` use the shifted clock.
    pub(crate) fn apply(dir: &Dir, command: &mut Command) {
        command.env("LD_PRELOAD", dir.file(LIBRARY));
        command.env("FLUXGATE_CLOCK_OFFSET_FILE", dir.file(OFFSET));
    }
}
