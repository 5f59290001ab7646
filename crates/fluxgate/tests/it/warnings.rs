//! Warnings of `fluxgate validate` and at the start.

use crate::service::Service;
use crate::support::Dir;

const RULES: &str = "\
rule_sets:
  api:
    rules:
      - id: all
        group: plan
        scope: per_user
        bands: [ 10/s, 600/m ]
      - id: pro
        group: plan
        match: { attributes: { plan: pro } }
        scope: per_user
        bands: [ 100/s ]
      - { id: try, mode: shadow, rollout: 5%, scope: per_user, bands: [ 1/s ] }
";

/// The warnings about the rules themselves.
const ABOUT_RULES: [&str; 3] = [
    "7:24: warning: band `b1` has no effect: it allows everything that band `b0` allows",
    "8:9: warning: rule `pro` never applies: rule `all`, which is earlier in group `plan`, \
     matches every request that it matches",
    "13:43: warning: `rollout` has no effect on a rule with `mode: shadow`",
];

#[test]
fn warnings_have_positions_and_only_strict_fails() {
    let dir = Dir::with_rules(RULES);
    let expected: Vec<_> = ABOUT_RULES
        .iter()
        .map(|it| format!("rules.yaml:{it}"))
        .collect();
    let run = dir.run(&["validate", "rules.yaml"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stderr.lines().collect::<Vec<_>>(), expected);
    assert_eq!(
        run.stdout,
        "rules.yaml: ok, 1 rule set(s) with 3 enabled rule(s)\n"
    );
    let run = dir.run(&["validate", "--strict", "rules.yaml"]);
    assert_eq!((run.code, &*run.stdout), (Some(78), ""));
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines[..3], expected[..]);
    assert_eq!(lines[3..], ["rules.yaml: 3 warning(s), with --strict"]);
    let good = Dir::with_rules(crate::support::TWO_A_SECOND);
    assert_eq!(
        good.run(&["validate", "rules.yaml", "--strict"])
            .lines()
            .len(),
        1
    );
}

#[test]
fn warnings_about_rules_in_a_directory_name_their_file() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("rules.d")).unwrap();
    dir.write("rules.d/a.yaml", RULES);
    dir.write(
        "fluxgate.yaml",
        "rules_from: { dir: rules.d }\nlisten: { api: '127.0.0.1:0' }\n",
    );
    let expected: Vec<_> = ABOUT_RULES
        .iter()
        .map(|it| format!("rules.d/a.yaml:{it}"))
        .collect();
    for path in ["rules.d", "fluxgate.yaml"] {
        let run = dir.run(&["validate", path]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(run.stderr.lines().collect::<Vec<_>>(), expected, "{path}");
    }
}

