//! The layout of the source: which crates and modules may import which, and how long files
//! may be.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::Dir;

use imports::{Import, Modules, top_level};

/// The crates and their modules, lowest first. A crate may depend only on crates earlier in
/// this list, and a module may import only modules earlier in its line.
const LAYERS: [(&str, &str); 10] = [
    (
        "fluxgate-core",
        "simulation random time clock text regular_file request_path context sip rate calendar hold limit percent lease quota algorithm key band \
         yaml network matcher rules task store reservation plan decision observer json memory keyed ad_hoc \
         renewal limiter shared_keyed serde_impls guide conformance",
    ),
    (
        "fluxgate-redis",
        "simulation reason lock back_off error events identity_hash keys script breaker endpoint \
         lease codec sentinel per_runtime deadlines node cluster batch servers near_cache lease_client decider lease_keeper holds hash_slots rule_store record heartbeats deployment_secret usage_record event_log \
         wait_permits store builder injected_time fuzzing",
    ),
    (
        "fluxgate-sim",
        "clock random oracle fleet trace redis plan network ledger reference world minimise explore",
    ),
    (
        "fluxgate-http",
        "trust endpoint alike_names request_head report headers problem grpc client_ip claims source checked_headers jwt request_hold handler context filter evaluation server",
    ),
    ("fluxgate-tower", "remote rate_limit"),
    (
        "fluxgate-simulate",
        "time event combined input summary replay warm_start changes report simulation fuzzing",
    ),
    (
        "fluxgate-import",
        "remark names config_draft draft rule_file fields path_patterns spring bucket4j envoy_ratelimit kong nginx openfluxgate \
         spring_cloud_gateway",
    ),
    (
        "fluxgate-llm",
        "text reader api error reserve members prompt request usage answer \
         usage_tally stream meter fuzzing",
    ),
    (
        "fluxgate-gateway",
        "config observer error hop_by_hop counts http2_frames timeouts upstream request_body exchange routes rewrite forward \
         llm mcp received_request engine admission active_config health_check request_record gateway forwarded_headers upstream_request request_checks echo fast_path \
         http_server fuzz",
    ),
    (
        "fluxgate",
        "watch hold_span config failure identities telemetry engine described_request events reload serve admin console live instances recording usage history api grpc resp server \
         cli fuzzing",
    ),
];

const MAX_LINES: usize = 800;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the source directories of all crates, those outside `LAYERS` included.
fn source_directories() -> Vec<PathBuf> {
    let entries = fs::read_dir(crates()).unwrap();
    let directories = entries.map(|entry| entry.unwrap().path().join("src"));
    let mut directories: Vec<_> = directories.filter(|path| path.is_dir()).collect();
    directories.sort();
    directories
}

#[test]
fn crates_depend_only_on_lower_crates() {
    for (index, (name, _)) in LAYERS.iter().enumerate() {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("\n[dependencies]").unwrap();
        let dependencies = dependencies.split("\n[dev-dependencies]").next().unwrap();
        for (above, _) in &LAYERS[index..] {
            let mut lines = dependencies.lines();
            let line = lines.find(|line| line.starts_with(&format!("{above}.")));
            assert_eq!(line, None, "{name} must not depend on {above}");
        }
    }
}

#[test]
fn modules_import_only_lower_modules() {
    for (name, layers) in LAYERS {
        let modules = Modules::read(&crates().join(name).join("src"));
        let faults = upward_imports(&modules, layers);
        assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
    }
}

/// A cycle is when the code of one file uses items that another file defines, and the code of
/// the other uses items of the first, directly or through more files. Declaring a child module
/// and re-exporting its items is not a use, so a parent that only does this is in no cycle with
/// children that use its items.
#[test]
fn files_have_no_import_cycles() {
    let directories = source_directories();
    let cycles = directories
        .iter()
        .flat_map(|source| cycles(&Modules::read(source).imports()));
    let cycles: Vec<_> = cycles.collect();
    assert!(
        cycles.is_empty(),
        "{} cycles:\n{}",
        cycles.len(),
        cycles.join("\n")
    );
}

