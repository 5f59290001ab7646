//! What documents become, and what is said about those that are not rules.

use fluxgate_testkit::{FaultProxy, wait_until};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, DateTime, Decimal128, Document, doc};
use serde_json::Value;

use super::server::{FerretDb, MongoJavaServer, RuleWriter};
use super::{document, to_document};
use crate::rule_sources::POLL;
use crate::service::Service;
use crate::support::Dir;

/// Returns the config of a service with these fields of `mongodb`.
fn config(fields: &str) -> String {
    let poll = POLL.as_millis();
    format!("rules_from: {{ mongodb: {{ {fields} }}, poll: {poll}ms }}\n")
}

/// A database with documents, and a service that reads them.
fn start(documents: impl IntoIterator<Item = Document>) -> (FerretDb, RuleWriter, Service) {
    let server = FerretDb::start();
    let writer = RuleWriter::connect(server.address);
    writer.insert(documents);
    let service = Service::start(
        &[],
        &config(&format!("url: 'mongodb://{}'", server.address)),
    );
    (server, writer, service)
}

/// Returns the active rules as YAML.
fn active_rules(service: &Service) -> String {
    let answer = service.http().get("/v1/rules_text");
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    answer["text"].as_str().unwrap().to_owned()
}

#[test]
fn documents_of_openfluxgate_are_rules_as_they_are() {
    let decimal = |text: &str| text.parse::<Decimal128>().unwrap();
    let documents = [
        doc! {
            "_class": "org.fluxgate.RateLimitRuleDocument", "createdAt": DateTime::from_millis(0),
            "id": "z-last", "name": "Last", "enabled": true, "scope": "GLOBAL",
            "keyStrategyId": "global", "onLimitExceedPolicy": "REJECT_REQUEST",
            "ruleSetId": "api-limits", "attributes": {},
            "bands": [ { "windowSeconds": 1_i64, "capacity": 10_i64, "label": "burst" } ],
        },
        doc! {
            "id": "사용자별-한도", "name": "사용자별 한도", "scope": "PER_USER", "keyStrategyId": "userId",
            "onLimitExceedPolicy": "WAIT_FOR_REFILL", "ruleSetId": "api-limits",
            "bands": [
                { "windowSeconds": 60_i32, "capacity": 100.0, "label": "분당" },
                { "windowSeconds": decimal("3.6E+3"), "capacity": decimal("1000.0"), "label": "100 per hour" },
            ],
            "attributes": { "등급": "표준", "weight": 3_i64 },
        },
        doc! {
            "id": "Tenant quota", "enabled": false, "scope": "CUSTOM", "keyStrategyId": "tenantId",
            "ruleSetId": "api-limits", "bands": [ { "windowSeconds": 86_400.0, "capacity": 7_i32 } ],
        },
        doc! {
            "id": "by-user", "scope": "PER_USER", "bands": [ { "windowSeconds": 1, "capacity": 2 } ],
            "fluxgate": {
                "mode": "shadow", "priority": 5.0, "match": { "path": ["/api/**"] },
                "overrides": [ {
                    "identity": "k", "bands": [ { "capacity": 9_i64, "window": "1s" } ],
                    "until": DateTime::from_millis(1_798_761_600_000),
                } ],
            },
        },
        doc! { "id": "by-key", "bands": [ { "windowSeconds": 1, "capacity": 2 } ] },
        doc! { "id": "address", "scope": "PER_IP", "bands": [ { "windowSeconds": 1, "capacity": 2 } ] },
    ];
    // FerretDB does not have all types of numbers.
    let server = MongoJavaServer::start();
    RuleWriter::connect(server.address).insert(documents);
    let service = Service::start(
        &[],
        &config(&format!("url: 'mongodb://{}'", server.address)),
    );
    let expected = r#"rule_sets:
  api-limits:
    rules:
      - id: tenant-quota
        name: "Tenant quota"
        enabled: false
        key: ["attr:tenantId"]
        bands:
          - { capacity: 7, window: 1d }
      - id: z-last
        name: Last
        scope: global
        bands:
          - { id: burst, capacity: 10, window: 1s }
      - id: ID
        name: "사용자별 한도 (사용자별-한도)"
        scope: per_user
        bands:
          - { id: band-b22b47fd6f65, capacity: 100, window: 1m }
          - { id: "100-per-hour", capacity: 1000, window: 1h }
        on_exceed: wait
        max_wait: 5s
        attributes: { "등급": "표준", weight: "3" }
  default:
    rules:
      - id: address
        scope: per_ip
        bands:
          - { capacity: 2, window: 1s }
      - id: by-key
        scope: per_api_key
        bands:
          - { capacity: 2, window: 1s }
      - id: by-user
        mode: shadow
        priority: 5
        match: { path: ["/api/**"] }
        scope: per_user
        bands:
          - { capacity: 2, window: 1s }
        overrides:
          - { identity: [k], bands: [{ capacity: 9, window: 1s }], until: "2027-01-01T00:00:00Z" }
"#;
    let expected = expected.replace("ID", &fluxgate_import::rule_id("사용자별-한도"));
    assert_eq!(active_rules(&service), expected);
}

