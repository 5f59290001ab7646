//! The metrics of events and webhooks.

use super::exposition::Exposition;
use super::family::Kind;

/// What became of events.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventGauges {
    /// Events that were not logged, because too many waited for Redis.
    pub(crate) lost: u64,
    pub(crate) webhooks: Vec<WebhookGauges>,
}

/// What became of the events for one webhook.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookGauges {
    /// The server, without the path of the address.
    pub(crate) server: String,
    pub(crate) queued: u64,
    pub(crate) sent: u64,
    pub(crate) failures: u64,
    pub(crate) lost: u64,
    /// Whether the last attempt failed.
    pub(crate) is_failing: bool,
}

/// Renders the metrics of events and webhooks. `overflows` is how many shares of limits did not fit
/// into their queue.
pub(super) fn render_events(out: &mut Exposition, events: &EventGauges, overflows: u64) {
    let help = "Events that were not logged because too many waited for Redis.";
    out.one(
        "fluxgate_events_lost_total",
        Kind::Counter,
        help,
        events.lost,
    );
    let help = "Shares of limits that waited for a later decision because too many were reached.";
    let name = "fluxgate_threshold_overflows_total";
    out.one(name, Kind::Counter, help, overflows);
    let mut webhooks: Vec<WebhookGauges> = Vec::new();
    for webhook in &events.webhooks {
        // Webhooks of one server have one sample: a series must not appear twice.
        match webhooks.iter_mut().find(|it| it.server == webhook.server) {
            Some(known) => known.add(webhook),
            None => webhooks.push(webhook.clone()),
        }
    }
    type Value = fn(&WebhookGauges) -> u64;
    let families: [(&str, Kind, &str, Value); 4] = [
        (
            "fluxgate_webhook_queue",
            Kind::Gauge,
            "Events that wait for a webhook here. One instance sends those of all.",
            |it| it.queued,
        ),
        (
            "fluxgate_webhook_sent_total",
            Kind::Counter,
            "Events that a webhook accepted.",
            |it| it.sent,
        ),
        (
            "fluxgate_webhook_failures_total",
            Kind::Counter,
            "Attempts to send an event to a webhook that failed.",
            |it| it.failures,
        ),
        (
            "fluxgate_webhook_lost_total",
            Kind::Counter,
            "Events that a webhook did not accept within an hour, or that did not fit.",
            |it| it.lost,
        ),
    ];
    for (name, kind, help, value) in families {
        let mut family = out.family(name, kind, help);
        for webhook in &webhooks {
            family.sample(&[("webhook", &webhook.server)], value(webhook));
        }
    }
}

impl WebhookGauges {
    fn add(&mut self, other: &Self) {
        self.queued += other.queued;
        self.sent += other.sent;
        self.failures += other.failures;
        self.lost += other.lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_of_one_server_are_one_series() {
        let webhook = |server: &str, sent| WebhookGauges {
            server: server.into(),
            sent,
            ..WebhookGauges::default()
        };
        let events = EventGauges {
            lost: 0,
            webhooks: vec![
                webhook("http://a", 1),
                webhook("http://b", 2),
                webhook("http://a", 4),
            ],
        };
        let mut out = Exposition::prometheus();
        render_events(&mut out, &events, 3);
        let text = out.into_text();
        for line in [
            "fluxgate_threshold_overflows_total 3",
            "fluxgate_webhook_sent_total{webhook=\"http://a\"} 5",
            "fluxgate_webhook_sent_total{webhook=\"http://b\"} 2",
        ] {
            assert_eq!(text.lines().filter(|it| *it == line).count(), 1, "{text}");
        }
    }
}
