//! Rules from an HTTP server.

use fluxgate_testkit::FaultProxy;
use serde_json::Value;

use super::suite::rule_source_suite;
use super::{
    Corruption, POLL, RuleHost, deep_nesting, huge_id, many_rules, rule_file, rule_file_with,
};
use crate::service::http_rules::{Content, RuleServer};

rule_source_suite!(
    HttpHost,
    silence_keeps_the_rules,
    the_cache_is_enough_for_a_start
);

/// A server behind a proxy that breaks its connections.
struct HttpHost {
    server: RuleServer,
    proxy: FaultProxy,
}

impl HttpHost {
    fn url(&self) -> String {
        format!("{}/rules.yaml", self.proxy.url("http"))
    }
}

impl RuleHost for HttpHost {
    fn start(rule_sets: &Value) -> Self {
        let server = RuleServer::start(Content::Plain(rule_file(rule_sets)));
        let proxy = FaultProxy::start(server.upstream.address());
        Self { server, proxy }
    }

    fn config(&self, fields: &str) -> String {
        let (url, poll) = (self.url(), POLL.as_millis());
        format!("rules_from: {{ http: {{ url: {url:?}{fields} }}, poll: {poll}ms }}\n")
    }

    fn write(&self, rule_sets: &Value) {
        self.server.set(Content::Plain(rule_file(rule_sets)));
    }

    fn place(&self) -> String {
        format!("{}:1:", self.url())
    }

    fn corrupt(&self, how: Corruption) -> Option<String> {
        // With a tag, so that large content is not sent again and again.
        let tagged = |text: String| Content::Tagged(text, "\"corrupt\"");
        let (content, expected) = match how {
            Corruption::WrongType => {
                let picture = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 12\r\n\r\n\x89PNG\r\n\x1a\n\0\0\0\x0d";
                (Content::Raw(picture.to_vec()), "UTF-8")
            }
            Corruption::Endless => (Content::Endless, "more than 16777216 bytes"),
            Corruption::ManyDocuments => {
                let document = "---\nrule_sets: {}\n";
                // As many as fit.
                (tagged(document.repeat(900_000)), "rules.yaml:")
            }
            Corruption::ManyRules => (tagged(rule_file_with(&many_rules())), "rules.yaml:1:"),
            Corruption::DeepNesting => (
                tagged(rule_file_with(&deep_nesting())),
                "recursion limit exceeded",
            ),
            Corruption::HugeString => (tagged(rule_file_with(&huge_id())), "rules.yaml:1:"),
        };
        self.server.set(content);
        Some(expected.into())
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }
}
