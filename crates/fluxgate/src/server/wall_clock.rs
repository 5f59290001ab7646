//! The time of day, which only clients are told.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

/// The clock that clients go by.
#[expect(
    clippy::disallowed_methods,
    reason = "clients are told when to come back by the clock on their wall"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// Appends the header `date`, which is worked out once a second.
pub(crate) fn write_date(now: SystemTime, out: &mut Vec<u8>) {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let second = since.as_ref().map_or(0, Duration::as_secs);
    LAST.with_borrow_mut(|(last, text)| {
        if *last != second || text.is_empty() {
            *last = second;
            *text = format!("date: {}\r\n", httpdate::fmt_http_date(now));
        }
        out.extend_from_slice(text.as_bytes());
    });
}