#[test]
fn no_file_is_too_long() {
    let long = sources()
        .into_iter()
        .filter(|(_, lines)| *lines > MAX_LINES);
    let long: Vec<_> = long.collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn a_forbidden_import_is_reported_with_its_line() {
    let dir = Dir::new();
    let source = dir.path("");
    dir.write("lib.rs", "mod high;\nmod low;\npub use high::Top;\n");
    dir.write("high.rs", "use crate::low::Base;\npub struct Top(Base);\n");
    let low = "//! use crate::high::Top;\n\npub struct Base;\n\n#[cfg(test)]\nmod tests {\n    \
               use crate::high::Top;\n}\n";
    dir.write("low.rs", low);
    let faults = |modules: &Modules| {
        (
            upward_imports(modules, "low high"),
            cycles(&modules.imports()),
        )
    };
    let (upward, cycles) = faults(&Modules::read(&source));
    assert!(
        upward.is_empty() && cycles.is_empty(),
        "{upward:?} {cycles:?}"
    );
    for planted in [
        "use crate::high::Top;",
        "use crate::{high::Top};",
        "pub use crate::Top;",
        "fn top(_: crate::high::Top) {}",
        "fn top(_: super::Top) {}",
    ] {
        dir.write(
            "low.rs",
            low.replacen("pub struct", &format!("{planted}\npub struct"), 1),
        );
        let (upward, cycles) = faults(&Modules::read(&source));
        assert_eq!(upward.len(), 1, "{planted}");
        assert!(upward[0].contains("low.rs:3: low uses high"), "{upward:?}");
        assert_eq!(
            cycles.is_empty(),
            planted.starts_with("pub use"),
            "{planted}"
        );
    }
    let unknown = upward_imports(&Modules::read(&source), "low");
    assert!(unknown[0].contains("high is not in LAYERS"), "{unknown:?}");
}

#[test]
fn a_cycle_of_a_parent_and_its_child_is_reported_with_its_lines() {
    let dir = Dir::new();
    let source = dir.path("");
    dir.write("lib.rs", "mod parent;\n");
    fs::create_dir(dir.path("parent")).unwrap();
    let parent = "mod child;\npub use child::Item;\npub struct State;\n";
    let cycles_of = |code: &str, child: &str| {
        dir.write("parent.rs", format!("{parent}{code}\n"));
        dir.write("parent/child.rs", child);
        cycles(&Modules::read(&source).imports())
    };
    let uses_parent = "use super::State;\npub struct Item(State);\npub fn handle(_: State) {}\n";
    for code in [
        "fn route() { child::handle(State); }",
        "fn route(_: Item) {}",
        "fn route() -> child::Item { Item::new() }",
        "use self::child as other;\nfn route() { other::handle(State); }",
        "fn route() { for _ in child::all() {} }",
    ] {
        let found = cycles_of(code, uses_parent);
        let [cycle] = &found[..] else {
            panic!("{code}: {found:?}");
        };
        for line in ["parent.rs:", "child.rs:1: parent::child uses parent"] {
            assert!(cycle.contains(line), "{code}: {cycle}");
        }
    }
    // A re-export is no use, and neither is a child that does not use its parent's file.
    assert_eq!(cycles_of("", uses_parent), [""; 0]);
    let uses_root = "use super::super::Root;\npub struct Item(Root);\npub fn handle(_: Root) {}\n";
    assert_eq!(cycles_of("fn route(_: Item) {}", uses_root), [""; 0]);
}

/// Returns a line for each import of a higher module, and for each unlisted module.
fn upward_imports(modules: &Modules, layers: &str) -> Vec<String> {
    let layers: Vec<_> = layers.split_whitespace().collect();
    let layer = |module: &str| layers.iter().position(|name| *name == top_level(module));
    let unlisted = modules
        .top_level()
        .into_iter()
        .filter(|name| layer(name).is_none());
    let mut faults: Vec<_> = unlisted
        .map(|name| format!("{name} is not in LAYERS"))
        .collect();
    for import in modules.imports() {
        if let (Some(here), Some(there)) = (layer(&import.from), layer(&import.to))
            && there > here
        {
            faults.push(format!("{import}, which is higher"));
        }
    }
    faults
}

/// Returns each import cycle: its modules, and the first line of each use between them.
fn cycles(imports: &[Import]) -> Vec<String> {
    let imports = imports.iter().filter(|import| !import.is_reexport);
    let mut edges: BTreeMap<&str, BTreeMap<&str, &Import>> = BTreeMap::new();
    for import in imports {
        let edges = edges.entry(&import.from).or_default();
        edges.entry(&import.to).or_insert(import);
    }
    let reachable = |from: &str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = edges
            .get(from)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect();
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(edges.get(module).into_iter().flat_map(BTreeMap::keys));
            }
        }
        seen
    };
    let reachable: BTreeMap<_, _> = edges.keys().map(|from| (*from, reachable(from))).collect();
    let mut cycles = BTreeMap::new();
    for (from, seen) in &reachable {
        let is_mutual = |to: &&&str| reachable.get(**to).is_some_and(|back| back.contains(from));
        let cycle: BTreeSet<_> = seen.iter().filter(is_mutual).copied().collect();
        if cycle.is_empty() {
            continue;
        }
        cycles
            .entry(cycle.iter().copied().collect::<Vec<_>>().join(", "))
            .or_insert_with(|| {
                let edges = cycle.iter().flat_map(|from| &edges[from]);
                let edges = edges.filter(|(to, _)| cycle.contains(**to));
                edges
                    .map(|(_, import)| format!("\n    {import}"))
                    .collect::<String>()
            });
    }
    cycles
        .into_iter()
        .map(|(modules, uses)| modules + &uses)
        .collect()
}

/// Returns every source file of the crates and its number of lines.
fn sources() -> Vec<(PathBuf, usize)> {
    let mut sources = Vec::new();
    for directory in source_directories() {
        let mut directories = vec![directory];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|it| it == "rs") {
                    let lines = fs::read_to_string(&path).unwrap().lines().count();
                    sources.push((path, lines));
                }
            }
        }
    }
    sources
}