#[test]
fn the_documented_document_is_a_rule() {
    let document: Value = serde_json::from_str(&crate::docs::only("json document")).unwrap();
    let (_server, _writer, service) = start([to_document(&document)]);
    let expected = "rule_sets:
  api-limits:
    rules:
      - id: per-user
        name: \"Per user\"
        match: { path: [\"/api/**\"] }
        scope: per_user
        rollout: 10%
        bands:
          - { id: sustained, capacity: 100, window: 1m }
        attributes: { tier: standard }
";
    assert_eq!(active_rules(&service), expected);
}

#[test]
fn faults_name_the_document_and_the_field() {
    let (_server, writer, service) = start([document("good", "api", doc! {})]);
    let faults = [
        (
            document(
                "b",
                "api",
                doc! { "bands": [ { "windowSeconds": 1, "capacity": 1.5 } ] },
            ),
            "document \"b\", field bands.0.capacity: `capacity` must be a whole number",
        ),
        (
            document(
                "b",
                "api",
                doc! { "bands": [ { "windowSeconds": -1_i64, "capacity": 1 } ] },
            ),
            "document \"b\", field bands.0.windowSeconds: `windowSeconds` must be",
        ),
        (
            document("b", "api", doc! { "scope": "PER_MOON" }),
            "document \"b\", field scope: `scope` must be one of",
        ),
        (
            document("b", "api", doc! { "scope": "CUSTOM" }),
            "document \"b\": `scope: CUSTOM` needs a `keyStrategyId`",
        ),
        (
            document("b", "api", doc! { "enabled": "yes" }),
            "document \"b\", field enabled: `enabled` must be true or false",
        ),
        (
            document(
                "b",
                "api",
                doc! { "fluxgate": { "match": { "path": ["/a", "b"] } } },
            ),
            "document \"b\", field fluxgate.match.path.1: ",
        ),
        (
            document("b", "api", doc! { "fluxgate": { "rate": 5 } }),
            "document \"b\", field fluxgate.rate: unknown field `rate`",
        ),
        (
            document(
                "b",
                "api",
                doc! { "name": Binary { subtype: BinarySubtype::Generic, bytes: vec![7] } },
            ),
            "document \"b\", field name: `name` must be a text",
        ),
        (
            doc! { "_id": 7, "scope": "GLOBAL" },
            "document without `id` (`_id` 7): a rule needs an `id`",
        ),
        (
            doc! { "_id": 8, "id": "good", "ruleSetId": "api", "scope": "GLOBAL", "bands": [
                { "windowSeconds": 1, "capacity": 1 }
            ] },
            "document \"good\": another document of rule set `api` has the id `good`",
        ),
    ];
    for (number, (bad, expected)) in faults.into_iter().enumerate() {
        writer.insert([bad]);
        let expected = format!("fluxgate.rate_limit_rules: {expected}");
        wait_until(&expected, || {
            let lines = service.refusals();
            let mut faults = lines.iter().filter_map(|line| line["fault"].as_str());
            faults.any(|fault| fault.starts_with(&expected))
        });
        let others = doc! { "$or": [ { "id": { "$ne": "good" } }, { "_id": 8 } ] };
        writer.delete(others);
        service.wait_for_logs("the rules are unchanged", number + 1);
    }
}

#[test]
fn what_no_rule_has_is_warned_of_once() {
    let with_capacity = |capacity: i64| {
        let bands = doc! { "windowSeconds": 60, "capacity": capacity, "label": "분당" };
        let more = doc! {
            "burstMultiplier": 2, "deniedKeys": ["a"], "description": "text", "bands": [ bands ],
        };
        document("a", "api", more)
    };
    let (_server, writer, service) = start([with_capacity(10)]);
    writer.upsert(&with_capacity(20));
    // The warnings come before this line.
    service.wait_for_logs("rules are active", 2);
    for expected in [
        "not carried over: `burstMultiplier` in a rule",
        "not carried over: `deniedKeys`",
        "changed: the band `분당` has the id `band-b22b47fd6f65` in responses, logs and commands",
    ] {
        let warning = format!("fluxgate.rate_limit_rules: document \"a\": {expected}");
        let lines = service.logs(&warning);
        assert_eq!(lines.len(), 1, "{warning}: {:#?}", service.program.lines());
        assert_eq!(lines[0]["level"], "WARN");
    }
}

#[test]
fn a_collection_without_documents_lifts_no_limit() {
    let (_server, writer, service) = start([document("a", "api", doc! {})]);
    writer.delete(doc! {});
    let line = service.wait_for_refusals(1).remove(0);
    assert!(
        line["why"]
            .as_str()
            .unwrap()
            .contains("no documents any more")
    );
    assert!(active_rules(&service).contains("id: a\n"));
    writer.insert([document("b", "api", doc! { "enabled": false })]);
    wait_until("the new rules", || {
        active_rules(&service).contains("id: b\n")
    });
}

/// Two reads must agree.
#[test]
fn documents_that_change_all_the_time_are_read_later() {
    let many = (0..3_000).map(|number| document(&format!("r{number}"), "api", doc! {}));
    let (server, writer, service) = start(many);
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let address = server.address;
        scope.spawn(move || {
            let writer = RuleWriter::connect(address);
            let mut capacity = 5_i64;
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                capacity += 1;
                let bands = doc! { "bands": [ { "windowSeconds": 1, "capacity": capacity } ] };
                writer.upsert(&document("r0", "api", bands));
            }
        });
        let line = service.wait_for_refusals(1).remove(0);
        assert_eq!(
            line["why"],
            "fluxgate.rate_limit_rules: the documents change while they are read"
        );
        drop(stop);
    });
    let bands = doc! { "bands": [ { "windowSeconds": 1, "capacity": 77 } ] };
    writer.upsert(&document("r0", "api", bands));
    wait_until("the last change", || {
        active_rules(&service).contains("capacity: 77")
    });
}

