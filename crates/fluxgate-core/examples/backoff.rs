//! Makes calls, waits whenever the limit is used up, and gives up if the wait is too long.
//!
//! `cargo run -p fluxgate-core --example backoff [CALLS [PER_SECOND]]`

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use fluxgate_core::{Algorithm, Denied, DirectLimiter, Limit, Quota};

/// The longest wait for one call.
const MAX_WAIT: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let calls: u32 = arguments.next().as_deref().unwrap_or("6").parse()?;
    let per_second: u64 = arguments.next().as_deref().unwrap_or("4").parse()?;
    // Numbers that come from outside are checked here. `Quota::per_second` would panic.
    let limit = Limit::builder(Algorithm::TokenBucket, per_second, Duration::from_secs(1));
    let limiter = DirectLimiter::new(Quota::from(limit.build()?));
    for number in 1..=calls {
        let waited = back_off(&limiter)?;
        println!("call {number} after a wait of {} ms", waited.as_millis());
    }
    Ok(())
}

/// Takes a unit, if need be after waiting for it, and returns the wait.
fn back_off(limiter: &DirectLimiter) -> Result<Duration, Denied> {
    let mut waited = Duration::ZERO;
    loop {
        match limiter.check() {
            Ok(_) => return Ok(waited),
            Err(denied) => match denied.retry_after {
                // Not a guess: unless another caller takes it, the unit is there then.
                Some(wait) if waited + wait <= MAX_WAIT => {
                    sleep(wait);
                    waited += wait;
                }
                _ => return Err(denied),
            },
        }
    }
}
