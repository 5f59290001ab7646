//! What it costs to be looked at: the live view open and requests recorded, beside the same
//! service without.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::load::compare;
use crate::report::Report;
use crate::service::TempDir;
use crate::{http, service, wrk};

/// How many look at the live view.
const VIEWERS: usize = 10;

/// `POST /v1/check` with viewers of `/v1/live` and recording on, beside neither.
#[expect(clippy::unwrap_used, reason = "a benchmark that cannot run has failed")]
pub(crate) fn run(report: &mut Report) {
    let dirs = [TempDir::new("http-live"), TempDir::new("http-unseen")];
    let script = wrk::script(&dirs[0], http::SCRIPT);
    let seen = format!("admin: {{ record: true }}\n{}", http::CONFIG);
    let (Some(seen), Some(unseen)) = (
        service::start(&dirs[0], &["api"], &seen),
        service::start(&dirs[1], &["api"], http::CONFIG),
    ) else {
        return;
    };
    for _ in 0..VIEWERS {
        let mut viewer = TcpStream::connect(seen.address("api")).unwrap();
        let request = "GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
        viewer.write_all(request.as_bytes()).unwrap();
        // It ends with the service.
        std::thread::spawn(
            move || while viewer.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {},
        );
    }
    compare(
        report,
        "http-live",
        "the same service without viewers and recording",
        || wrk::ask(seen.address("api"), &script),
        || wrk::ask(unseen.address("api"), &script),
    );
}
