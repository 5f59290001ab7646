//! `FG.CHECK`.

use fluxgate_testkit::Reply;

use super::{integers, run, start};

const RULES: &str = "
rule_sets:
  api:
    rules:
      - { id: per-user, scope: per_user, bands: [ { id: hour, capacity: 2, window: 1h } ] }
      - id: tenant
        match: { path: [\"/api/**\"], methods: [POST], headers: { X-Plan: free } }
        key: [ip, \"header:X-Tenant\", \"attr:region\"]
        on_missing_key: skip
        bands: [ { id: day, capacity: 1, window: 1d } ]
";

/// Returns the elements of a reply, separated by spaces.
fn joined(reply: &Reply) -> String {
    let text = |reply: &Reply| match reply {
        Reply::Nil => "nil".to_owned(),
        Reply::Int(int) => int.to_string(),
        other => other.text(),
    };
    let parts: Vec<_> = reply.array().iter().map(text).collect();
    parts.join(" ")
}

#[test]
fn the_reply_to_a_check_has_all_fields() {
    let (_service, mut cli) = start(RULES);
    let mut check = |rest: &str| joined(&run(&mut cli, &format!("FG.CHECK api {rest}")));
    assert_eq!(
        check("user u1 peek true"),
        "1 2 2 0 0 0 per-user hour allowed"
    );
    assert_eq!(check("user u1"), "1 2 1 0 1800000 0 per-user hour allowed");
    assert_eq!(
        check("user u2 cost 2"),
        "1 2 0 0 3600000 0 per-user hour allowed"
    );
    let never = check("user u2 cost 3");
    assert!(never.starts_with("0 2 0 -1 3"), "{never}");
    assert!(never.ends_with(" 0 per-user hour never"), "{never}");
    assert_eq!(
        check("user u3 cost 2 peek false"),
        "1 2 0 0 3600000 0 per-user hour allowed"
    );
    let denied = check("user u3");
    assert!(denied.starts_with("0 2 0 "), "{denied}");
    // A busy machine may take some seconds of it.
    let retry: u64 = denied.split(' ').nth(3).unwrap().parse().unwrap();
    assert!((1_700_000..=1_800_000).contains(&retry), "{denied}");
    assert!(denied.ends_with(" 0 per-user hour denied"), "{denied}");
}

#[test]
fn every_field_affects_the_decision() {
    let (_service, mut cli) = start(RULES);
    let request = "FG.CHECK api user U ip 10.0.0.1 method POST path /api/x header:x-plan free \
                   header:X-Tenant t1 attr:region eu";
    let mut check = |user: &str, from: &str, to: &str| {
        let request = request
            .replace("user U", &format!("user {user}"))
            .replace(from, to);
        let reply = run(&mut cli, &request);
        (reply.array()[0].int(), reply.array()[6].text())
    };
    assert_eq!(check("a", "", ""), (1, "tenant".into()));
    assert_eq!(check("b", "", ""), (0, "tenant".into()));
    for (user, from, to) in [
        ("c", "10.0.0.1", "::ffff:10.0.0.2"),
        ("d", "POST", "GET"),
        ("e", "/api/x", "/x"),
        ("f", "free", "pro"),
        ("g", " t1", " t2"),
        ("h", " eu", " us"),
    ] {
        assert_eq!(check(user, from, to).0, 1, "{to}");
    }
}

#[test]
fn fields_without_a_value_are_nil() {
    let (_service, mut cli) = start(RULES);
    let reply = run(&mut cli, "FG.CHECK nope user u1");
    assert_eq!(joined(&reply), "1 nil nil 0 0 0 nil nil no_rule");
    let (_service, mut cli) = start("on_missing_rule_set: deny\nrule_sets: {}\n");
    let reply = run(&mut cli, "FG.CHECK nope");
    assert_eq!(joined(&reply), "0 nil nil -1 0 0 nil nil denied");
}

#[test]
fn errors_name_the_field_and_charge_nothing() {
    let (_service, mut cli) = start(RULES);
    for (rest, error) in [
        (
            "user",
            "ERR wrong number of arguments for 'fg.check' command",
        ),
        ("user u1 ip 10.0.0", "ERR `ip` is not an IP address"),
        (
            "user u1 cost -1",
            "ERR `cost` must be a whole number from 0",
        ),
        ("user u1 peek maybe", "ERR `peek` must be true or false"),
        ("user u1 user u1", "ERR `user` appears twice"),
        (
            "user u1 header:a 1 header:A 1",
            "ERR header \"A\" appears twice",
        ),
    ] {
        let reply = run(&mut cli, &format!("FG.CHECK api {rest}"));
        assert_eq!(reply.error(), Some(error), "{rest}");
    }
    let reply = run(&mut cli, "FG.CHECK api users u1");
    assert!(
        reply
            .error()
            .unwrap()
            .starts_with("ERR unknown field `users`")
    );
    let not_text: [&[u8]; 4] = [b"FG.CHECK", b"api", b"user", b"\xff"];
    assert_eq!(
        cli.command(&not_text).error(),
        Some("ERR `user` is not UTF-8")
    );
    let reply = run(&mut cli, "FG.CHECK api user u1");
    assert_eq!(reply.array()[2].int(), 1);
}

#[test]
fn invalid_utf8_in_resp_arguments_is_refused_and_charges_nothing() {
    let (_service, mut cli) = start(TWO_A_DAY);
    for (field, value) in [
        (&b"user"[..], &b"ann\xff"[..]),
        (b"path", b"/\xc3\x28"),
        (b"header:X-A", b"\xff"),
        (b"attr:a", b"\xff"),
        (b"attr:\xff", b"a"),
        (b"method", b"\x80"),
    ] {
        let reply = cli.command(&[&b"FG.CHECK"[..], b"api", b"ip", b"10.0.0.1", field, value]);
        let error = reply.error().unwrap_or_else(|| panic!("{reply:?}"));
        assert!(error.ends_with("is not UTF-8"), "{error}");
    }
    let reply = cli.command(&[&b"FG.CHECK"[..], b"api\xff", b"ip", b"10.0.0.1"]);
    assert_eq!(reply.error(), Some("ERR `rule_set` is not UTF-8"));
    let reply = run(&mut cli, "FG.CHECK api ip 10.0.0.1");
    assert_eq!(reply.array()[2].int(), 1, "nothing was charged");
    // Keys are bytes, and different keys have different limits.
    for key in [&b"\xff"[..], b"\xfe", "\u{fffd}".as_bytes()] {
        let throttle = [&b"CL.THROTTLE"[..], key, b"0", b"1", b"100"];
        assert_eq!(integers(&cli.command(&throttle))[0], 0);
        assert_eq!(integers(&cli.command(&throttle))[0], 1);
    }
}

const TWO_A_DAY: &str = "rule_sets: { api: { rules: [ { id: r, scope: per_ip, bands: [ { capacity: 2, window: 1d } ] } ] } }\n";

#[test]
fn a_charge_is_held_and_settled() {
    let rules = "
rule_sets:
  slots: { rules: [ { id: s, scope: global, algorithm: concurrency, bands: [ { id: b, capacity: 1 } ] } ] }
  rate: { rules: [ { id: r, scope: global, algorithm: fixed_window, bands: [ { id: b, capacity: 10, window: 300d } ] } ] }
";
    let (_service, mut cli) = start(rules);
    let mut send = |line: &str| run(&mut cli, line);
    let slot = send("FG.CHECK slots");
    assert_eq!(slot.array().len(), 10, "slots are always held");
    let denied = joined(&send("FG.CHECK slots"));
    assert!(
        denied.starts_with("0 1 0 ") && denied.ends_with(" s b denied nil"),
        "{denied}"
    );
    let id = slot.array()[9].text();
    assert_eq!(send(&format!("FG.RENEW {id} 30s")).text(), "OK");
    assert_eq!(send(&format!("FG.RELEASE {id}")).text(), "OK");
    for line in [
        "RENEW ID 30s",
        "RELEASE ID",
        "SETTLE ID",
        "SETTLE nonsense 1",
    ] {
        let reply = send(&format!("FG.{}", line.replace("ID", &id)));
        let error = reply.error().unwrap_or_default();
        assert!(error.starts_with("NOHOLD "), "{line}: {reply:?}");
    }
    assert_eq!(
        send("FG.CHECK rate").array().len(),
        9,
        "no hold was asked for"
    );
    let held = send("FG.CHECK rate cost 5 hold 60s");
    let id = held.array()[9].text();
    assert_eq!(
        joined(&send("FG.CHECK rate cost 99 hold 60s"))
            .split(' ')
            .next_back(),
        Some("nil")
    );
    assert_eq!(joined(&send(&format!("FG.SETTLE {id} 30"))), "19 11");
    for line in [
        "FG.CHECK rate hold 60",
        "FG.SETTLE",
        "FG.SETTLE x -1",
        "FG.RENEW x",
        "FG.RENEW x 25h",
        "FG.RELEASE x y",
    ] {
        let reply = send(line);
        let error = reply.error().unwrap_or_default();
        assert!(error.starts_with("ERR "), "{line}: {reply:?}");
    }
}