const FILTERED: &str = "\
filters:
  main: { rule_set: api, include: [/api/**] }
  other: { rule_set: plain }
store: { memory: { max_log_events: 50 } }
rule_sets:
  api:
    rules:
      - id: pro
        match: { attributes: { plan: [pro, team] } }
        scope: per_user
        bands: [ 100/s ]
      - { id: tenants, key: [ip, \"attr:tenant\"], on_missing_key: skip, bands: [ 1/s ] }
      - { id: web, match: { path: [/web/**] }, scope: per_ip, bands: [ 1/s ] }
      - { id: rest, match: { attributes: { plan: { not: pro } } }, scope: per_user, bands: [ 1/s ] }
  plain:
    rules:
      - { id: logged, scope: per_user, algorithm: sliding_log, bands: [ 100/m ] }
  envoy:
    rules:
      - { id: pro, match: { attributes: { plan: pro } }, scope: per_user, bands: [ 1/s ] }
";

const ABOUT_FILTERS: [&str; 4] = [
    "rule `pro` never matches: requests of filter `main` have no attribute `plan`",
    "rule `tenants` never matches: requests of filter `main` have no attribute `tenant`",
    "rule `web` never matches: filter `main` includes none of its paths",
    "a log of band `b0` may have 100 events, but the store holds at most 50 of all logs together",
];

#[test]
fn rules_that_a_filter_never_feeds_are_reported() {
    let dir = Dir::new();
    dir.write(
        "fluxgate.yaml",
        format!("listen: {{ api: '127.0.0.1:0' }}\n{FILTERED}"),
    );
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let places = ["10:32", "13:34", "14:35", "18:73"];
    let expected = places.iter().zip(ABOUT_FILTERS);
    let expected = expected.map(|(at, what)| format!("fluxgate.yaml:{at}: warning: {what}"));
    assert_eq!(
        run.stderr.lines().collect::<Vec<_>>(),
        expected.collect::<Vec<_>>()
    );
}

#[test]
fn a_rule_may_need_attributes_that_its_filter_sets() {
    let dir = Dir::new();
    let attributes = "attributes: { plan: 'header:X-Plan', tenant: 'query:tenant' }, include:";
    let config = FILTERED.replacen("include:", attributes, 1);
    dir.write(
        "fluxgate.yaml",
        format!("listen: {{ api: '127.0.0.1:0' }}\n{config}"),
    );
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stderr.contains("attribute"), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 2, "{run:?}");
}

#[test]
fn warnings_are_logged_at_the_start_and_new_ones_at_a_reload() {
    let service = Service::start(&[], FILTERED);
    let lines = || -> Vec<String> {
        let lines = service.program.lines();
        lines
            .iter()
            .filter(|line| line.contains("\"WARN\"") && line.contains("\"fluxgate.yaml:"))
            .cloned()
            .collect()
    };
    service.wait_for_log("rules are active");
    let logged = lines();
    assert_eq!(logged.len(), 4, "{logged:?}");
    for (line, what) in logged.iter().zip(ABOUT_FILTERS) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "WARN");
        let message = line["message"].as_str().unwrap();
        assert!(
            message.starts_with("fluxgate.yaml:") && message.ends_with(what),
            "{message}"
        );
        assert!(!message.contains("warning"), "{message}");
    }
    let config = service.dir.read("fluxgate.yaml");
    let config = config.replace("100/s", "200/s");
    service.dir.write("fluxgate.yaml", &config);
    service.wait_for_logs("rules are active", 2);
    assert_eq!(lines(), logged, "they are the same");
    // In other places they are new.
    let moved = format!("# moved\n{}", config.replace("200/s", "300/s"));
    service.dir.write("fluxgate.yaml", moved);
    fluxgate_testkit::wait_until("the new warnings", || lines().len() == 8);
}

#[test]
fn a_missing_directory_of_the_cache_is_reported() {
    for (cache, expected) in [
        ("cache.yaml", None),
        ("cache/rules.yaml", Some("cache")),
        ("/nowhere/at/all/rules.yaml", Some("/nowhere/at/all")),
    ] {
        let dir = Dir::new();
        let config = format!(
            "listen: {{ api: '127.0.0.1:0' }}\n\
             rules_from:\n  http: {{ url: 'http://127.0.0.1:1/', cache_file: {cache} }}\n"
        );
        dir.write("fluxgate.yaml", config);
        let run = dir.run(&["validate", "fluxgate.yaml"]);
        let expected = expected.map(|directory| {
            format!(
                "fluxgate.yaml:3:51: warning: `rules_from.http.cache_file`: the directory \
                 {directory} does not exist on this machine, so the rules are not cached\n"
            )
        });
        assert_eq!(
            (run.code, run.stderr),
            (Some(0), expected.unwrap_or_default())
        );
    }
}

/// Writes files into `rules.d` and a config that reads it; returns what `validate` warns of.
fn warnings_of_directory(dir: &Dir, files: &[&str], config: &str) -> Vec<String> {
    std::fs::create_dir(dir.path("rules.d")).unwrap();
    for file in files {
        dir.write(&format!("rules.d/{file}"), crate::support::TWO_A_SECOND);
    }
    let listen = "rules_from: { dir: rules.d, poll: 20ms }\nlisten: { api: '127.0.0.1:0' }\n";
    dir.write("fluxgate.yaml", format!("{listen}{config}"));
    let run = dir.run(&["validate", "fluxgate.yaml"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let strict = dir.run(&["validate", "--strict", "fluxgate.yaml"]);
    let expected = if run.stderr.is_empty() { 0 } else { 78 };
    assert_eq!(strict.code, Some(expected), "{strict:?}");
    run.stderr.lines().map(str::to_owned).collect()
}

#[test]
fn files_of_a_directory_that_are_not_read_are_reported() {
    for (files, warning) in [
        (
            &[][..],
            "rules.d: warning: there is no *.yaml file, so there are no rules",
        ),
        (
            &["r.yml"],
            "rules.d: warning: there is no *.yaml file; r.yml is ignored",
        ),
        (
            &["a.yaml", "r.yml", "S.YAML"],
            "rules.d: warning: S.YAML, r.yml are ignored; only *.yaml files are read",
        ),
        (&["a.yaml", ".r.yml", "notes.txt"], ""),
    ] {
        let dir = Dir::new();
        let warnings = warnings_of_directory(&dir, files, "");
        let expected: Vec<_> = [warning].into_iter().filter(|it| !it.is_empty()).collect();
        assert_eq!(warnings, expected, "{files:?}");
    }
}

#[test]
fn a_filter_whose_rule_set_is_not_in_the_directory_is_reported() {
    let filter = "filters: { main: { rule_set: aip } }\n";
    let warning = |place: &str, effect: &str| {
        format!(
            "fluxgate.yaml:{place}: warning: filter `main`: there is no rule set `aip` (did you \
             mean `api`?); its requests are {effect}"
        )
    };
    let dir = Dir::new();
    let warnings = warnings_of_directory(&dir, &["a.yaml"], filter);
    assert_eq!(warnings, [warning("3:30", "not limited")]);
    let deny = format!("on_missing_rule_set: deny\n{filter}");
    let warnings = warnings_of_directory(&Dir::new(), &["a.yaml"], &deny);
    assert_eq!(warnings, [warning("4:30", "denied")]);
    let found = warnings_of_directory(&Dir::new(), &["a.yaml"], &filter.replace("aip", "api"));
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_directory_without_the_rules_of_a_filter_is_logged_once() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("rules.d")).unwrap();
    let config = "filters: { main: { rule_set: api } }\nrules_from: { dir: rules.d, poll: 20ms }\n";
    let service = Service::start_in(dir, &[], config);
    let logged = |what: &str| {
        let lines = service.program.lines();
        lines.iter().filter(|line| line.contains(what)).count()
    };
    let missing = "filter `main`: there is no rule set `api` (there are none)";
    assert_eq!(logged("there is no *.yaml file, so there are no rules"), 1);
    assert_eq!(logged(missing), 1);
    service
        .dir
        .write("rules.d/r.yml", crate::support::TWO_A_SECOND);
    fluxgate_testkit::wait_until("the new file is reported", || {
        logged("there is no *.yaml file; r.yml is ignored") == 1
    });
    // What is known already is not logged again.
    assert_eq!(logged(missing), 1);
}

#[test]
fn the_recipes_for_lists_of_networks_have_no_warnings() {
    let recipes = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    let recipes = std::fs::read_to_string(recipes).unwrap();
    let blocks = recipes.split("```yaml\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let lists: Vec<_> = blocks.filter(|block| block.contains("ip: ")).collect();
    assert_eq!(lists.len(), 2);
    for rules in lists {
        let dir = Dir::new();
        let filter = "listen: { api: '127.0.0.1:0' }\nfilters: { main: { rule_set: site } }\n";
        dir.write("fluxgate.yaml", format!("{filter}{rules}"));
        let run = dir.run(&["validate", "--strict", "fluxgate.yaml"]);
        assert_eq!((run.code, &*run.stderr), (Some(0), ""));
    }
}
