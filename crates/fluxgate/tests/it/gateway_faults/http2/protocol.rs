//! What RFC 9113 asks of a server, frame by frame.

use super::super::gateway;
use super::{check, upstream};

#[test]
fn good_frames_are_served() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(
        &service,
        "protocol",
        &[
            "settings_come_first_and_are_acknowledged",
            "unknown_things_are_ignored",
            "priorities_are_ignored",
            "padding_is_taken_off",
            "a_head_in_pieces_is_one",
            "windows_are_kept",
            "pings_are_answered",
            "many_streams_at_once_are_all_answered",
            "who_goes_away_is_let_go",
        ],
    );
}

#[test]
fn bad_frames_are_refused() {
    let upstream = upstream();
    let service = gateway(&[upstream.address()], "");
    check(
        &service,
        "protocol",
        &[
            "a_bad_preface_ends_the_connection",
            "settings_that_are_wrong_end_the_connection",
            "frames_of_the_wrong_size_end_the_connection",
            "frames_on_the_wrong_stream_end_the_connection",
            "a_head_is_not_interrupted",
            "streams_that_are_over_take_nothing_more",
            "bad_compression_ends_the_connection",
            "windows_do_not_overflow",
            "streams_beyond_the_limit_are_refused",
        ],
    );
    // Nothing of it can be read in two ways.
    upstream.requests();
}
