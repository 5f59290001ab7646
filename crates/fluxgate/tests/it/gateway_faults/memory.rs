//! How much memory the gateway uses.

use std::fs;

use crate::service::Service;

/// What it uses now, in KiB.
pub(super) fn used_kib(service: &Service) -> u64 {
    field(service, "VmRSS:")
}

/// The most it has ever used, in KiB.
pub(super) fn peak_kib(service: &Service) -> u64 {
    field(service, "VmHWM:")
}

fn field(service: &Service, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.program.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap().trim().strip_suffix(" kB").unwrap();
    value.parse().unwrap()
}
