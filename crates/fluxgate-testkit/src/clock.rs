//! A shifted wall clock for a server, and a monotonic clock that stops.

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
        clock.write(0, 1);
        clock
    }

    pub(crate) fn set(&self, skew: Skew) {
        self.write(skew.nanos(), 0);
    }

    fn write(&self, number: i64, place: u64) {
        self.offset
            .write_all_at(&number.to_ne_bytes(), 8 * place)
            .expect("write the clock's offset");
    }

    /// Makes `command` use the shifted clock.
    pub(crate) fn apply(dir: &Dir, command: &mut Command) {
        command.env("LD_PRELOAD", dir.file(LIBRARY));
        command.env("FLUXGATE_CLOCK_OFFSET_FILE", dir.file(OFFSET));
    }
}

/// The clocks of a machine that falls asleep: the wall clock goes on, the monotonic clock stops.
///
/// A process reads the clock that goes on, `CLOCK_BOOTTIME`, as it is.
#[derive(Debug)]
pub struct SleepyClock {
    dir: Dir,
    clock: ShiftedClock,
}

impl SleepyClock {
    /// Creates clocks that run.
    #[expect(clippy::new_without_default, reason = "it compiles a library")]
    pub fn new() -> Self {
        let dir = Dir::new();
        let clock = ShiftedClock::new(&dir, Skew::NONE);
        Self { dir, clock }
    }

    /// Makes `command` use these clocks. It must not be linked statically.
    pub fn apply(&self, command: &mut Command) {
        ShiftedClock::apply(&self.dir, command);
    }

    /// Sets how far the wall clock is off.
    pub fn shift(&self, skew: Skew) {
        self.clock.set(skew);
    }

    /// Stops the monotonic clock for good.
    pub fn stop(&self) {
        self.clock.write(1, 1);
    }
}
