//! Complete lists in the documents: metrics, calls and settings.

use std::collections::BTreeSet;

use fluxgate_testkit::RedisServer;

use super::{Block, read};
use crate::service::Service;
use crate::support::{Dir, TWO_A_SECOND};

/// Returns the words of a text that begin with one of these prefixes.
fn words(text: &str, begins: &[&str]) -> BTreeSet<String> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    let words = words.filter(|word| begins.iter().any(|begin| word.starts_with(begin)));
    words.map(str::to_owned).collect()
}

#[test]
fn every_metric_is_in_the_table_and_no_other() {
    let server = RedisServer::start();
    let redis = format!("store: {{ redis: {{ url: \"{}\" }} }}\n", server.url());
    let mut names = BTreeSet::new();
    // Some exist only with one of the stores.
    for store in ["", &redis] {
        let service = Service::start(&[], &format!("{store}{TWO_A_SECOND}"));
        let exposed = service.http().get("/metrics").body;
        let types = exposed
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        names.extend(types.map(|line| line.split(' ').next().unwrap().to_owned()));
    }
    let text = read("docs/telemetry.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.collect::<Vec<_>>().join("\n");
    assert_eq!(words(&rows, &["fluxgate_", "process_"]), names);
}

#[test]
fn every_call_of_the_api_is_described() {
    let service = Service::start(&[], TWO_A_SECOND);
    let document = service.http().get("/openapi.json").body;
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let guides = read("docs/api.md") + &read("docs/admin.md");
    for path in document["paths"].as_object().unwrap().keys() {
        // A path may be shortened to its end.
        let end = path.strip_prefix("/v1/rule_sets/{set}").unwrap_or(path);
        let (_, last) = path.rsplit_once('/').unwrap();
        let mentions = [
            format!("{path}`"),
            format!("{path}?"),
            format!("…{end}`"),
            format!("`…/{last}`"),
        ];
        assert!(mentions.iter().any(|it| guides.contains(it)), "{path}");
    }
}

#[test]
fn every_feature_of_the_library_is_described() {
    // For other crates, benchmarks, fuzz targets and simulators.
    const INTERNAL: [&str; 4] = ["default", "fuzzing", "json", "simulation"];
    let guide = read("docs/library.md");
    let mut seen = 0;
    for name in ["fluxgate-core", "fluxgate-redis", "fluxgate-tower"] {
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        let (_, features) = manifest.split_once("[features]\n").unwrap();
        let (features, _) = features.split_once("\n[").unwrap();
        let features = features.lines().filter_map(|line| line.split_once(" = "));
        let (_, table) = guide
            .split_once(&format!("| `{name}` | default |"))
            .unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let documentation = read(&format!("crates/{name}/src/lib.rs"));
        for (feature, _) in features.filter(|(name, _)| !INTERNAL.contains(name)) {
            let row = format!("\n| `{feature}` |");
            assert!(table.contains(&row), "docs/library.md lacks {feature}");
            let row = format!("\n//! | `{feature}` |");
            assert!(documentation.contains(&row), "{name} lacks {feature}");
            seen += 1;
        }
    }
    assert!(seen > 8, "{seen}");
}

/// Takes the settings from the output of `config show` for the complete config.
#[test]
fn every_setting_is_described() {
    let blocks = Block::all_of("docs/config.md").into_iter();
    let configs = blocks.filter(|block| block.kind == "yaml");
    let longest = configs.max_by_key(|block| block.text.len());
    let config = longest.unwrap().text;
    let dir = Dir::new();
    dir.write("fluxgate.yaml", config);
    let shown = dir.run(&["config", "show", "--config", "fluxgate.yaml"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    // Another document describes rules.
    let (settings, rules) = shown.stdout.split_once("\nrule_sets:\n").unwrap();
    let mut seen = 0;
    for (text, document) in [(settings, "docs/config.md"), (rules, "docs/rules.md")] {
        let described = described(document);
        for line in text
            .lines()
            .take_while(|line| *line != "on_missing_rule_set: allow")
        {
            let line = line.trim_start_matches([' ', '-', '"']);
            let Some((key, _)) = line.split_once(':') else {
                continue;
            };
            let is_setting = words(key, &[""]).contains(key) && key == key.to_ascii_lowercase();
            // The names of a filter and of attributes.
            if is_setting && !["main", "tenant", "plan"].contains(&key) {
                assert!(described.contains(key), "{document} lacks `{key}`");
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

/// Returns the words in headings and in first columns.
fn described(document: &str) -> BTreeSet<String> {
    let text = read(document);
    let heads = text.lines().filter_map(|line| match line.split_once(' ') {
        Some(("|", row)) => row.split('|').next(),
        Some(("##" | "###", title)) => Some(title),
        _ if line.starts_with('`') => line.split(':').next(),
        _ => None,
    });
    words(&heads.collect::<Vec<_>>().join(" "), &[""])
}
