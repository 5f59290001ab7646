//! The page in a browser.

use serde_json::{Value, json};

use super::browser::{DESKTOP, View, evaluate, evaluate_with_console};
use super::{RULES, report, requests};
use crate::support::Dir;

/// Names and identities may contain markup.
#[test]
fn markup_in_the_input_is_shown_as_text() {
    let hostile = [
        "<script>parent.owned = 1</script>",
        "<img src=x onerror=\"parent.owned = 1\">",
        "\"'><svg onload=parent.owned=1>",
        "</title></style></svg></textarea><h1 id=owned>owned</h1>",
        "&lt;b&gt;&amp;",
        "<!-- ]]> -->",
    ];
    let name = "evil <img src=x> \" '</title><b>";
    let rules = format!(
        "rule_sets: {{ {set}: {{ rules: [ {{ id: r, name: {name}, scope: per_user, bands: [ {{ capacity: 1, window: 1h }} ] }} ] }} }}",
        set = serde_json::to_string("set<i>&\"'</i>").unwrap(),
        name = serde_json::to_string(name).unwrap(),
    );
    let dir = Dir::new();
    dir.write("<u>rules.yaml", rules);
    let mut input = String::new();
    for user in hostile {
        for _ in 0..2 {
            input += &(json!({"t": 0, "user": user, "path": user}).to_string() + "\n");
        }
    }
    input += "{\"t\":0,\"rule_set\":\"<em>missing</em>\"}\n";
    dir.write("<s>.ndjson", input);
    let set = ["--rule-set", "set<i>&\"'</i>", "--report", "out.html"];
    let files = [
        "simulate",
        "--rules",
        "<u>rules.yaml",
        "--input",
        "<s>.ndjson",
    ];
    let run = dir.run(&[&files[..], &set].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    let result = evaluate(
        &dir.read("out.html"),
        DESKTOP,
        "return {
            owned: window.owned ?? doc.getElementById('owned'),
            strange: doc.querySelectorAll('script, img, b, i, u, s, em, iframe, object, a, link').length,
            title: doc.title,
            set: doc.querySelector('#rules .name').textContent,
            says: doc.querySelector('#rules small').textContent,
            warning: doc.querySelector('.warn').textContent,
            most: [...doc.querySelectorAll('#most-denied bdi')].map((cell) => cell.textContent),
        };",
    );
    let mut most: Vec<_> = hostile.iter().map(|user| format!("user={user}")).collect();
    // Encoded identities start with their length, so the shortest is first.
    most.sort_by_key(|user| (user.len(), user.clone()));
    assert_eq!(result["owned"], Value::Null);
    assert_eq!(result["strange"], 0);
    assert_eq!(result["title"], "<u>rules.yaml: 13 requests");
    assert_eq!(result["set"], "set<i>&\"'</i>/r");
    assert_eq!(result["says"], format!("{name}: token_bucket, 1 per 1 h"));
    let warning = "there is no rule set `<em>missing</em>`; its requests were allowed";
    assert_eq!(result["warning"], warning);
    assert_eq!(result["most"], json!(most));
}

/// The policy blocks what escaping might miss. This also shows that the other tests
/// would notice.
#[test]
fn the_security_policy_of_the_page_blocks_scripts_and_images() {
    let (page, _) = report(&Dir::with_rules(RULES), &requests(), &[]);
    let bad = "<script>parent.owned = 1</script><img src=\"http://127.0.0.1:9/x.png\">";
    let bad = page.replace("</main>", &format!("{bad}</main>"));
    assert_ne!(bad, page);
    let (owned, console) = evaluate_with_console(&bad, DESKTOP, "return window.owned ?? null;");
    assert_eq!(owned, Value::Null);
    let refused = console
        .iter()
        .filter(|line| line.contains("Content Security Policy"));
    assert_eq!(refused.count(), 2, "{console:?}");
}

