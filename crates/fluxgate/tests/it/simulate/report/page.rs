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
        assert_eq!(result["charts"], 1 + 3 + 5);
        assert_eq!(result["outside"], json!([]), "{width}");
        assert_eq!(result["overlapping"], json!([]), "{width}");
        let (background, ink) = match dark {
            true => ("rgb(20, 24, 29)", "rgb(232, 235, 239)"),
            false => ("rgb(255, 255, 255)", "rgb(27, 32, 39)"),
        };
        assert_eq!(
            (&result["background"], &result["ink"]),
            (&json!(background), &json!(ink))
        );
    }
}