#[test]
fn the_admin_api_says_where_to_write() {
    let server = FerretDb::start();
    let writer = RuleWriter::of_collection(server.address, "gates", "limits.api");
    writer.insert([document("a", "api", doc! {})]);
    let fields = format!(
        "url: 'mongodb://{}', database: gates, collection: limits.api",
        server.address
    );
    let service = Service::start(&[], &config(&fields));
    let headers = [("Content-Type", "application/json")];
    let mut http = service.http();
    let answer = http.request("PUT", "/v1/rule_sets/api", &headers, r#"{"rules":[]}"#);
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(
        answer
            .body
            .contains("the collection gates.limits.api of MongoDB"),
        "{answer:?}"
    );
    let sets = http.get("/v1/rule_sets").body;
    assert!(sets.contains(r#""source":"mongodb""#), "{sets}");
}

#[test]
fn a_password_is_never_shown() {
    let server = FerretDb::start();
    let dir = Dir::new();
    let url = format!("mongodb://ann:hu%2Fsh@{}/?authSource=admin", server.address);
    let text = format!(
        "listen: {{ api: \"127.0.0.1:0\" }}\ntelemetry: {{ level: debug }}\n{}",
        config(&format!("url: '{url}'"))
    );
    dir.write("fluxgate.yaml", &text);
    let arguments = ["run", "--config", "fluxgate.yaml"];
    let shown = dir.run(&["config", "show", "--config", "fluxgate.yaml"]);
    assert!(shown.stdout.contains("mongodb://ann:***@"), "{shown:?}");
    let validated = dir.run(&["validate", "fluxgate.yaml"]);
    let service = Service::open_in(dir, &arguments, 1);
    service.wait_for_log("there are no rules yet");
    let session = service.http().get("/v1/session").body;
    assert!(session.contains(r#""source":"mongodb""#), "{session}");
    let everything = format!(
        "{shown:?} {validated:?} {session} {}",
        service.program.lines().join("\n")
    );
    for secret in ["hu%2Fsh", "hu/sh"] {
        assert!(!everything.contains(secret), "{everything}");
    }
    let bad = dir_with(&config("url: 'mongodb://ann:hu?sh@a'"));
    let refused = bad.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(
        refused
            .stderr
            .starts_with("fluxgate.yaml:1:31: `url` must be"),
        "{refused:?}"
    );
    assert!(!refused.stderr.contains("hu"), "{refused:?}");
}

fn dir_with(config: &str) -> Dir {
    let dir = Dir::new();
    dir.write("fluxgate.yaml", config);
    dir
}

#[test]
fn a_connection_string_in_a_file_may_be_replaced() {
    let server = FerretDb::start();
    let writer = RuleWriter::connect(server.address);
    writer.insert([document("a", "api", doc! {})]);
    let dir = Dir::new();
    dir.write("url", "redis://ann:hush@localhost\n");
    dir.write(
        "fluxgate.yaml",
        "listen: { api: \"127.0.0.1:0\" }\n".to_owned() + &config("url_file: url"),
    );
    let service = Service::open_in(dir, &["run", "--config", "fluxgate.yaml"], 1);
    let line = service.wait_for_log("there are no rules yet");
    let why = line["why"].as_str().unwrap();
    assert!(
        why.contains("the content of url must be a connection string"),
        "{why}"
    );
    assert!(!why.contains("hush"), "{why}");
    service
        .dir
        .write("url", format!("mongodb://{}\n", server.address));
    service.wait_until_ready();
    // The next one leads through a proxy.
    let proxy = FaultProxy::start(server.address);
    service.dir.write("url", proxy.url("mongodb"));
    wait_until("connections to the new address", || proxy.accepted() > 0);
    writer.upsert(&document("b", "api", doc! {}));
    wait_until("the new rule", || {
        active_rules(&service).contains("id: b\n")
    });
}
