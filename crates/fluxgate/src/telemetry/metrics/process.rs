//! Metrics of the process, read from `/proc`. Systems without it have none.

use std::fs;

use super::exposition::Exposition;
use super::family::Kind;

/// `/proc` counts in hundredths of a second on every Linux that Rust supports.
const NANOS_PER_TICK: u64 = 10_000_000;

pub(super) fn render(out: &mut Exposition) {
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory in bytes.";
        out.one("process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
    if let Some(ticks) = processor_ticks() {
        let help = "User and system processor time in seconds.";
        out.family("process_cpu_seconds_total", Kind::Counter, help)
            .seconds(&[], ticks.saturating_mul(NANOS_PER_TICK));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // Reading the directory opens a descriptor too.
        let open = (open.count() as u64).saturating_sub(1);
        let help = "Open file descriptors.";
        out.one("process_open_fds", Kind::Gauge, help, open);
    }
    if let Some(max) = max_descriptors() {
        let help = "Maximum number of open file descriptors.";
        out.one("process_max_fds", Kind::Gauge, help, max);
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
    // The second field is the program's name in parentheses, which may contain anything.
    // User and system time are fields 14 and 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

fn max_descriptors() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
