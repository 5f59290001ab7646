//! Under load, over HTTP/2.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use fluxgate_testkit::RawUpstream;

use super::super::{OK, gateway, script};
use super::{GRACE, end_of};

#[test]
fn under_load_no_stream_is_lost() {
    let upstream = RawUpstream::start(|connection| {
        while connection.read_request().is_some() {
            connection.pause(Duration::from_millis(2));
            connection.send(OK);
        }
    });
    let service = gateway(&[upstream.address()], "");
    let mut load = script("http2_load.py")
        .arg(service.address("gateway").to_string())
        .args(["8", "8"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(load.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "the load is on");
    service.program.signal("TERM");
    let result: serde_json::Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
    assert!(load.wait().unwrap().success());
    assert_eq!(result["lost"], 0, "{result}");
    assert_eq!(result["announced"], 8, "{result}");
    assert!(end_of(&service) < GRACE);
    let answered = usize::try_from(result["answered"].as_u64().unwrap()).unwrap();
    assert_eq!(upstream.requests().len(), answered, "{result}");
}
