//! `fluxgate rules rollback`.

use serde_json::json;

use super::*;

impl Stored {
    fn capacity(&self) -> Value {
        self.stored("api")["rules"][0]["bands"][0]["capacity"].clone()
    }

    fn history(&self) -> Value {
        let token = [("Authorization", "Bearer secret")];
        let path = "/v1/rule_sets/api/history";
        let answer = self.service.http().request("GET", path, &token, "");
        serde_json::from_str::<Value>(&answer.body).unwrap()["changes"].clone()
    }
}

#[test]
fn the_previous_revision_is_restored() {
    let stored = Stored::start();
    for capacity in [1, 2, 3] {
        stored.put("api", &set(capacity));
    }
    let revision = |index: usize| {
        stored.history()[index]["revision"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let second = revision(1);
    let run = stored.expect(0, &["rollback", "api"]);
    assert_eq!(
        run.stdout,
        format!(
            "api: restored revision {second}\n~ api/r: changed\n    \
             bands: [{{ capacity: 3, window: 30d }}] -> [{{ capacity: 2, window: 30d }}]\n"
        )
    );
    // The content is the same to the letter, so the revision is the same.
    assert_eq!((stored.capacity(), revision(0)), (json!(2), second.clone()));
    assert_eq!(stored.history()[0]["who"], "ops");
    // What was before that is the third.
    stored.expect(0, &["rollback", "api"]);
    assert_eq!(stored.capacity(), 3);
    // By name: the whole revision, its beginning, or the ETag.
    let first = revision(4);
    let etag = format!("\"{first}\"");
    for (name, capacity) in [(&*first, 1), (&second[..8], 2), (&etag, 1)] {
        stored.expect(0, &["rollback", "api", name]);
        assert_eq!(stored.capacity(), capacity);
    }
    let changes = stored.history().as_array().unwrap().len();
    let again = stored.expect(0, &["rollback", "api", &first]);
    assert_eq!(
        again.stdout,
        format!("api: is at revision {first} already\n")
    );
    assert_eq!(stored.history().as_array().unwrap().len(), changes);
    let report = stored.json(0, &["rollback", "api", &second]);
    assert_eq!(
        report,
        json!({ "rule_set": "api", "revision": second, "changed": true, "changes": [{
            "rule_set": "api", "rule": "r", "change": "changed", "fields": [{
                "field": "bands",
                "before": "[{ capacity: 1, window: 30d }]",
                "after": "[{ capacity: 2, window: 30d }]",
            }],
        }] })
    );
    for (arguments, message) in [
        (
            ["api", "ffffffff"],
            "rule set `api`: the history has no revision `ffffffff`",
        ),
        (["api", "f"], "`f` is too short for a revision"),
        (["none", "ffffffff"], "rule set `none` has no history"),
    ] {
        let run = stored.expect(65, &[&["rollback"], &arguments[..]].concat());
        assert!(run.stderr.contains(message), "{run:?}");
    }
}

#[test]
fn a_deleted_set_comes_back_and_a_new_one_has_nothing_before_it() {
    let stored = Stored::start();
    stored.put("api", &set(1));
    let run = stored.expect(65, &["rollback", "api"]);
    assert!(run.stderr.contains("has no earlier revision"), "{run:?}");
    stored.write("none.yaml", "rule_sets: {}\n");
    stored.expect(0, &["apply", "none.yaml", "--prune"]);
    assert_eq!(stored.stored("api"), Value::Null);
    let run = stored.expect(0, &["rollback", "api"]);
    assert!(
        run.stdout
            .contains("\n+ api: rule set added\n+ api/r: added\n"),
        "{run:?}"
    );
    assert_eq!(stored.capacity(), 1);
    // A file that is applied again is the same as the revision.
    stored.write("rules.yaml", &file(&[("api", 1)]));
    stored.expect(0, &["diff", "rules.yaml"]);
}

#[test]
fn a_change_of_another_writer_is_not_rolled_back() {
    let stored = Stored::start();
    stored.put("api", &set(1));
    stored.put("api", &set(2));
    let address = stored.service.address("api");
    let proxy = forward_to(address, move |line| {
        if line.starts_with("PUT ") {
            put(address, "api", &set(3));
        }
        Interference::None
    });
    let run = stored.run_at(&url(proxy), &["rollback", "api"]);
    assert_eq!(run.code, Some(75), "{run:?}");
    assert!(
        run.stderr
            .contains("\nrule set `api` was changed by another writer; nothing was written\n"),
        "{run:?}"
    );
    assert_eq!(stored.capacity(), 3);
}

#[test]
fn a_revision_can_be_read() {
    let stored = Stored::start();
    stored.put("api", &set(1));
    stored.put("api", &set(2));
    let history = stored.history();
    let mut http = stored.service.http();
    let mut get = |query: &str, token: &str| {
        let headers = [("Authorization", token)];
        http.request("GET", &format!("/v1/rule_sets/api{query}"), &headers, "")
    };
    let first = &history[1];
    let query = format!("?revision={}", first["revision"].as_str().unwrap());
    let answer = get(&query, "Bearer reader");
    assert_eq!((answer.status, &*answer.body), (200, &*set(1)));
    assert_eq!(answer.header("etag"), first["etag"].as_str());
    for (query, status) in [
        ("?revision=", 404),
        ("?revision=00000000000000000000000000000000", 404),
        ("?revision=%ff", 400),
        ("?version=1", 400),
        ("?", 200),
    ] {
        assert_eq!(get(query, "Bearer reader").status, status, "{query}");
    }
    assert_eq!(get(&query, "Bearer wrong").status, 401);
}
