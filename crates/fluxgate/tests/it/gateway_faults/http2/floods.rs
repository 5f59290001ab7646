//! Floods: the connection ends or is slowed down, others are served, and memory
//! stays.

use super::super::gateway;
use super::super::memory::{peak_kib, used_kib};
use super::{check, upstream};

const MOST_KIB: u64 = 64 * 1024;

fn flood(checks: &[&str]) {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(&service, "protocol", &["pings_are_answered"]);
    let before = used_kib(&service);
    check(&service, "floods", checks);
    let more = peak_kib(&service).saturating_sub(before);
    assert!(more < MOST_KIB, "{checks:?}: {more} KiB more");
}

#[test]
fn streams_that_are_reset_at_once() {
    flood(&["resets"]);
}

#[test]
fn streams_that_we_have_to_reset() {
    flood(&["resets_from_us"]);
}

#[test]
fn heads_without_an_end() {
    flood(&["continuations", "empty_continuations"]);
}

#[test]
fn heads_that_are_too_large() {
    flood(&["large_heads"]);
}

#[test]
fn a_head_that_is_a_little_too_large_is_told() {
    flood(&["a_large_head_is_told"]);
}

#[test]
fn frames_that_want_an_answer() {
    flood(&["pings", "settings"]);
}

#[test]
fn frames_that_say_nothing() {
    flood(&["empty_data", "window_updates", "priorities"]);
}
