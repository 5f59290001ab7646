//! nginx.

use fluxgate_import::Format;

use super::{assert_lines, at_once, decide, rules, simulate};

/// Returns a server with a zone of 10 requests a second per address, and this content.
fn server(content: &str) -> String {
    format!(
        "http {{\n  limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;\n  \
         server {{\n    server_name example.com;\n    {content}\n  }}\n}}\n"
    )
}

const REQUEST: &str = "\"ip\":\"192.0.2.1\",\"path\":\"/\"";

fn at(micros: u64) -> String {
    format!("{{\"t\":{micros},{REQUEST}}}\n")
}

#[test]
fn a_burst_without_delay_admits_one_more_than_the_burst() {
    for burst in [0, 1, 5, 20] {
        let text = server(&format!("limit_req zone=one burst={burst} nodelay;"));
        let decided = at_once(&rules(Format::Nginx, &text), &[REQUEST; 30]);
        let expected = "a".repeat(burst + 1) + &"d".repeat(29 - burst);
        assert_eq!(decided, expected, "{burst}");
    }
    // One request returns every 100 ms.
    let text = server("limit_req zone=one burst=1 nodelay;");
    let lines = [0, 0, 0, 99_999, 100_000, 100_000].map(at).concat();
    assert_eq!(decide(&rules(Format::Nginx, &text), &lines), "aaddad");
}

#[test]
fn without_a_burst_requests_must_be_apart() {
    let rules = rules(Format::Nginx, &server("limit_req zone=one;"));
    let lines = [0, 99_999, 100_000, 100_001, 200_000].map(at).concat();
    assert_eq!(decide(&rules, &lines), "adada");
}

/// Returns the delays of requests at once, in milliseconds, of those that pass.
#[track_caller]
fn delays(rules: &str, count: usize) -> Vec<u64> {
    let decisions = simulate(rules, &at(0).repeat(count));
    let passed = decisions
        .lines()
        .filter(|line| line.contains("\"allowed\":true"));
    let delay = |line: &str| {
        let (_, rest) = line.split_once("\"delay_us\":").unwrap();
        let digits = rest.split(',').next().unwrap();
        digits.parse::<u64>().unwrap() / 1_000
    };
    passed.map(delay).collect()
}

#[test]
fn a_burst_is_delayed_to_the_rate() {
    let queued = rules(Format::Nginx, &server("limit_req zone=one burst=3;"));
    assert_eq!(delays(&queued, 9), [0, 100, 200, 300]);
    let two_stages = rules(
        Format::Nginx,
        &server("limit_req zone=one burst=5 delay=3;"),
    );
    assert_eq!(delays(&two_stages, 9), [0, 0, 0, 0, 100, 200]);
    let no_delay = rules(
        Format::Nginx,
        &server("limit_req zone=one burst=2 delay=7;"),
    );
    assert_eq!(delays(&no_delay, 9), [0, 0, 0]);
}

const SITE: &str = "
user www;
http {
    include mime.types;
    include conf.d/*.conf;
    limit_req_zone $binary_remote_addr zone=perip:10m rate=10r/s;
    limit_req_zone $http_x_api_key zone=perkey:10m rate=60r/m;
    limit_req_zone $limit zone=mapped:10m rate=1r/s;
    limit_conn_zone $binary_remote_addr zone=conns:10m;
    map $http_x_plan $limit { default $binary_remote_addr; free \"\"; }
    limit_req_status 444;
    upstream backend { server 127.0.0.1:9000; }
    server {
        listen 443 ssl;
        server_name shop.example.com www.example.com;
        limit_req zone=perip burst=2 nodelay;   # the default
        location / { proxy_pass http://backend; }
        location /api/ {
            limit_req zone=perkey burst=1 nodelay;
            limit_conn conns 10;
            location /api/open/ { limit_req zone=perip burst=2 nodelay; }
        }
        location = /api/health { limit_req_dry_run on; }
        location ~* \\.(png|css)$ { limit_req zone=mapped; }
        location ~ ^/v\\d+/ { limit_req zone=perkey; }
        location @fallback { limit_req zone=perip; }
    }
    server {
        server_name shop.example.com;
        limit_req zone=perip burst=2 nodelay;
    }
}
";

#[test]
fn a_site_is_carried_over_by_its_locations() {
    let rules = rules(Format::Nginx, SITE);
    assert_lines(
        &rules,
        &[
            "# not carried over: `include conf.d/*.conf`: the file is not read (line 5)",
            "# not carried over: zone `mapped`: rules cannot count by $limit (line 8)",
            "# not carried over: `limit_req_status 444`: a denied request is answered with 429 (line 11)",
            "# not carried over: the limits of `location @fallback` (line 26)",
            "\"shop.example.com\":",
            "# changed: the requests of `/api/` count here too (line 18)",
            "- id: perip",
            "- { capacity: 3, window: 1s, refill: 10 }",
            "- id: perkey",
            "path: [\"/api/*/**\"]",
            "key: [\"header:x-api-key\"]",
            "on_missing_key: skip",
            "- { capacity: 2, window: 1m, refill: 60 }",
            "- id: conns",
            "path: [\"/api/*/**\", \"/api/open/*/**\"]",
            "algorithm: concurrency",
            "- { capacity: 10 }",
            "- id: perip-2",
            "mode: shadow",
            "path: [\"/api/health\"]",
            "- id: perkey-2",
            "path: [\"/v?*/*/**\"]",
            "\"shop.example.com-2\":",
            "- id: perip",
        ],
    );
    let request = |path: &str| {
        format!(
            "\"rule_set\":\"shop.example.com\",\"ip\":\"192.0.2.1\",\"path\":\"{path}\",\
             \"headers\":{{\"X-API-Key\":\"k\"}}"
        )
    };
    let (page, api) = (request("/page"), request("/api/x"));
    assert_eq!(at_once(&rules, &[&page, &page, &page, &page]), "aaad");
    assert_eq!(at_once(&rules, &[&api, &api, &api]), "aad");
}

