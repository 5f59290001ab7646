//! Documented bounds that are too large to test: the documents and the source agree.

use std::fs;

use super::claims::on_one_line;
use super::read;
use crate::support::project_file;

/// A document, its text, the source file and its constant.
const NUMBERS: &str = "
admin ~ among 1,024 lines ~ fluxgate/src/telemetry/log/audit.rs ~ MAX_LINES: usize = 1024
admin ~ wait, for up to 5 s ~ fluxgate/src/telemetry/log/audit.rs ~ MAX_WAIT: Duration = Duration::from_secs(5)
admin ~ for up to 3 s until ~ fluxgate/src/telemetry/log/writer.rs ~ LAST_AUDIT_TIMEOUT: Duration = Duration::from_secs(3)
admin ~ read every second ~ fluxgate/src/watch/reloaded_file.rs ~ INTERVAL: Duration = Duration::from_secs(1)
api ~ up to 1,000 ~ fluxgate/src/api/check.rs ~ MAX_CHECKS: usize = 1_000
api ~ Bodies are JSON of up to 64 KiB ~ fluxgate/src/api/body.rs ~ MAX_BYTES: usize = 64 * 1024
api ~ within 10 s ~ fluxgate/src/api/body.rs ~ TIMEOUT: Duration = Duration::from_secs(10)
api ~ a head over 64 KiB ~ fluxgate/src/serve/http.rs ~ MAX_HEADER_BYTES: usize = 64 * 1024
api ~ closed after 30 s ~ fluxgate/src/serve/http.rs ~ HEADER_TIMEOUT: Duration = Duration::from_secs(30)
api ~ within 25 s at most ~ fluxgate/src/config/settings.rs ~ GRACE: Duration = Duration::from_secs(25)
api ~ writes them to Redis every 5 s ~ fluxgate/src/history/bounds.rs ~ WRITE_INTERVAL: Duration = Duration::from_secs(5)
api ~ up to 200,000 of a rule, an outcome and a step each ~ fluxgate/src/history/bounds.rs ~ MAX_WAITING_COUNTS: usize = 200_000
api ~ 20,000 rows of denials ~ fluxgate/src/history/bounds.rs ~ MAX_WAITING_ROWS: usize = 20_000
api ~ At most 5,000,000 values are read at once ~ fluxgate/src/history/bounds.rs ~ MAX_VALUES: u64 = 5_000_000
api ~ a rule has 1,000 rows in a minute ~ fluxgate-redis/src/record/scripts.rs ~ MAX_MINUTE_ROWS: usize = 1_000
api ~ At most 1,000 are kept ~ fluxgate-redis/src/record/batch.rs ~ MAX_CHANGES: usize = 1_000
security ~ eighth of its window ~ fluxgate-core/src/algorithm/sliding_log.rs ~ PARTS: u64 = 8
config ~ at most 16 MiB ~ fluxgate-core/src/regular_file.rs ~ MAX_BYTES: u64 = 16 << 20
config ~ over 1 MiB ~ fluxgate/src/config/secrets.rs ~ MAX_BYTES: u64 = 1 << 20
events ~ the last 1,000, the oldest first ~ fluxgate/src/events.rs ~ MAX_LISTED: usize = 1_000
events ~ within 10 s ~ fluxgate/src/events/webhook/delivery.rs ~ DEADLINE: Duration = Duration::from_secs(10)
events ~ from 0.2 s to 30 s ~ fluxgate/src/events/webhook.rs ~ FIRST_WAIT: Duration = Duration::from_millis(200)
events ~ from 0.2 s to 30 s ~ fluxgate/src/events/webhook.rs ~ LONGEST_WAIT: Duration = Duration::from_secs(30)
events ~ an hour after it happened ~ fluxgate/src/events/webhook.rs ~ GIVE_UP_AFTER: Duration = Duration::from_secs(3600)
events ~ extends every 0.8 s ~ fluxgate/src/events/webhook.rs ~ CLAIM_INTERVAL: Duration = Duration::from_millis(800)
events ~ about 100,000 events ~ fluxgate-redis/src/event_log.rs ~ MAX_EVENTS: usize = 100_000
events ~ the last 10,000 events ~ fluxgate/src/events/journal.rs ~ MAX_KEPT: usize = 10_000
mcp ~ more than 8192 bytes ~ fluxgate-gateway/src/mcp/messages.rs ~ MAX_TEXT: usize = 8 * 1024
mcp ~ with more than 1000 ~ fluxgate-gateway/src/mcp/messages.rs ~ MAX_BATCH: usize = 1_000
mcp ~ deeper than 128 levels ~ fluxgate-llm/src/reader.rs ~ MAX_DEPTH: usize = 128
mcp ~ larger than 1 MiB ~ fluxgate-gateway/src/config.rs ~ MAX_MCP_BODY: u64 = 1024 * 1024
gateway ~ ejected for 1 s ~ fluxgate-gateway/src/upstream/health.rs ~ FIRST_EJECTION: Duration = Duration::from_secs(1)
gateway ~ up to 30 s ~ fluxgate-gateway/src/upstream/health.rs ~ LONGEST_EJECTION: Duration = Duration::from_secs(30)
gateway ~ up to 256 idle ones ~ fluxgate-gateway/src/upstream/pool.rs ~ MAX_IDLE: usize = 256
gateway ~ up to 128 requests ~ fluxgate-gateway/src/upstream/connection_limit.rs ~ MAX_STREAMS: usize = 128
gateway ~ at most 128 KiB of a response ~ fluxgate-gateway/src/upstream/http2/connection.rs ~ STREAM_WINDOW: u32 = 128 * 1024
gateway ~ and 64 KiB of a request ~ fluxgate-gateway/src/upstream/http2/connection.rs ~ SEND_BUFFER: usize = 64 * 1024
gateway ~ over 256 KiB or with ambiguous lengths ~ fluxgate-gateway/src/upstream/http2/connection.rs ~ MAX_HEAD: u32 = 256 * 1024
gateway ~ up to three times to one upstream ~ fluxgate-gateway/src/forward/multiplexed.rs ~ MAX_REFUSALS: usize = 3
gateway ~ no more than 64 KiB so far ~ fluxgate-gateway/src/exchange/http2_sender.rs ~ MAX_KEPT: usize = 64 * 1024
gateway ~ More than 16 of them ~ fluxgate-gateway/src/exchange.rs ~ MAX_INTERIM: usize = 16
gateway ~ idle for 1 s ~ fluxgate-gateway/src/timeouts/timeout_stream.rs ~ PARK_AFTER: Duration = Duration::from_secs(1)
gateway ~ read every second ~ fluxgate/src/watch/reloaded_file.rs ~ INTERVAL: Duration = Duration::from_secs(1)
gateway ~ no data has passed for 1 s ~ fluxgate-gateway/src/http_server/tunnel.rs ~ QUIET: Duration = Duration::from_secs(1)
grpc ~ larger than 4 MiB ~ fluxgate/src/grpc/unary.rs ~ MAX_CALL_BYTES: usize = 4 * 1024 * 1024
grpc ~ at most 1,000 ~ fluxgate/src/grpc/request.rs ~ MAX_DESCRIPTORS: usize = 1_000
live-rules ~ `poll` is 5 s ~ fluxgate/src/config/rules.rs ~ DEFAULT_POLL: Duration = Duration::from_secs(5)
live-rules ~ 10 s for HTTP ~ fluxgate/src/config/rules.rs ~ HTTP_POLL: Duration = Duration::from_secs(10)
live-rules ~ end within 10 s ~ fluxgate/src/reload/http_rules.rs ~ DEADLINE: Duration = Duration::from_secs(10)
live-rules ~ must end within 30 s ~ fluxgate/src/reload/mongo_rules.rs ~ DEADLINE: Duration = Duration::from_secs(30)
live-rules ~ there are at most 100,000 ~ fluxgate/src/reload/mongo_rules.rs ~ MAX_DOCUMENTS: usize = 100_000
live-rules ~ no rules after a second ~ fluxgate/src/reload/reloader.rs ~ CACHE_AFTER: Duration = Duration::from_secs(1)
live-rules ~ at least 100 ms between two reads ~ fluxgate/src/reload/reloader.rs ~ MESSAGE_PAUSE: Duration = Duration::from_millis(100)
live-rules ~ At most 10,000 files with 64 MiB in total ~ fluxgate/src/reload/rule_dir.rs ~ MAX_FILES: usize = 10_000
live-rules ~ At most 10,000 files with 64 MiB in total ~ fluxgate/src/reload/rule_dir.rs ~ MAX_TOTAL_BYTES: usize = 64 << 20
live-rules ~ At most 10,000 sets with 64 MiB in total ~ fluxgate-redis/src/rule_store.rs ~ MAX_SETS: usize = 10_000
live-rules ~ At most 10,000 sets with 64 MiB in total ~ fluxgate-redis/src/rule_store.rs ~ MAX_TOTAL_BYTES: usize = 64 << 20
live-rules ~ quiet for 60 ms ~ fluxgate/src/watch/change_notifier.rs ~ QUIET: Duration = Duration::from_millis(60)
live-rules ~ at most five times ~ fluxgate/src/reload/rule_dir.rs ~ MAX_PASSES: usize = 5
middleware ~ Up to 64 connections are kept ~ fluxgate-tower/src/remote/pool.rs ~ MAX_IDLE: usize = 64
middleware ~ 32 KiB of headers ~ fluxgate-tower/src/remote/request.rs ~ MAX_HEADER_BYTES: usize = 32 * 1024
middleware ~ `deadline` (50 ms) ~ fluxgate-tower/src/remote.rs ~ DEFAULT_DEADLINE: Duration = Duration::from_millis(50)
middleware ~ | `max_concurrent_waits(n)` | 100 | ~ fluxgate-http/src/filter.rs ~ DEFAULT_MAX_WAITS: usize = 100
redis ~ After five calls in a row without an answer ~ fluxgate-redis/src/breaker.rs ~ FAILURES: u32 = 5
redis ~ 50 to 800 ms ~ fluxgate-redis/src/breaker.rs ~ LONGEST_PAUSE: Duration = Duration::from_millis(800)
redis ~ lapses after 10 s ~ fluxgate-redis/src/sentinel/answers.rs ~ LAPSE: Duration = Duration::from_secs(10)
resp ~ 1,024 arguments of 64 KiB each and 128 KiB in all ~ fluxgate/src/resp/request.rs ~ MAX_REQUEST_BYTES: usize = 128 * 1024
security ~ a sixteenth of the rest ~ fluxgate-http/src/server/descriptors.rs ~ PARTS: usize = 16
security ~ at most 256 ~ fluxgate-http/src/server/descriptors.rs ~ MAX_RESERVED: usize = 256
security ~ 10,000 a listener ~ fluxgate/src/serve/acceptor.rs ~ MAX_CONNECTIONS: usize = 10_000
simulate ~ longer than 4 MiB ~ fluxgate-simulate/src/input.rs ~ MAX_LINE: usize = 4 * 1024 * 1024
simulate ~ at most 240 columns ~ fluxgate-simulate/src/report/timeline.rs ~ MAX_COLUMNS: usize = 240
simulate ~ each of the twelve rules ~ fluxgate-simulate/src/report/page/rules.rs ~ MAX_CHARTS: usize = 12
telemetry ~ cut after 1 KiB ~ fluxgate/src/telemetry/log/json.rs ~ MAX_BYTES: usize = 1024
telemetry ~ 100 lines at once ~ fluxgate/src/telemetry/log/sampling.rs ~ BURST: u64 = 100
telemetry ~ ten a second over time ~ fluxgate/src/telemetry/log/sampling.rs ~ PER_SECOND: u64 = 10
telemetry ~ up to 4,096 lines ~ fluxgate/src/telemetry/log/queue.rs ~ MAX_LINES: usize = 4096
telemetry ~ for at most a second ~ fluxgate/src/telemetry/log/writer.rs ~ LAST_TIMEOUT: Duration = Duration::from_secs(1)
telemetry ~ cut after 1 KiB ~ fluxgate/src/telemetry/otlp_json.rs ~ MAX_TEXT: usize = 1024
telemetry ~ every 5 s ~ fluxgate/src/telemetry/otlp.rs ~ INTERVAL: Duration = Duration::from_secs(5)
telemetry ~ 512 at a time ~ fluxgate/src/telemetry/otlp.rs ~ BATCH: usize = 512
telemetry ~ Up to 2,048 may wait ~ fluxgate/src/telemetry/otlp.rs ~ MAX_SPANS: usize = 2048
telemetry ~ beyond 2,000 series ~ fluxgate/src/telemetry/metrics/http_durations.rs ~ MAX_SERIES: usize = 2_000
telemetry ~ at most once a minute ~ fluxgate/src/telemetry/otlp/collector.rs ~ LOG_INTERVAL: Duration = Duration::from_secs(60)
";

#[test]
fn documented_bounds_match_the_source() {
    let numbers = NUMBERS.trim().lines();
    for number in numbers {
        let [document, claim, source, code] = number.split(" ~ ").collect::<Vec<_>>()[..] else {
            panic!("{number}");
        };
        let text = on_one_line(&read(&format!("docs/{document}.md")));
        assert!(text.contains(claim), "{document}.md does not say: {claim}");
        let text = fs::read_to_string(project_file("crates").join(source)).unwrap();
        assert!(
            text.contains(&format!("const {code};")),
            "{document}.md says: {claim}, but {source} has no {code}"
        );
    }
}
