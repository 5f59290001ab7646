//! OpenFluxGate.

use fluxgate_import::Format;

use super::{assert_lines, at_once, rules};

const EXPORT: &str = r#"[
  {
    "_id": { "$oid": "65a000000000000000000001" },
    "id": "per-user", "name": "Per user", "enabled": true,
    "scope": "PER_USER", "keyStrategyId": "userId",
    "onLimitExceedPolicy": "REJECT_REQUEST", "ruleSetId": "api",
    "bands": [
      { "windowSeconds": { "$numberLong": "1" }, "capacity": { "$numberLong": "2" }, "label": "2 per second" },
      { "windowSeconds": 2592000, "capacity": 1000, "label": "quota", "algorithm": "FIXED_WINDOW",
        "quotaPeriod": "MONTHLY", "zoneId": "Asia/Seoul" }
    ],
    "methods": ["get"], "pathPatterns": ["/api/**"], "excludePathPatterns": ["/api/health"],
    "headerEquals": { "X-Plan": "free" }, "headerPresent": ["X-Client"],
    "attributes": { "tier": "free", "owners": ["a", "b"] },
    "allowedIps": ["10.0.0.9/8"], "deniedIps": ["198.51.100.7"],
    "priority": 10
  },
  {
    "id": "Tenant", "name": "Tenant", "enabled": false,
    "scope": "CUSTOM", "keyStrategyId": "tenantId",
    "onLimitExceedPolicy": "WAIT_FOR_REFILL", "ruleSetId": "api",
    "bands": [ { "windowSeconds": 60, "capacity": 100, "algorithm": "SLIDING_WINDOW" } ],
    "allowedIps": ["10.0.0.0/8", "192.0.2.0/24"], "deniedKeys": ["user:mallory"]
  },
  {
    "id": "logins", "name": "Logins", "scope": "PER_IP", "onLimitExceedPolicy": "REJECT_REQUEST",
    "ruleSetId": "site", "bands": [ { "window": "PT1H", "capacity": 1 } ],
    "matcher": { "methods": [], "pathPatterns": ["/login"] }
  }
]
"#;

#[test]
fn an_export_becomes_rule_sets() {
    let rules = rules(Format::OpenFluxgate, EXPORT);
    assert_lines(
        &rules,
        &[
            "# not carried over: `allowedIps` that not every rule of the set has (line 2)",
            "api:",
            "- id: denied-ips",
            "action: deny",
            "ip: [\"198.51.100.7\"]",
            "# not carried over: the attribute `owners`: its value is not a text (line 14)",
            "# not carried over: `priority: 10`: all rules that match apply, in any order (line 16)",
            "- id: per-user-bucket",
            "name: \"Per user\"",
            "path: [\"/api/**\"]",
            "not_path: [\"/api/health\"]",
            "methods: [GET]",
            "headers: { X-Plan: free, X-Client: { present: true } }",
            "not_ip: [\"10.0.0.0/8\"]",
            "scope: per_user",
            "- { id: \"2-per-second\", capacity: 2, window: 1s }",
            "attributes: { tier: free }",
            "- id: per-user-fixed",
            "algorithm: fixed_window",
            "- { id: quota, capacity: 1000, calendar: month, time_zone: \"Asia/Seoul\" }",
            "# not carried over: `deniedKeys` (line 23)",
            "# changed: the window slides smoothly, not by sub-windows (line 22)",
            "- id: tenant",
            "name: Tenant",
            "enabled: false",
            "key: [\"attr:tenantId\"]",
            "algorithm: sliding_window",
            "on_exceed: wait",
            "max_wait: 5s",
            "site:",
            "- id: logins",
            "- { capacity: 1, window: 1h }",
        ],
    );
    let request = |ip: &str| {
        format!(
            "\"rule_set\":\"api\",\"ip\":\"{ip}\",\"user\":\"u\",\"method\":\"GET\",\"path\":\"/api/x\",\
             \"headers\":{{\"X-Plan\":\"free\",\"X-Client\":\"c\"}}"
        )
    };
    for (ip, expected) in [
        ("192.0.2.1", "aadd"),
        ("10.1.2.3", "aaaa"),
        ("198.51.100.7", "dddd"),
    ] {
        assert_eq!(
            at_once(&rules, &[request(ip).as_str(); 4]),
            expected,
            "{ip}"
        );
    }
}

#[test]
fn a_set_or_one_rule_is_enough() {
    let one = "id: r\nscope: GLOBAL\nbands: [ { windowSeconds: 1, capacity: 1 } ]\n";
    assert_lines(
        &rules(Format::OpenFluxgate, one),
        &["default:", "- id: r", "scope: global"],
    );
    let set =
        "ruleSetId: edge\nrules:\n  - { id: r, bands: [ { windowSeconds: 1, capacity: 1 } ] }\n";
    assert_lines(
        &rules(Format::OpenFluxgate, set),
        &["edge:", "- id: r", "scope: per_api_key"],
    );
}

#[test]
fn fields_that_are_not_read_are_reported() {
    let rules = rules(
        Format::OpenFluxgate,
        "
ruleSetId: edge
owner: team-a
rules:
  - id: a
    _class: org.example.Rule
    burst: 5
    bands: [ { windowSeconds: 1, capacity: 1, refill: 2 } ]
    matcher: { methods: [GET], hosts: [a.example.com] }
    pathPatterns: [/x]
",
    );
    assert_lines(
        &rules,
        &[
            "# not carried over: `owner` in a rule set (line 3)",
            "# not carried over: `hosts` in `matcher` (line 9)",
            "# not carried over: `burst` in a rule (line 7)",
            "# not carried over: `pathPatterns` in a rule (line 10)",
            "# not carried over: `refill` in a band (line 8)",
            "- id: a",
        ],
    );
    assert_eq!(rules.matches("# not carried over").count(), 5, "{rules}");
}
