//! `apply --dry-run`, with a trial on recent requests.

use serde_json::json;

use super::*;

#[test]
fn a_dry_run_shows_what_recent_requests_would_get() {
    let stored = Stored::start();
    stored.write("rules.yaml", &file(&[("api", 3), ("other", 1)]));
    stored.expect(0, &["apply", "rules.yaml"]);
    stored.charge("ann", 5);
    stored.charge("bob", 2);
    let dry = ["apply", "rules.yaml", "--dry-run"];
    let trial = |text: &str| text.split_once("\n\n").unwrap().1.to_owned();
    // Stricter: two of ann's three and one of bob's two.
    stored.write("rules.yaml", &file(&[("api", 1), ("other", 1)]));
    let run = stored.expect(1, &dry);
    assert!(
        run.stdout
            .starts_with("~ api/r: changed\n    bands: [{ capacity: 3, window: 30d }] -> "),
        "{run:?}"
    );
    let words = trial(&run.stdout);
    assert!(
        words.starts_with(
            "trial on 7 recent requests of these rule sets:\n  \
             3 requests that the active rules allow would be denied\n  \
             0 requests that the active rules deny would be allowed\n  api/r  user="
        ),
        "{words}"
    );
    assert!(words.contains("  2 newly denied\n"), "{words}");
    assert_eq!(run.stderr, "1 rule set differs\n");
    let report = stored.json(1, &dry);
    assert_eq!(
        (&report["dry_run"], &report["changed"]),
        (&json!(true), &json!(true))
    );
    let tried = &report["trial"];
    assert_eq!(
        (
            &tried["requests"],
            &tried["newly_denied"],
            &tried["newly_allowed"]
        ),
        (&json!(7), &json!(3), &json!(0))
    );
    assert_eq!(tried["reason"], Value::Null);
    assert_eq!(tried["identities"][0]["newly_denied"], 2);
    // More generous. The dry run before has written nothing.
    stored.write("rules.yaml", &file(&[("api", 4)]));
    let words = trial(&stored.expect(1, &dry).stdout);
    assert!(
        words.contains(" 0 requests that the active rules allow would be denied\n")
            && words.contains(" 1 request that the active rules deny would be allowed\n"),
        "{words}"
    );
    // Without the rules, every request passes.
    stored.write("rules.yaml", &file(&[("other", 1)]));
    let pruned = stored.json(1, &["apply", "rules.yaml", "--dry-run", "--prune"]);
    assert_eq!(pruned["trial"]["newly_allowed"], 2, "{pruned}");
    let unchanged = stored.expect(0, &dry);
    assert_eq!(unchanged.stdout, "");
    assert_eq!(stored.json(0, &dry)["trial"], Value::Null);
    assert_eq!(stored.stored("api")["rules"][0]["bands"][0]["capacity"], 3);
}

#[test]
fn without_requests_there_is_no_trial() {
    let stored = Stored::start();
    stored.write("rules.yaml", &file(&[("api", 3)]));
    let dry = ["apply", "rules.yaml", "--dry-run"];
    let run = stored.expect(1, &dry);
    assert!(
        run.stdout
            .ends_with("\nno trial: the service has recorded no request of these rule sets\n"),
        "{run:?}"
    );
    let stored = Stored::start_with("admin: { tokens_file: tokens }\n");
    stored.write("rules.yaml", &file(&[("api", 3)]));
    let run = stored.expect(1, &dry);
    assert!(
        run.stdout.contains(
            "\nno trial: the service does not record requests (`admin: { record: true }`"
        ),
        "{run:?}"
    );
    let reason = stored.json(1, &dry)["trial"]["reason"].clone();
    assert!(
        reason.as_str().unwrap().contains("does not record"),
        "{reason}"
    );
}
