//! The requirements of RFC 9113, frame by frame.

use super::super::gateway;
use super::{check, upstream};

#[test]
fn valid_frames_are_handled() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(
        &service,
        "protocol",
        &[
            "settings_come_first_and_are_acknowledged",
            "unknown_frames_and_settings_are_ignored",
            "priorities_are_ignored",
            "padding_is_removed",
            "a_head_in_several_frames_is_joined",
            "windows_are_respected",
            "pings_are_answered",
            "many_streams_at_once_are_all_answered",
            "goaway_closes_the_connection",
        ],
    );
}

#[test]
fn invalid_frames_are_rejected() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(
        &service,
        "protocol",
        &[
            "an_invalid_preface_ends_the_connection",
            "invalid_settings_end_the_connection",
            "frames_of_the_wrong_size_end_the_connection",
            "frames_on_the_wrong_stream_end_the_connection",
            "an_interrupted_head_ends_the_connection",
            "closed_streams_accept_no_frames",
            "invalid_compression_ends_the_connection",
            "windows_do_not_overflow",
            "streams_beyond_the_limit_are_refused",
        ],
    );
    // Panics if a forwarded request is ambiguous.
    upstream.requests();
}
