//! The steps of the filter and their order.

use std::time::Duration;

use fluxgate_core::rules::ActiveRuleSet;
use fluxgate_core::store::{Mode, WaitPermit};
use fluxgate_core::{Charge, Decision, RequestContext};
use fluxgate_tower::{Customizer, Handler, HeaderNames, RateLimitLayer};
use http::request::Parts;
use tokio::time::{Instant, sleep};
use tower::Layer;

use crate::support::{Events, Inner, TestLimiter, get, limiter, record_warnings, send, set_of};

const RULES: &str = "{ id: r, scope: per_user, bands: [ { id: b, capacity: 1, window: 1h } ] }";

/// A limiter that records its calls.
#[derive(Clone, Debug)]
struct Recording(TestLimiter, Events);

impl Handler for Recording {
    type Report = Decision;
    type Rules = Option<ActiveRuleSet>;
    type Charge = Charge;
    type Pending = Mode;

    fn rules(&self, rule_set: &str) -> Self::Rules {
        self.1.add(format!("rules of {rule_set}"));
        self.0.active_rule_set(rule_set)
    }

    fn header_names<'r>(&'r self, rules: &'r Self::Rules) -> HeaderNames<'r> {
        self.0.header_names(rules)
    }

    fn try_decide(
        &self,
        _: &str,
        _: &Self::Rules,
        _: &RequestContext<'_>,
        mode: Mode,
    ) -> Result<Decision, Mode> {
        Err(mode)
    }

    async fn decide(
        &self,
        rule_set: &str,
        rules: &Self::Rules,
        context: &RequestContext<'_>,
        mode: Mode,
    ) -> (Decision, WaitPermit) {
        let (method, path, user) = (context.method(), context.path(), context.user());
        let (method, path, user) = (method.unwrap(), path.unwrap(), user.unwrap_or("none"));
        let tenant = context.attribute("tenant").unwrap_or("none");
        let ip = context.ip().map_or("?".into(), |ip| ip.to_string());
        let event = format!("decide {method} {path} of {user} at {ip}, tenant {tenant}");
        self.1.add(event);
        let decision = self.0.try_decide(rule_set, rules, context, mode);
        (decision.unwrap(), WaitPermit::unbounded())
    }

    fn charge(&self, set: &str, context: &RequestContext<'_>, it: &Decision) -> Option<Charge> {
        self.0.charge(set, context, it)
    }

    fn cancel(&self, charge: Charge) {
        Handler::cancel(&self.0, charge);
    }

    fn wait_began(&self) {
        self.1.add("waits");
    }

    fn record(&self, _: &RequestContext<'_>, report: &Decision) {
        self.1.add(format!("record {}", report.outcome()));
    }
}

