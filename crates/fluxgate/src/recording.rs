//! The last requests of all instances, for trials.
//!
//! Each instance keeps its own. Only when one of them runs a trial do the others share theirs: it writes
//! a nonce, each of them notices it within a second, and writes its last requests, which expire after
//! seconds. They are encrypted, because they name identities as they came.

use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use fluxgate_core::StoreError;
use fluxgate_redis::UsageRecord;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::instances::Instances;
use crate::telemetry::{MAX_RECENT, RecentRequest};

/// How often an instance looks whether another one wants its requests.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the wish stays, and what is shared.
const SHARED_FOR: Duration = Duration::from_secs(15);
/// How often, and for how long, the instance that runs the trial looks for the answers.
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);
const ANSWER_LOOKS: u32 = 40;
/// The kinds of what is shared.
const WANTED: &str = "wanted";
const RECORDED: &str = "recorded";
/// Stands in place of an instance in the key of the wish.
const ALL: &str = "all";
const NONCE_LENGTH: usize = 16;
/// The first byte of what is shared: the version of the form, or that requests are not recorded.
const VERSION: u8 = 1;
const NOT_RECORDED: u8 = 0;
/// Older requests are left out of what is shared.
const MAX_BYTES: usize = 8 << 20;

/// The last requests of all instances, as far as they have answered.
#[derive(Debug, Default)]
pub(crate) struct FleetRecording {
    /// The oldest first, at most [`MAX_RECENT`]. None is missing since the first of them.
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

/// What an instance shares.
#[derive(Debug, Default, PartialEq, Eq)]
struct SharedRecording {
    is_recording: bool,
    /// Encoded, the oldest first.
    requests: Vec<Vec<u8>>,
    /// Whether there are older ones.
    is_cut: bool,
}

/// Shares the last requests with instances that want them, until the service closes.
pub(crate) async fn share_when_wanted(
    engine: &Engine,
    instances: &Instances,
    closing: &CancellationToken,
) {
    let Some(store) = engine.store().redis() else {
        return;
    };
    let record = store.usage_record();
    let mut answered = Vec::new();
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = closing.cancelled() => return,
        }
        // Failures show up in the breaker state.
        let Ok(Some(nonce)) = wanted(&record).await else {
            continue;
        };
        if nonce == answered {
            continue;
        }
        let Some(shared) = own_recording(engine, &nonce) else {
            continue;
        };
        let id = instances.id();
        if record
            .share(RECORDED, id, &shared, SHARED_FOR)
            .await
            .is_ok()
        {
            answered = nonce;
        }
    }
}

/// Returns the last requests of all instances.
pub(crate) async fn fleet_recording(engine: &Engine, instances: &Instances) -> FleetRecording {
    let mut fleet = FleetRecording {
        known: 1,
        answered: 1,
        recording: usize::from(engine.telemetry().is_recording()),
        ..FleetRecording::default()
    };
    let others = match engine.store().redis() {
        None => Ok(Vec::new()),
        Some(store) => {
            let own = instances.id();
            let ids = async {
                let mut ids = store.heartbeats().ids().await?;
                ids.retain(|id| id != own);
                Ok::<_, StoreError>(ids)
            };
            match ids.await {
                Ok(ids) => {
                    fleet.known += ids.len();
                    others(engine, &store.usage_record(), &ids).await
                }
                Err(error) => Err(error),
            }
        }
    };
    let others = others.unwrap_or_else(|error| {
        fleet.failure = Some(error.to_string());
        Vec::new()
    });
    fleet.answered += others.len();
    fleet.recording += others.iter().filter(|it| it.is_recording).count();
    // After the others, so that little is missing between what they have and what it has.
    fleet.requests = engine.telemetry().recent(MAX_RECENT);
    let mut complete_since = Duration::ZERO;
    for other in others {
        let decoded = other.requests.iter();
        let decoded: Vec<_> = decoded.filter_map(|it| RecentRequest::decode(it)).collect();
        if let Some(first) = decoded.first().filter(|_| other.is_cut) {
            complete_since = complete_since.max(first.at);
        }
        fleet.requests.extend(decoded);
    }
    fleet
        .requests
        .retain(|request| request.at >= complete_since);
    fleet.requests.sort_by_key(|request| request.at);
    // Each instance has shared as many, so none of the last ones is missing.
    let skipped = fleet.requests.len().saturating_sub(MAX_RECENT);
    fleet.requests.drain(..skipped);
    fleet
}

