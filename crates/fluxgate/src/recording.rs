//! The last requests of all instances, for trials and for the page of a customer.
//!
//! Each instance keeps its own. Only when one of them asks do the others share theirs: it writes what it
//! wants under its id, with a nonce, each of them notices it within a second, and writes the last
//! requests that pass, which expire after seconds. Both are encrypted, because they name identities as
//! they came.

mod filter;
mod shared;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::StoreError;
use fluxgate_redis::UsageRecord;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use filter::{RequestFilter, context_of, handle_of};

use crate::engine::Engine;
use crate::instances::Instances;
use crate::telemetry::{RecentRequest, encoded_at};
use shared::SharedRecording;

/// How often an instance looks whether another one wants its requests.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a wish stays, and what is shared.
const SHARED_FOR: Duration = Duration::from_secs(15);
/// How often the instance that asks looks for the answers.
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);
/// How long a call waits for those before it.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The kinds of what is shared.
const WANTED: &str = "wanted";
const RECORDED: &str = "recorded";
const NONCE_LENGTH: usize = 16;
/// Older requests are left out of what is shared, and of what is returned.
const MAX_BYTES: usize = 8 << 20;

/// Asks the other instances for their last requests, for one call after another.
#[derive(Debug, Default)]
pub(crate) struct FleetRecordings {
    asking: Mutex<()>,
}

/// What the other instances have recorded, as far as they have answered.
#[derive(Debug, Default)]
pub(crate) struct OtherRecordings {
    /// Why they are not known, if the store failed.
    failure: Option<String>,
    /// How many there are.
    known: usize,
    answers: Vec<SharedRecording>,
}

/// The last requests of all instances, as far as they have answered.
#[derive(Debug, Default)]
pub(crate) struct FleetRecording {
    /// The oldest first. None is missing since the first of them.
    pub(crate) requests: Vec<RecentRequest>,
    /// How many instances there are.
    pub(crate) known: usize,
    /// How many of them have answered.
    pub(crate) answered: usize,
    /// How many of them record requests.
    pub(crate) recording: usize,
    /// Why only this instance is known, if the store failed.
    pub(crate) failure: Option<String>,
}

type Nonce = [u8; NONCE_LENGTH];

/// What an instance wants of the others.
struct Wish {
    nonce: Nonce,
    /// The id of the instance.
    asking: String,
    filter: RequestFilter,
}

impl FleetRecordings {
    /// Returns the last requests of the other instances that pass, of those that answer in time.
    pub(crate) async fn others(
        &self,
        engine: &Engine,
        instances: &Instances,
        filter: &RequestFilter,
        patience: Duration,
    ) -> OtherRecordings {
        let mut others = OtherRecordings::default();
        let Some(store) = engine.store().redis() else {
            return others;
        };
        let own = instances.id();
        match store.heartbeats().ids().await {
            Ok(mut ids) => {
                ids.retain(|id| id != own);
                others.known = ids.len();
                if ids.is_empty() {
                    return others;
                }
                let Ok(_turn) = timeout(MAX_WAIT, self.asking.lock()).await else {
                    others.failure = Some("too many calls ask for recorded requests".into());
                    return others;
                };
                let record = store.usage_record();
                match ask(engine, &record, own, &ids, filter, patience).await {
                    Ok(answers) => others.answers = answers,
                    Err(error) => others.failure = Some(error.to_string()),
                }
            }
            Err(error) => others.failure = Some(error.to_string()),
        }
        others
    }
}

impl OtherRecordings {
    /// Returns these requests and those of this instance that pass. It takes its time.
    pub(crate) fn with_own(self, engine: &Engine, filter: &RequestFilter) -> FleetRecording {
        let is_recording = engine.telemetry().is_recording();
        // After the others, so that little is missing between what they have and what it has.
        let own = SharedRecording::of(filter.select(engine), MAX_BYTES);
        let mut fleet = FleetRecording {
            known: 1 + self.known,
            answered: 1 + self.answers.len(),
            recording: usize::from(is_recording),
            failure: self.failure,
            requests: Vec::new(),
        };
        fleet.recording += self.answers.iter().filter(|it| it.is_recording).count();
        let mut complete_since = 0;
        let mut all = Vec::new();
        for SharedRecording {
            requests, is_cut, ..
        } in self.answers.into_iter().chain([own])
        {
            if let Some(first) = requests.first().filter(|_| is_cut) {
                complete_since = complete_since.max(encoded_at(first));
            }
            all.extend(requests);
        }
        all.retain(|request| encoded_at(request) >= complete_since);
        all.sort_by_key(|request| encoded_at(request));
        // Each instance has shared as many, so none of the last ones is missing.
        all.drain(..all.len().saturating_sub(filter.count));
        let kept = SharedRecording::of(all, MAX_BYTES).requests;
        let decoded = kept.iter().filter_map(|it| RecentRequest::decode(it));
        fleet.requests = decoded.collect();
        fleet
    }
}