#[test]
fn equal_uses_of_a_zone_are_one_counter() {
    let text = server(
        "location /a { limit_req zone=one burst=1 nodelay; } \
         location /b { limit_req zone=one burst=1 nodelay; } \
         location /c { }",
    );
    let rules = rules(Format::Nginx, &text);
    assert_lines(&rules, &["- id: one", "path: [\"/a*/**\", \"/b*/**\"]"]);
    let request = |path: &str| format!("\"ip\":\"192.0.2.1\",\"path\":\"{path}\"");
    let (a, b, c) = (request("/a"), request("/b"), request("/c"));
    assert_eq!(at_once(&rules, &[&a, &b, &a, &b, &c, &c]), "aaddaa");
}

/// nginx looks for the expression only among the requests of the location around it.
#[test]
fn a_nested_expression_does_not_cover_the_server() {
    let nested = |limit: &str| {
        server(&format!(
            "limit_req zone=one; location /api/ {{ limit_req zone=one burst=9 nodelay; \
             location ~ \\.png$ {{ {limit} }} }}"
        ))
    };
    let request = |path: &str| format!("\"ip\":\"192.0.2.1\",\"path\":\"{path}\"");
    let (outside, inside) = (request("/x.png"), request("/api/x.png"));
    let same = rules(Format::Nginx, &nested(""));
    assert_eq!(at_once(&same, &[&outside, &outside]), "ad");
    assert_eq!(at_once(&same, &[&inside, &inside]), "aa");
    let other = rules(
        Format::Nginx,
        &nested("limit_req zone=one burst=5 nodelay;"),
    );
    assert_lines(
        &other,
        &[
            "# not carried over: the limit of `\\.png$`: no path pattern matches the same paths (line 5)",
        ],
    );
    assert_eq!(at_once(&other, &[&outside, &outside]), "ad");
}

#[test]
fn addresses_other_than_the_client_s_are_reported() {
    let text =
        "limit_req_zone $realip_remote_addr$server_port zone=z:1m rate=1r/s;\nlimit_req zone=z;\n";
    assert_lines(
        &rules(Format::Nginx, text),
        &[
            "# changed: $realip_remote_addr is the address of the client, not of the proxy (line 1)",
            "# changed: $server_port is ignored: all addresses and ports of a server count together (line 1)",
            "scope: per_ip",
        ],
    );
}

#[test]
fn a_part_of_a_configuration_needs_no_server() {
    let text =
        "limit_req_zone $server_name zone=all:1m rate=1r/s;\nlocation /x { limit_req zone=all; }\n";
    let rules = rules(Format::Nginx, text);
    assert_lines(
        &rules,
        &["nginx:", "- id: all", "path: [\"/x*/**\"]", "scope: global"],
    );
}

#[test]
fn bursts_have_a_bound() {
    let text =
        "limit_req_zone $uri zone=z:1m rate=1r/m;\nlimit_req zone=z burst=900000000 nodelay;\n";
    let rules = rules(Format::Nginx, text);
    assert_lines(
        &rules,
        &[
            "# changed: a burst of 900000000 is reduced to 5270399, the maximum (line 1)",
            "key: [path]",
            "- { capacity: 5270400, window: 1m, refill: 1 }",
        ],
    );
}