/// Asks these instances for their last requests, and waits for a while.
async fn others(
    engine: &Engine,
    record: &UsageRecord,
    ids: &[String],
) -> Result<Vec<SharedRecording>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let nonce = format!("{:016x}", RandomState::new().hash_one(0));
    record
        .share(WANTED, ALL, nonce.as_bytes(), SHARED_FOR)
        .await?;
    let mut found = Vec::new();
    for _ in 0..ANSWER_LOOKS {
        tokio::time::sleep(ANSWER_INTERVAL).await;
        // Another trial may have begun since. Its answers are as good.
        let nonce = wanted(record).await?.unwrap_or_default();
        let shared = record.shared(RECORDED, ids).await?;
        let answers = shared.iter().filter(|it| it.starts_with(&nonce));
        found = answers
            .filter_map(|it| SharedRecording::open(engine, it))
            .collect();
        if found.len() == ids.len() {
            break;
        }
    }
    Ok(found)
}

/// Returns the nonce of the last wish that has not expired.
async fn wanted(record: &UsageRecord) -> Result<Option<Vec<u8>>, StoreError> {
    let wanted = record.shared(WANTED, &[ALL.to_owned()]).await?;
    let mut wanted = wanted.into_iter();
    Ok(wanted.find(|nonce| nonce.len() == NONCE_LENGTH))
}

/// Returns the requests of this instance as it shares them.
fn own_recording(engine: &Engine, nonce: &[u8]) -> Option<Vec<u8>> {
    let telemetry = engine.telemetry();
    let shared = if telemetry.is_recording() {
        SharedRecording::of(telemetry.recent_encoded(MAX_RECENT), MAX_BYTES)
    } else {
        SharedRecording::default()
    };
    let sealed = engine.identities().seal(shared.write(), nonce)?;
    Some([nonce, &sealed].concat())
}

impl SharedRecording {
    /// Creates it from the requests of this instance: the last ones that are not too large together.
    fn of(mut requests: Vec<Vec<u8>>, most: usize) -> Self {
        let mut size = 0;
        let kept = requests.iter().rev().take_while(|request| {
            size += request.len();
            size <= most
        });
        let cut = requests.len() - kept.count();
        requests.drain(..cut);
        Self {
            is_recording: true,
            requests,
            is_cut: cut > 0,
        }
    }

    fn write(&self) -> Vec<u8> {
        if !self.is_recording {
            return vec![NOT_RECORDED];
        }
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory does not fail.
        let _ = compressed.write_all(&[u8::from(self.is_cut)]);
        for request in &self.requests {
            // At most a few kilobytes.
            let _ = compressed.write_all(&(request.len() as u32).to_le_bytes());
            let _ = compressed.write_all(request);
        }
        let mut bytes = vec![VERSION];
        bytes.extend(compressed.finish().unwrap_or_default());
        bytes
    }

    /// Reads what an instance wrote. Other versions may write something else.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (version, compressed) = bytes.split_first()?;
        match *version {
            NOT_RECORDED => return Some(Self::default()),
            VERSION => {}
            _ => return None,
        }
        let mut content = Vec::new();
        let most = MAX_BYTES + MAX_RECENT * size_of::<u32>() + 1;
        let mut decoder = GzDecoder::new(compressed).take(most as u64);
        decoder.read_to_end(&mut content).ok()?;
        let (is_cut, mut rest) = content.split_first()?;
        let mut requests = Vec::new();
        while let Some((size, behind)) = rest.split_first_chunk() {
            let size = u32::from_le_bytes(*size) as usize;
            let (request, behind) = behind.split_at_checked(size)?;
            requests.push(request.to_vec());
            rest = behind;
        }
        Some(Self {
            is_recording: true,
            requests,
            is_cut: *is_cut == 1,
        })
    }

    fn open(engine: &Engine, shared: &[u8]) -> Option<Self> {
        let (nonce, sealed) = shared.split_first_chunk::<NONCE_LENGTH>()?;
        Self::read(&engine.identities().unseal(sealed, nonce)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let requests = vec![b"first".to_vec(), Vec::new(), vec![7; 300]];
        for (most, cut) in [(1000, 0), (302, 1), (299, 3)] {
            let shared = SharedRecording::of(requests.clone(), most);
            assert_eq!(shared.requests, requests[cut..], "{most}");
            assert_eq!(shared.is_cut, cut > 0);
            assert_eq!(SharedRecording::read(&shared.write()), Some(shared));
        }
        let none = SharedRecording::default();
        assert_eq!(SharedRecording::read(&none.write()), Some(none));
        for unknown in [&b""[..], &[9], &[VERSION], &[VERSION, 1, 2, 3]] {
            assert_eq!(SharedRecording::read(unknown), None);
        }
    }
}
