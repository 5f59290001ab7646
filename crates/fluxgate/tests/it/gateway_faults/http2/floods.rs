//! Floods: the connection is closed or slowed down, others are served, and memory is
//! bounded.

use super::super::gateway;
use super::super::memory::{peak_kib, used_kib};
use super::{check, upstream};

const MAX_KIB: u64 = 64 * 1024;

fn flood(checks: &[&str]) {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(&service, "protocol", &["pings_are_answered"]);
    let before = used_kib(&service);
    check(&service, "floods", checks);
    let more = peak_kib(&service).saturating_sub(before);
    assert!(more < MAX_KIB, "{checks:?}: {more} KiB more");
}

#[test]
fn streams_that_the_client_resets() {
    flood(&["resets"]);
}

#[test]
fn streams_that_the_server_must_reset() {
    flood(&["resets_by_server"]);
}

#[test]
fn endless_heads() {
    flood(&["continuations", "empty_continuations"]);
}

#[test]
fn heads_that_are_too_large() {
    flood(&["large_heads"]);
}

#[test]
fn a_head_just_over_the_limit_gets_a_431() {
    flood(&["head_over_the_limit"]);
}

#[test]
fn frames_that_require_a_reply() {
    flood(&["pings", "settings"]);
}

#[test]
fn frames_without_effect() {
    flood(&["empty_data", "window_updates", "priorities"]);
}
