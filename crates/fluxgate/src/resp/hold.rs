//! `FG.SETTLE`, `FG.RENEW` and `FG.RELEASE`: holds of earlier checks.

use std::str;

use fluxgate_core::json::whole_number;
use fluxgate_core::{HoldId, Settled, Settlement};

use super::reply::{CommandError, Replies};
use crate::engine::Engine;
use crate::hold_span::parse_hold_span;

/// Settles a hold: replies with the units that are charged, and those that did not fit.
pub(super) async fn settle(
    engine: &Engine,
    arguments: &[&[u8]],
    replies: &mut Replies<'_>,
) -> Result<(), CommandError> {
    let (hold, settlement) = match arguments {
        [hold] => (hold, Settlement::AsReserved),
        [hold, cost] => {
            let cost = str::from_utf8(cost)
                .ok()
                .filter(|cost| !cost.is_empty())
                .and_then(whole_number);
            let error = || CommandError::new("ERR `cost` must be a whole number from 0");
            (hold, Settlement::Cost(cost.ok_or_else(error)?))
        }
        _ => return Err(CommandError::arguments("fg.settle")),
    };
    let settled = engine.settle(id(hold)?, settlement).await;
    let Settled { charged, uncharged } = settled?.ok_or_else(no_hold)?;
    replies.array(2);
    replies.integer_or_null(Some(charged));
    replies.integer_or_null(Some(uncharged));
    Ok(())
}

/// Releases a hold.
pub(super) async fn release(
    engine: &Engine,
    arguments: &[&[u8]],
    replies: &mut Replies<'_>,
) -> Result<(), CommandError> {
    let [hold] = arguments else {
        return Err(CommandError::arguments("fg.release"));
    };
    let settled = engine.settle(id(hold)?, Settlement::RELEASE).await;
    settled?.ok_or_else(no_hold)?;
    replies.ok();
    Ok(())
}

/// Extends a hold.
pub(super) async fn renew(
    engine: &Engine,
    arguments: &[&[u8]],
    replies: &mut Replies<'_>,
) -> Result<(), CommandError> {
    let [hold, span] = arguments else {
        return Err(CommandError::arguments("fg.renew"));
    };
    let span = parse_hold_span("hold_for", &String::from_utf8_lossy(span))
        .map_err(|fault| CommandError::new(format!("ERR {fault}")))?;
    let renewed = engine.renew(&[id(hold)?], span).await?;
    match renewed.first() {
        Some(true) => replies.ok(),
        _ => return Err(no_hold()),
    }
    Ok(())
}

/// Reads the id of a hold. No hold has a text that is not an id.
fn id(text: &[u8]) -> Result<HoldId, CommandError> {
    let id = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    id.ok_or_else(no_hold)
}

fn no_hold() -> CommandError {
    CommandError::new("NOHOLD there is no such hold: it was settled, has expired or never existed")
}
