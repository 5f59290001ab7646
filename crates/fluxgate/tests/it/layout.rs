//! The layout of the source: which crate and which module may import which, and how large
//! files are.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::Dir;

use imports::{Import, Modules, top_level};

/// The crates and their modules, lowest first. A crate may depend only on crates above it
/// in this list; a module may import only modules to its left.
const FLOORS: [(&str, &str); 7] = [
    (
        "fluxgate-core",
        "time clock lossless request_path context sip fingerprint rate limit algorithm key band \
         yaml matcher rules store plan decision json memory ad_hoc limiter conformance",
    ),
    (
        "fluxgate-redis",
        "reason back_off error events identity_hash keys script breaker endpoint subscription \
         codec sentinel node cluster batch servers near_cache decider across_slots rule_store \
         wait_permits store builder injected_time fuzzing",
    ),
    (
        "fluxgate-tower",
        "request_head report headers problem client_ip handler context filter remote rate_limit",
    ),
    (
        "fluxgate-simulate",
        "time event combined input summary report simulation fuzzing",
    ),
    (
        "fluxgate-http",
        "request_id origin header_values buffers closing descriptors prefixed_stream error_rewriter",
    ),
    (
        "fluxgate-gateway",
        "config error hop_by_hop timeouts upstream request_body exchange routes forward \
         http_builders gateway admission forwarded upstream_request request_checks echo fast_path \
         http_server fuzz",
    ),
    (
        "fluxgate",
        "watch config failure telemetry engine reload serve admin api grpc resp server \
         cli fuzzing",
    ),
];

const MAX_LINES: usize = 500;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn crates_depend_on_lower_crates() {
    for (at, (name, _)) in FLOORS.iter().enumerate() {
        let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
        let (_, dependencies) = manifest.split_once("\n[dependencies]").unwrap();
        let dependencies = dependencies.split("\n[dev-dependencies]").next().unwrap();
        for (above, _) in &FLOORS[at..] {
            let mut lines = dependencies.lines();
            let line = lines.find(|line| line.starts_with(&format!("{above}.")));
            assert_eq!(line, None, "{name} must not depend on {above}");
        }
    }
}

#[test]
fn modules_import_lower_modules() {
    for (name, floors) in FLOORS {
        let modules = Modules::read(&crates().join(name).join("src"));
        let faults = upward(&modules, floors);
        assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
    }
}

#[test]
fn files_do_not_import_in_circles() {
    for (name, _) in FLOORS {
        let modules = Modules::read(&crates().join(name).join("src"));
        let faults = circles(&modules.imports());
        assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
    }
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
fn a_wrong_import_is_reported_with_its_line() {
    let dir = Dir::new();
    let source = dir.path("");
    dir.write("lib.rs", "mod high;\nmod low;\npub use high::Top;\n");
    dir.write("high.rs", "use crate::low::Base;\npub struct Top(Base);\n");
    let low = "//! use crate::high::Top;\n\npub struct Base;\n\n#[cfg(test)]\nmod tests {\n    \
               use crate::high::Top;\n}\n";
    dir.write("low.rs", low);
    let imports = |modules: &Modules| (upward(modules, "low high"), circles(&modules.imports()));
    let (upwards, circle) = imports(&Modules::read(&source));
    assert!(
        upwards.is_empty() && circle.is_empty(),
        "{upwards:?} {circle:?}"
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
        let (upwards, circle) = imports(&Modules::read(&source));
        assert_eq!(upwards.len(), 1, "{planted}");
        assert!(
            upwards[0].contains("low.rs:3: low imports high"),
            "{upwards:?}"
        );
        assert_eq!(
            circle.is_empty(),
            planted.starts_with("pub use"),
            "{planted}"
        );
    }
    let unknown = upward(&Modules::read(&source), "low");
    assert!(unknown[0].contains("high has no place"), "{unknown:?}");
}

/// Returns a line for each import of a module that is not lower.
fn upward(modules: &Modules, floors: &str) -> Vec<String> {
    let floors: Vec<_> = floors.split_whitespace().collect();
    let floor = |module: &str| floors.iter().position(|name| *name == top_level(module));
    let unplaced = modules
        .top_level()
        .into_iter()
        .filter(|name| floor(name).is_none());
    let mut faults: Vec<_> = unplaced
        .map(|name| format!("{name} has no place"))
        .collect();
    for Import {
        file,
        line,
        from,
        to,
        ..
    } in modules.imports()
    {
        if let (Some(here), Some(there)) = (floor(&from), floor(&to))
            && there > here
        {
            let file = file.display();
            faults.push(format!(
                "{file}:{line}: {from} imports {to}, which is higher"
            ));
        }
    }
    faults
}

/// Returns a line for each circle of files.
fn circles(imports: &[Import]) -> Vec<String> {
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in imports.iter().filter(|import| !import.is_reexport) {
        edges.entry(&import.from).or_default().insert(&import.to);
    }
    let reachable = |from: &str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = edges.get(from).into_iter().flatten().copied().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(edges.get(module).into_iter().flatten());
            }
        }
        seen
    };
    let reachable: BTreeMap<_, _> = edges.keys().map(|from| (*from, reachable(from))).collect();
    let mut circles = BTreeSet::new();
    for (from, seen) in &reachable {
        let is_mutual = |to: &&&str| reachable.get(**to).is_some_and(|back| back.contains(from));
        let circle: Vec<_> = seen.iter().filter(is_mutual).copied().collect();
        if !circle.is_empty() {
            circles.insert(circle.join(", "));
        }
    }
    circles.into_iter().collect()
}

/// Returns every source file of the crates with its number of lines.
fn sources() -> Vec<(PathBuf, usize)> {
    let mut sources = Vec::new();
    for (name, _) in FLOORS {
        let mut folders = vec![crates().join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|it| it == "rs") {
                    let lines = fs::read_to_string(&path).unwrap().lines().count();
                    sources.push((path, lines));
                }
            }
        }
    }
    sources
}