#[test]
fn charts_fit_the_page_and_letters_are_legible() {
    let (page, _) = report(&Dir::with_rules(RULES), &requests(), &[]);
    for (width, dark) in [(360, false), (360, true), (800, true), (1200, false)] {
        let result = evaluate(
            &page,
            View { width, dark },
            "const view = doc.defaultView;
             const letters = [...doc.querySelectorAll('svg')].map((svg) =>
                parseFloat(view.getComputedStyle(svg.querySelector('text')).fontSize)
                    * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
             const outside = [...doc.querySelectorAll('svg')].flatMap((svg) => {
                const box = svg.getBoundingClientRect();
                return [...svg.querySelectorAll('text, path, rect')].filter((part) => {
                    const inner = part.getBoundingClientRect();
                    return inner.left < box.left - 1 || inner.right > box.right + 1
                        || inner.top < box.top - 1 || inner.bottom > box.bottom + 1;
                }).map((part) => svg.id + ': ' + (part.textContent || part.outerHTML.slice(0, 60)));
             });
             const overlapping = [...doc.querySelectorAll('svg')].flatMap((svg) => {
                const texts = [...svg.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
                return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) =>
                    a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
                    .map(([other]) => `${svg.id}: ${one} / ${other}`));
             });
             return {
                scroll: doc.documentElement.scrollWidth,
                smallest: Math.min(...letters), charts: letters.length,
                background: view.getComputedStyle(doc.body).backgroundColor,
                ink: view.getComputedStyle(doc.body).color, outside, overlapping,
             };",
        );
        assert!(
            result["scroll"].as_u64().unwrap() <= u64::from(width),
            "{width}: {result}"
        );
        assert!(
            result["smallest"].as_f64().unwrap() >= 9.0,
            "{width}: {result}"
        );
        // Only the window of `slow` is too short for the columns of the whole.
        assert_eq!(result["charts"], 1 + 3 + 1 + 5);
        assert_eq!(result["outside"], json!([]), "{width}");
        assert_eq!(result["overlapping"], json!([]), "{width}");
        let (background, ink) = if dark {
            ("rgb(20, 24, 29)", "rgb(232, 235, 239)")
        } else {
            ("rgb(255, 255, 255)", "rgb(27, 32, 39)")
        };
        assert_eq!(
            (&result["background"], &result["ink"]),
            (&json!(background), &json!(ink))
        );
    }
}

/// The first column of a table stays visible while the others are scrolled.
#[test]
fn wide_tables_are_scrolled_on_a_phone_and_the_page_is_not() {
    let dir = Dir::with_rules(RULES);
    dir.write("old.yaml", RULES.replace("capacity: 3", "capacity: 9"));
    let (page, _) = report(&dir, &requests(), &["--against", "old.yaml"]);
    let view = View {
        width: 390,
        dark: false,
    };
    let result = evaluate(
        &page,
        view,
        "return {
            page: doc.documentElement.scrollWidth,
            tables: [...doc.querySelectorAll('table')].map((table) => {
                const frame = table.parentElement;
                frame.scrollLeft = 1000;
                const first = [...table.rows].map((row) => row.cells[0].getBoundingClientRect().left);
                const left = frame.getBoundingClientRect().left;
                return [table.id, first.every((at) => Math.abs(at - left) < 1)];
            }),
        };",
    );
    assert!(result["page"].as_u64().unwrap() <= 390, "{result}");
    let ids = [
        "changed-rules",
        "newly-denied",
        "newly-admitted",
        "rules",
        "most-denied",
        "capacities",
        "algorithms",
    ];
    let expected = ids.map(|id| json!([id, true]));
    assert_eq!(result["tables"], json!(expected));
}

/// Without a tail that waits for a round number, or for what another algorithm releases.
#[test]
fn the_time_axis_ends_with_the_data() {
    for (step, count) in [(100_000_u64, 900_u64), (1_000_000, 7), (7_777, 13), (1, 1)] {
        let mut lines = String::new();
        for number in 0..count {
            lines += &format!("{{\"t\":{},\"path\":\"/api/x\"}}\n", number * step);
        }
        let (page, _) = report(&Dir::with_rules(RULES), &lines, &[]);
        let ends = evaluate(
            &page,
            DESKTOP,
            "return ['traffic', 'rule-0'].map((id) => {
                const hits = [...doc.querySelectorAll(`#${id} .hit`)];
                const end = Math.max(...hits.map((hit) =>
                    hit.x.baseVal.value + hit.width.baseVal.value));
                return doc.getElementById(id).viewBox.baseVal.width - end;
            });",
        );
        for end in ends.as_array().unwrap() {
            // The margin at the right.
            assert!((end.as_f64().unwrap() - 12.0).abs() < 0.2, "{step}: {ends}");
        }
    }
}

/// A day of requests, and a limit for each second.
#[test]
fn a_short_window_can_be_seen_in_a_long_log() {
    let rules = crate::support::one_rule(
        "scope: global, algorithm: fixed_window, bands: [ { capacity: 2, window: 1s } ]",
    );
    let mut lines = String::new();
    for minute in 0..1_440_u64 {
        let t = minute * 60_000_000;
        let burst = if minute == 700 { 9 } else { 1 };
        for number in 0..burst {
            lines += &format!("{{\"t\":{}}}\n", t + number * 250_000);
        }
    }
    let (page, _) = report(&Dir::with_rules(&rules), &lines, &[]);
    let result = evaluate(
        &page,
        DESKTOP,
        "return {
            caption: doc.querySelector('figcaption').textContent,
            columns: [...doc.querySelectorAll('#rule-0-detail title')]
                .map((title) => title.textContent.replaceAll('\\n', ' ')),
        };",
    );
    let caption = "The 2 s 100 ms with the most denials, from 11:40:00.000:";
    assert_eq!(result["caption"], caption);
    let columns = result["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 9, "{result}");
    assert_eq!(columns[1], "11:40:00.200 admitted 1");
    assert_eq!(columns[3], "11:40:00.700 denied 1");
}
