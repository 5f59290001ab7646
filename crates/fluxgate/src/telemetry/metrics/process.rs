//! What the system knows of the process, from `/proc`. Elsewhere nothing is told.

use std::fs;

use super::exposition::{Exposition, Kind};

/// In `/proc`, times are in hundredths of a second on every system that Rust
/// runs on.
const NANOS_PER_TICK: u64 = 10_000_000;

pub(super) fn render(out: &mut Exposition) {
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory in bytes.";
        out.one("process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
    if let Some(ticks) = processor_ticks() {
        let help = "Processor time in seconds.";
        out.family("process_cpu_seconds_total", Kind::Counter, help)
            .seconds(&[], ticks.saturating_mul(NANOS_PER_TICK));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The directory that is being read is open too.
        let open = (open.count() as u64).saturating_sub(1);
        let help = "Open file descriptors.";
        out.one("process_open_fds", Kind::Gauge, help, open);
    }
    if let Some(most) = most_descriptors() {
        let help = "How many file descriptors may be open.";
        out.one("process_max_fds", Kind::Gauge, help, most);
    }
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn processor_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program stands in brackets and may hold anything. What
    // follows begins with the third field; user and system time are 14 and 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

fn most_descriptors() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
