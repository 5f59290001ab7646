//! A running Envoy, and parts of its configuration.

use fluxgate_testkit::{Program, wait_until};

use crate::support::{Dir, fetched};

/// An Envoy, which ends when it is dropped.
pub(super) struct EnvoyProgram {
    program: Program,
    _dir: Dir,
}

impl EnvoyProgram {
    /// Starts Envoy with this configuration.
    pub(super) fn start(config: &str) -> Self {
        let dir = Dir::new();
        dir.write("envoy.yaml", config);
        let envoy = fetched("FLUXGATE_ENVOY", "envoy/envoy/_bin/envoy");
        let program = Program::start(envoy, |command| {
            command
                .args(["--config-path", "envoy.yaml", "--log-level", "warning"])
                .args(["--concurrency", "1", "--disable-hot-restart"])
                .current_dir(dir.path(""));
        });
        Self { program, _dir: dir }
    }

    /// Waits until Envoy answers.
    pub(super) fn wait_for(&self, answers: impl Fn() -> bool) {
        wait_until("Envoy answers", || {
            let lines = || self.program.lines();
            assert!(self.program.ended().is_none(), "it ended: {:#?}", lines());
            answers()
        });
    }
}

/// Replaces `old`, which must occur.
pub(super) fn replace(text: &str, old: &str, new: impl ToString) -> String {
    assert!(text.contains(old), "no {old}");
    text.replace(old, &new.to_string())
}

/// Returns a listener that answers every request.
pub(super) fn upstream_listener(port: u16) -> String {
    format!(
        r#"  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: upstream
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              response_headers_to_add:
              - header: {{ key: x-tokens, value: "6000" }}
              routes:
              - match: {{ prefix: "/" }}
                direct_response: {{ status: 200, body: {{ inline_string: "hello" }} }}
"#
    )
}
