//! Properties of Kong.

use fluxgate_import::Format;

use super::{RULES, Sample};

pub(super) const SAMPLE: Sample = Sample {
    format: Format::Kong,
    outputs: RULES,
    text: "_format_version: '3.0'
@ROOT@
services:
- name: s
  @SERVICE@
  routes:
  - name: r
    paths: [/a]
    @ROUTE@
    plugins:
    - name: rate-limiting
      @PLUGIN@
      config:
        minute: 5
        @CONFIG@
consumers:
- username: u
  @CONSUMER@
plugins:
- name: rate-limiting-advanced
  config:
    limit: [5]
    window_size: [60]
    @ADVANCED@
",
    places: &[
        (
            "@ROOT@",
            &[
                "_plugin_configs: {a: {minute: 3}}",
                "_workspace: dev",
                "certificates: [{cert: a, key: b}]",
                "consumer_groups: [{name: g, plugins: [{name: rate-limiting}]}]",
                "keyauth_credentials: [{key: a, consumer: u}]",
                "partials: [{name: x, type: redis-ee}]",
                "plugin: [{name: rate-limiting, config: {second: 1}}]",
                "upstreams: [{name: u}]",
                "vaults: [{prefix: a, name: env}]",
            ],
        ),
        (
            "@SERVICE@",
            &[
                "connect_timeout: 3",
                "enabled: false",
                "host: h",
                "path: /x",
                "plugins: [{name: cors}]",
                "plugins: [{name: response-ratelimiting}]",
                "port: 80",
                "protocol: https",
                "retries: 3",
                "tls_verify: true",
                "url: http://x",
                "misspelt: 1",
            ],
        ),
        (
            "@ROUTE@",
            &[
                "destinations: [{ip: 192.0.2.1}]",
                "expression: http.path == \"/a\"",
                "headers: {x: [a]}",
                "hosts: [a]",
                "https_redirect_status_code: 301",
                "methods: [GET]",
                "path_handling: v1",
                "preserve_host: true",
                "priority: 4",
                "protocols: [https]",
                "regex_priority: 3",
                "request_buffering: false",
                "snis: [a]",
                "sources: [{ip: 192.0.2.1}]",
                "strip_path: false",
                "misspelt: 1",
            ],
        ),
        (
            "@PLUGIN@",
            &[
                "_config: a",
                "condition: x == 1",
                "consumer: u",
                "consumer_group: g",
                "enabled: false",
                "instance_name: foo",
                "ordering: {before: {access: [key-auth]}}",
                "partials: [{id: x, path: config.redis}]",
                "protocols: [grpc]",
                "run_on: first",
                "misspelt: 1",
            ],
        ),
        (
            "@CONFIG@",
            &[
                "counter_key: consumer.username",
                "day: 5",
                "error_code: 503",
                "error_message: x",
                "fault_tolerant: false",
                "fault_tolerant: true",
                "header_name: A",
                "hide_client_headers: true",
                "hour: 6",
                "limit_by: consumer-group",
                "limit_by: credential",
                "limit_by: ip",
                "limit_by: service",
                "month: 3",
                "path: /x",
                "policy: cluster",
                "policy: local",
                "policy: redis",
                "redis: {host: h}",
                "redis_database: 2",
                "redis_host: h",
                "redis_password: a",
                "redis_port: 1",
                "redis_server_name: x",
                "redis_ssl: true",
                "redis_ssl_verify: true",
                "redis_timeout: 3",
                "redis_username: x",
                "second: 3",
                "sync_rate: 1",
                "year: 4",
                "misspelt: 1",
            ],
        ),
        (
            "@ADVANCED@",
            &[
                "compound_identifier: [ip]",
                "consumer_groups: [a]",
                "counter_key: consumer.username",
                "dictionary_name: x",
                "disable_penalty: true",
                "enforce_consumer_groups: true",
                "error_code: 403",
                "error_message: x",
                "header_name: A",
                "hide_client_headers: true",
                "identifier: consumer-group",
                "identifier: credential",
                "identifier: ip",
                "identifier: moon",
                "identifier: route",
                "identifier: service",
                "lock_dictionary_name: x",
                "namespace: x",
                "path: /x",
                "redis: {host: x}",
                "retry_after_jitter_max: 3",
                "strategy: redis",
                "sync_rate: 3",
                "throttling: {enabled: true}",
                "window_type: fixed",
                "misspelt: 1",
            ],
        ),
        (
            "@CONSUMER@",
            &[
                "groups: [{name: g}]",
                "keyauth_credentials: [{key: a}]",
                "plugins: [{name: rate-limiting, config: {minute: 1}}]",
                "misspelt: 1",
            ],
        ),
    ],
};
