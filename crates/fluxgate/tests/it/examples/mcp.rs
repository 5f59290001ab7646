//! An agent and an MCP server, both with the protocol's own library, and the gateway between them.

use std::net::TcpStream;
use std::process::Command;

use fluxgate_testkit::{Program, ports, wait_until};

use super::{example, replace, text};
use crate::service::Service;
use crate::support::fetched;

#[test]
fn an_agent_is_limited_by_tool() {
    // It has the libraries of a server.
    let python = fetched("FLUXGATE_FRAMEWORKS", "frameworks/bin/python");
    let port = ports::free();
    let server = Program::start(python.clone(), |command| {
        command
            .arg(example("mcp/server.py"))
            .arg(port.number().to_string());
    });
    wait_until("the server", || {
        assert!(server.ended().is_none(), "{:#?}", server.lines());
        TcpStream::connect(port.addr()).is_ok()
    });
    let config = text("mcp/fluxgate.yaml");
    let listen = config.lines().find(|line| line.starts_with("listen:"));
    let config = replace(&config, listen.unwrap(), "");
    let config = replace(&config, ":9000", format!(":{}", port.number()));
    // A stalled machine must not make the test fail.
    let config = replace(&config, "2/m", "2/h");
    let service = Service::start(&["gateway"], &config);
    let agent = Command::new(python)
        .arg(example("mcp/agent.py"))
        .arg(format!("http://{}/mcp", service.address("gateway")))
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&agent.stdout).into_owned();
    let errors = String::from_utf8_lossy(&agent.stderr);
    assert!(agent.status.success(), "{output}{errors}");
    let lines: Vec<_> = output.lines().collect();
    let [first, second, third, read, delete] = lines[..] else {
        panic!("{output}{errors}");
    };
    assert_eq!((first, second), ("search: todo", "search: ideas"));
    assert!(
        third.starts_with("search: refused by per-tool, retry after "),
        "{output}"
    );
    assert_eq!(read, "read: buy milk");
    assert_eq!(delete, "delete: refused by read-only, retry after None ms");
}