/// Asks these instances for their last requests, and waits for a while.
async fn ask(
    engine: &Engine,
    record: &UsageRecord,
    own: &str,
    ids: &[String],
    filter: &RequestFilter,
    patience: Duration,
) -> Result<Vec<SharedRecording>, StoreError> {
    let wish = Wish::new(own, filter.clone());
    let Some(sealed) = wish.seal(engine) else {
        // The secret is read from the server within moments.
        return Ok(Vec::new());
    };
    record.share(WANTED, own, &sealed, SHARED_FOR).await?;
    let answers: Vec<_> = ids.iter().map(|id| answer_key(own, id)).collect();
    let mut found = Vec::new();
    for _ in 0..patience.as_millis() / ANSWER_INTERVAL.as_millis() {
        tokio::time::sleep(ANSWER_INTERVAL).await;
        let shared = record.shared(RECORDED, &answers).await?;
        let answers = shared.iter().filter(|it| it.starts_with(&wish.nonce));
        found = answers.filter_map(|it| open_answer(engine, it)).collect();
        if found.len() == ids.len() {
            break;
        }
    }
    Ok(found)
}

/// Shares the last requests with instances that want them, until the service closes.
pub(crate) async fn share_when_wanted(
    engine: &Arc<Engine>,
    instances: &Instances,
    closing: &CancellationToken,
) {
    let Some(store) = engine.store().redis() else {
        return;
    };
    let (record, heartbeats) = (store.usage_record(), store.heartbeats());
    let own = instances.id();
    // Wishes that were answered, as long as they stay.
    let mut answered: HashSet<Nonce> = HashSet::new();
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = closing.cancelled() => return,
        }
        // Failures show up in the breaker state.
        let Ok(mut ids) = heartbeats.ids().await else {
            continue;
        };
        ids.retain(|id| id != own);
        let Ok(wishes) = record.shared(WANTED, &ids).await else {
            continue;
        };
        let wishes: Vec<_> = wishes
            .iter()
            .filter_map(|it| Wish::open(engine, it))
            .collect();
        answered.retain(|nonce| wishes.iter().any(|wish| wish.nonce == *nonce));
        for wish in wishes {
            if answered.contains(&wish.nonce) {
                continue;
            }
            let (nonce, key) = (wish.nonce, answer_key(&wish.asking, own));
            let sharing = Arc::clone(engine);
            let work = move || own_answer(&sharing, &wish);
            let Ok(Some(answer)) = tokio::task::spawn_blocking(work).await else {
                continue;
            };
            let shared = record.share(RECORDED, &key, &answer, SHARED_FOR).await;
            if shared.is_ok() {
                answered.insert(nonce);
            }
        }
    }
}

/// Returns under which name an instance answers another one.
fn answer_key(asking: &str, answering: &str) -> String {
    format!("{asking}:{answering}")
}

/// Returns the requests of this instance as it shares them.
fn own_answer(engine: &Engine, wish: &Wish) -> Option<Vec<u8>> {
    let shared = if engine.telemetry().is_recording() {
        SharedRecording::of(wish.filter.select(engine), MAX_BYTES)
    } else {
        SharedRecording::default()
    };
    let sealed = engine.identities().seal(shared.write(), &wish.nonce)?;
    Some([&wish.nonce[..], &sealed].concat())
}

fn open_answer(engine: &Engine, answer: &[u8]) -> Option<SharedRecording> {
    let (nonce, sealed) = answer.split_first_chunk::<NONCE_LENGTH>()?;
    let shared = engine.identities().unseal(sealed, nonce)?;
    SharedRecording::read(&shared, MAX_BYTES)
}

impl Wish {
    fn new(asking: &str, filter: RequestFilter) -> Self {
        // A number has at most 16 digits.
        let text = format!("{:016x}", RandomState::new().hash_one(0));
        let mut nonce = Nonce::default();
        nonce.copy_from_slice(text.as_bytes());
        Self {
            nonce,
            asking: asking.to_owned(),
            filter,
        }
    }

    fn seal(&self, engine: &Engine) -> Option<Vec<u8>> {
        let content = serde_json::to_vec(&(&self.asking, &self.filter)).ok()?;
        let sealed = engine.identities().seal(content, &self.nonce)?;
        Some([&self.nonce[..], &sealed].concat())
    }

    /// Reads what an instance wrote. Other versions may write something else.
    fn open(engine: &Engine, wish: &[u8]) -> Option<Self> {
        let (nonce, sealed) = wish.split_first_chunk::<NONCE_LENGTH>()?;
        let content = engine.identities().unseal(sealed, nonce)?;
        let (asking, filter) = serde_json::from_slice(&content).ok()?;
        Some(Self {
            nonce: *nonce,
            asking,
            filter,
        })
    }
}
