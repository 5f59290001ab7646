//! Rules that change while the service runs: where they come from, how a change
//! is noticed, and how it is put in force.

mod config_file;
mod directory;
mod forgetting;
mod json;
mod keeper;
mod source;
mod stored;

use tokio::sync::{mpsc, oneshot};

pub(crate) use config_file::ConfigFile;
pub(crate) use directory::rules_in;
pub(crate) use json::{Json, parse_node};
pub(crate) use keeper::Keeper;
pub(crate) use source::{Origin, Source};
pub(crate) use stored::check_set;

/// Asks the keeper of the rules to look again.
#[derive(Clone, Debug)]
pub(crate) struct Reloader {
    orders: mpsc::Sender<Order>,
    /// Where the rules come from.
    pub(crate) origin: Origin,
}

/// Somebody wants the rules to be read again, and hears what came of it.
type Order = oneshot::Sender<Result<(), String>>;

impl Reloader {
    /// Reads the rules again. What is there now is in force afterwards, or an
    /// error says why not.
    pub(crate) async fn now(&self) -> Result<(), String> {
        let (told, heard) = oneshot::channel();
        // If the keeper is gone, so is `told`.
        let _ = self.orders.send(told).await;
        heard
            .await
            .unwrap_or_else(|_| Err("the service is closing".into()))
    }
}
