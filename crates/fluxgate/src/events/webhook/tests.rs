//! A webhook on virtual time: hours pass at once.

use std::future::ready;
use std::path::PathBuf;

use http::StatusCode;
use tokio::time::sleep;

use super::delivery::Delivery;
use super::*;
use crate::telemetry;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A receiver that is down until it is told otherwise.
#[derive(Debug)]
struct Scripted {
    /// When it was created, by both clocks.
    created: (Instant, Duration),
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_up: bool,
    /// The event of each attempt, and when it was.
    attempts: Vec<(String, Instant)>,
    accepted: Vec<String>,
}

impl Post for Arc<Scripted> {
    fn post(
        &self,
        body: &str,
        _: Duration,
    ) -> impl Future<Output = Result<Delivery, DeliveryError>> + Send {
        let mut state = lock(&self.state);
        let event: serde_json::Value = serde_json::from_str(body).unwrap();
        let number = event["n"].to_string();
        state.attempts.push((number.clone(), Instant::now()));
        ready(if state.is_up {
            state.accepted.push(number);
            let status = StatusCode::NO_CONTENT;
            Ok(Delivery { status })
        } else {
            Err(DeliveryError::Status(StatusCode::SERVICE_UNAVAILABLE))
        })
    }

    fn unix_time(&self) -> Duration {
        let (instant, unix) = self.created;
        unix + instant.elapsed()
    }
}

/// A webhook without Redis.
struct Hook {
    receiver: Arc<Scripted>,
    sender: Arc<WebhookSender<Arc<Scripted>>>,
    journal: Journal,
}

impl Hook {
    fn new() -> Self {
        let receiver = Arc::new(Scripted {
            created: (Instant::now(), telemetry::unix_time()),
            state: Mutex::default(),
        });
        let webhook = Webhook::new("http://127.0.0.1:1/", PathBuf::new()).unwrap();
        let sender = WebhookSender::new(&webhook, Arc::clone(&receiver), "i");
        Self {
            receiver,
            sender: Arc::new(sender),
            journal: Journal::new(None, "i"),
        }
    }

    /// Sends until the script has ended.
    async fn send_during(&self, script: impl Future<Output = ()>) {
        let closing = CancellationToken::new();
        let sending = Arc::clone(&self.sender).run(&self.journal, Instant::now(), &closing);
        tokio::join!(sending, async {
            script.await;
            closing.cancel();
        });
    }

    fn append(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.journal.append(event(number), None);
        }
    }

    fn set_up(&self) {
        lock(&self.receiver.state).is_up = true;
    }

    fn accepted(&self) -> Vec<String> {
        lock(&self.receiver.state).accepted.clone()
    }

    /// Returns how many events wait, and how many were lost.
    fn queued_and_lost(&self) -> (usize, u64) {
        let lost = self.sender.counts().lost.load(Ordering::Relaxed);
        (self.sender.queued(&self.journal), lost)
    }
}

fn event(number: u64) -> String {
    format!("{{\"kind\":\"login\",\"n\":{number}}}")
}

fn numbers(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_is_sent_ever_more_rarely_and_given_up_after_an_hour() {
    let hook = Hook::new();
    hook.append(0..1);
    hook.send_during(async {
        sleep(60 * MINUTE - SECOND).await;
        assert_eq!(hook.queued_and_lost(), (1, 0));
        // The next attempt is within half a minute.
        sleep(2 * SECOND + LONGEST_WAIT).await;
        assert_eq!(hook.queued_and_lost(), (0, 1));
        hook.set_up();
        hook.append(1..3);
        sleep(SECOND).await;
        assert_eq!(hook.queued_and_lost(), (0, 1));
    })
    .await;
    assert_eq!(hook.accepted(), numbers(1..3));
    let state = lock(&hook.receiver.state);
    let first: Vec<_> = { state.attempts.iter() }
        .filter(|(event, _)| event == "0")
        .map(|(_, at)| *at)
        .collect();
    assert!((130..160).contains(&first.len()), "{}", first.len());
    let begin = first[0];
    for pair in first.windows(2) {
        let (failing, wait) = (pair[0] - begin, pair[1] - pair[0]);
        let expected = (failing / 4).clamp(FIRST_WAIT, LONGEST_WAIT);
        // Timers have a resolution of a millisecond.
        assert!(
            wait.abs_diff(expected).as_millis() <= 2,
            "{failing:?}: {wait:?}"
        );
    }
    let last = first[first.len() - 1] - begin;
    let latest = GIVE_UP_AFTER + LONGEST_WAIT + SECOND;
    assert!(
        (GIVE_UP_AFTER - SECOND..=latest).contains(&last),
        "{last:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_full_gives_up_the_oldest_and_sends_the_others_in_order() {
    let hook = Hook::new();
    let most = hook.journal.most_unread();
    hook.append(0..most + 1_000);
    hook.send_during(async {
        sleep(SECOND).await;
        assert_eq!(hook.queued_and_lost(), (most as usize, 1_000));
        hook.append(most + 1_000..most + 1_500);
        sleep(SECOND).await;
        assert_eq!(hook.queued_and_lost(), (most as usize, 1_500));
        hook.set_up();
        sleep(MINUTE).await;
        assert_eq!(hook.queued_and_lost(), (0, 1_500));
    })
    .await;
    assert_eq!(hook.accepted(), numbers(1_500..most + 1_500));
    let sent = hook.sender.counts().sent.load(Ordering::Relaxed);
    assert_eq!(sent, most);
}

#[tokio::test(start_paused = true)]
async fn events_that_only_this_instance_sends_are_bounded_too_and_come_first() {
    let hook = Hook::new();
    let most = MAX_OWN as u64;
    hook.append(0..1);
    for number in 10..10 + most + 5 {
        hook.sender.add_own(EventKind::Store, &event(number));
    }
    assert_eq!(hook.queued_and_lost(), (MAX_OWN, 5));
    hook.send_during(async {
        sleep(SECOND).await;
        // The log waits until they are sent.
        assert_eq!(hook.queued_and_lost(), (MAX_OWN + 1, 5));
        hook.set_up();
        sleep(MINUTE).await;
        assert_eq!(hook.queued_and_lost(), (0, 5));
    })
    .await;
    let expected = [numbers(15..15 + most), numbers(0..1)].concat();
    assert_eq!(hook.accepted(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_takes_the_place_of_one_that_is_sent_is_sent_too() {
    let hook = Hook::new();
    let most = MAX_OWN as u64;
    let add = |number| hook.sender.add_own(EventKind::Store, &event(number));
    (0..most).for_each(add);
    hook.send_during(async {
        sleep(SECOND).await;
        // The first one is being sent, and gives its place to another.
        add(most);
        hook.set_up();
        sleep(MINUTE).await;
    })
    .await;
    assert_eq!(hook.accepted(), numbers(0..most + 1));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_wanted_is_neither_sent_nor_lost() {
    let hook = Hook::new();
    hook.set_up();
    hook.journal
        .append("{\"kind\":\"tomorrow\",\"n\":7}".into(), None);
    hook.append(1..2);
    hook.send_during(sleep(SECOND)).await;
    assert_eq!(hook.accepted(), numbers(1..2));
    assert_eq!(hook.queued_and_lost(), (0, 0));
}