/// The blocks of HTTP and HTTPS count together in nginx, because they use one zone.
#[test]
fn servers_with_one_name_and_the_same_limits_are_one_set() {
    let blocks = |second: &str| {
        format!(
            "limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;\n\
             server {{ listen 80; server_name e.com www.e.com; limit_req zone=one burst=1 nodelay; }}\n\
             server {{ listen 443 ssl; server_name e.com www.e.com; {second} }}\n"
        )
    };
    let same = rules(
        Format::Nginx,
        &blocks("limit_req zone=one burst=1 nodelay;"),
    );
    assert_lines(
        &same,
        &[
            "# changed: the server is also named `www.e.com`: use this set for all its names (line 2)",
            "\"e.com\":",
            "- id: one",
        ],
    );
    assert_eq!(same.matches("changed").count(), 1, "{same}");
    assert_eq!(same.matches("- id:").count(), 1, "{same}");
    let other = rules(
        Format::Nginx,
        &blocks("limit_req zone=one burst=7 nodelay;"),
    );
    assert_lines(
        &other,
        &[
            "\"e.com\":",
            "# changed: zone `one` is one counter in nginx; e.com-2/one and this rule have their own (line 1)",
            "# changed: another server has the same name and other limits, see `e.com` (line 3)",
            "\"e.com-2\":",
            "- { capacity: 8, window: 1s, refill: 10 }",
        ],
    );
}

#[test]
fn addresses_that_geo_exempts_are_not_limited() {
    let rules = rules(
        Format::Nginx,
        "
http {
    geo $limited { default 1; 10.0.0.0/8 0; 192.0.2.7 0; }
    map $limited $limit_key { 0 \"\"; 1 $binary_remote_addr; }
    limit_req_zone $limit_key zone=one:10m rate=10r/s;
    server { server_name e.com; limit_req zone=one; }
}
",
    );
    assert_lines(
        &rules,
        &[
            "- id: one",
            "not_ip: [\"10.0.0.0/8\", \"192.0.2.7\"]",
            "scope: per_ip",
        ],
    );
    for (ip, expected) in [("10.1.2.3", "aa"), ("192.0.2.7", "aa"), ("192.0.2.8", "ad")] {
        let request = format!("\"ip\":\"{ip}\",\"path\":\"/\"");
        assert_eq!(at_once(&rules, &[&request, &request]), expected, "{ip}");
    }
}

#[test]
fn a_named_group_is_a_group() {
    let text = server("location ~ ^/users/(?<id>\\d+)/orders$ { limit_req zone=one; }");
    assert_lines(
        &rules(Format::Nginx, &text),
        &["path: [\"/users/?*/orders\"]"],
    );
}

#[test]
fn requests_in_progress_become_slots() {
    let text = "
map $http_x_api_key $client { default $http_x_api_key; '' $binary_remote_addr; }
limit_conn_zone $client zone=clients:10m;
limit_conn_zone $binary_remote_addr zone=addr:10m;
limit_req_zone $client zone=rate:10m rate=1r/s;
limit_conn_status 503;
limit_conn addr 20;
server {
    server_name a;
    limit_req zone=rate;
    location /reports/ { limit_conn clients 2; limit_conn addr 9; limit_conn_dry_run on; }
}
";
    let rules = rules(Format::Nginx, text);
    assert_lines(
        &rules,
        &[
            "# not carried over: `limit_conn_status 503`: a denied request is answered with 429 (line 6)",
            "a:",
            "- id: rate",
            "key: [\"header:x-api-key\"]",
            "- { capacity: 1, window: 1s }",
            "# changed: zone `addr` is one counter in nginx; a/addr-2 and this rule have their own (line 4)",
            "- id: addr",
            "not_path: [\"/reports/*/**\"]",
            "scope: per_ip",
            "algorithm: concurrency",
            "- { capacity: 20 }",
            "- id: clients",
            "mode: shadow",
            "path: [\"/reports/*/**\"]",
            "key: [\"header:x-api-key\"]",
            "algorithm: concurrency",
            "- { capacity: 2 }",
            "- id: addr-2",
            "mode: shadow",
            "- { capacity: 9 }",
        ],
    );
    let request = |key: &str| format!("\"ip\":\"192.0.2.1\",\"path\":\"/\"{key}");
    let (bare, keyed) = (request(""), request(",\"headers\":{\"x-api-key\":\"k\"}"));
    let (bare, keyed) = (bare.as_str(), keyed.as_str());
    assert_eq!(at_once(&rules, &[bare, bare, keyed, keyed, bare]), "adadd");
}

#[test]
fn a_zone_has_one_kind() {
    let text = "limit_conn_zone $uri zone=z:1m;\nlimit_req zone=z;\nlimit_conn z;\nlimit_conn z 0;\n\
                limit_conn_zone $uri z;\nlimit_conn_dry_run perhaps;\n";
    let error = super::import(Format::Nginx, text).unwrap_err().to_string();
    let expected = "2:1: zone `z` on line 1 is of another kind\n\
        3:1: `limit_conn` needs a zone and a number of connections from 1 to 65535\n\
        4:1: `limit_conn` needs a zone and a number of connections from 1 to 65535\n\
        5:1: `limit_conn_zone` needs a key and `zone=NAME:SIZE`\n\
        6:1: `limit_conn_dry_run` must be on or off, not `perhaps`";
    assert_eq!(error, expected);
}