fn recording(events: &Events) -> RateLimitLayer<Recording> {
    RateLimitLayer::with_handler(Recording(limiter(RULES), events.clone()))
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_through_all_steps_in_order() {
    let events = Events::default();
    let (first, second) = (events.clone(), events.clone());
    let layer = recording(&events)
        .rule_set("s")
        .peer(|_| Some([10, 0, 0, 1].into()))
        .customize(move |context, _| {
            first.add("first customizer");
            context.attribute("tenant", "a")
        })
        .customize(move |context, request| {
            second.add("second customizer");
            let tenant = request.headers.get("x-tenant").unwrap().to_str().unwrap();
            context.attribute("tenant", tenant)
        });
    let service = layer.layer(Inner::new(&events));
    let ask = async || {
        let mut request = get("/x?secret=1");
        let headers = request.headers_mut();
        headers.insert("x-tenant", "b".parse().unwrap());
        send(&service, request).await
    };
    let got = ask().await;
    assert_eq!((got.status, &*got.body), (200, "inner"));
    assert_eq!(got.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(
        events.take(),
        [
            "rules of s",
            "first customizer",
            "second customizer",
            "decide GET /x of u at 10.0.0.1, tenant b",
            "record allowed",
            "/x at 0",
        ]
    );
    let got = ask().await;
    assert_eq!(got.status, 429);
    let events = events.take();
    assert_eq!(
        events.last().unwrap(),
        "record denied",
        "the inner service is not called"
    );
}

#[tokio::test(start_paused = true)]
async fn exclude_comes_first_then_include() {
    let events = Events::default();
    let layer = recording(&events)
        .rule_set("s")
        .include(["/api/**"])
        .exclude(["/api/health", "/api/*/open"]);
    let service = layer.layer(Inner::new(&events));
    for path in ["/api/health", "/api/x/open", "/", "/other/api", "/apix"] {
        for _ in 0..3 {
            let got = send(&service, get(path)).await;
            assert_eq!(got.status, 200, "{path}");
            assert!(got.headers.is_empty(), "{path}: {:?}", got.headers);
        }
        let events = events.take();
        assert_eq!(
            events,
            vec![format!("{path} at 0"); 3],
            "the handler is not called"
        );
    }
    for (path, status) in [("/api", 200), ("/api/health/", 429), ("/api/x", 429)] {
        assert_eq!(send(&service, get(path)).await.status, status, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_rule_set_all_pass_and_one_warning_is_logged() {
    let warnings = Events::default();
    let _guard = record_warnings(&warnings);
    let events = Events::default();
    let layer = recording(&events).exclude(["/quiet"]);
    let service = layer.layer(Inner::new(&events));
    send(&service, get("/quiet")).await;
    assert_eq!(warnings.count(), 0, "excluded paths come first");
    for _ in 0..3 {
        let got = send(&service, get("/x")).await;
        assert!(got.status == 200 && got.headers.is_empty());
    }
    // Another service of the same layer.
    send(&layer.layer(Inner::new(&events)), get("/x")).await;
    assert_eq!(
        warnings.take(),
        ["a filter has no rule set: everything passes"]
    );
    assert!(events.take().iter().all(|event| event.starts_with('/')));
}

#[tokio::test(start_paused = true)]
async fn a_missing_rule_set_allows_or_denies_as_configured() {
    let events = Events::default();
    let layer = recording(&events).rule_set("none");
    let got = send(&layer.layer(Inner::new(&events)), get("/x")).await;
    assert!(got.status == 200 && got.headers.is_empty());
    let rules = "on_missing_rule_set: deny\nrule_sets: {}";
    let rules = fluxgate_core::RuleSets::from_yaml(rules).unwrap();
    let limiter = fluxgate_core::Limiter::new(rules, fluxgate_core::MemoryStore::default());
    let layer = RateLimitLayer::new(limiter).rule_set("none");
    let got = send(&layer.layer(Inner::new(&events)), get("/x")).await;
    assert_eq!((got.status, got.header("retry-after")), (429, None));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_twice_keeps_its_permit_and_meets_the_current_rules() {
    let window = "{ id: w, scope: global, algorithm: fixed_window, on_exceed: wait, max_wait: 2s, bands: [ { capacity: 1, window: 1s } ] }";
    let bucket = "{ id: b, scope: global, on_exceed: wait, max_wait: 5s, bands: [ { capacity: 1, window: 3s } ] }";
    for (replaced, waited) in [(false, 3000), (true, 1000)] {
        let events = Events::default();
        let limiter = limiter(&format!("{window}, {bucket}"));
        let handler = Recording(limiter.clone(), events.clone());
        let layer = RateLimitLayer::with_handler(handler).rule_set("s");
        let service = layer.layer(Inner::new(&events));
        assert_eq!(send(&service, get("/x")).await.status, 200);
        events.take();
        let start = Instant::now();
        let change = async {
            sleep(Duration::from_millis(500)).await;
            if replaced {
                // Without the bucket, the request waits for the window only.
                limiter.replace_rules(set_of(window)).await.unwrap();
            }
        };
        let (got, ()) = tokio::join!(send(&service, get("/x")), change);
        assert_eq!(got.status, 200);
        let took = start.elapsed().as_millis();
        assert!((waited..=waited + 3).contains(&took), "{took}");
        let noted = events.take();
        let seen = |event: &str| noted.iter().filter(|it| *it == event).count();
        assert_eq!((seen("waits"), seen("rules of s")), (1, 2), "{noted:?}");
    }
}

/// A customizer that is a type.
struct Cloudflare;

impl Customizer for Cloudflare {
    fn customize<'a>(
        &self,
        context: fluxgate_core::RequestContextBuilder<'a>,
        request: &'a Parts,
    ) -> fluxgate_core::RequestContextBuilder<'a> {
        let address = request.headers.get("cf-connecting-ip");
        let address =
            address.and_then(|value| value.to_str().ok()?.parse::<std::net::IpAddr>().ok());
        match address {
            Some(address) => context
                .ip(address)
                .path("/changed")
                .method("PUT")
                .user("other"),
            None => context,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_customizer_may_change_anything() {
    let events = Events::default();
    let layer = recording(&events).rule_set("s").customize_with(Cloudflare);
    let service = layer.layer(Inner::new(&events));
    let mut request = get("/x");
    let headers = request.headers_mut();
    headers.insert("cf-connecting-ip", "2001:db8::1".parse().unwrap());
    send(&service, request).await;
    let events = events.take();
    let decided = "decide PUT /changed of other at 2001:db8::1, tenant none";
    assert!(events.contains(&decided.to_owned()), "{events:?}");
    assert_eq!(
        events.last().unwrap(),
        "/x at 0",
        "the request itself is unchanged"
    );
}
