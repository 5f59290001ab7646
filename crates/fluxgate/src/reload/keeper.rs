//! Keeps the rules in force those that their source holds.

use std::sync::Arc;
use std::time::Duration;

use fluxgate_core::RuleSets;
use fluxgate_redis::BackOff;
use tokio::signal::unix::Signal;
use tokio::sync::{Notify, mpsc};

use super::forgetting::{Forgetting, any_resets};
use super::source::{Content, Refusal, Source, apart};
use super::{Order, Reloader};
use crate::engine::Engine;
use crate::failure::Failure;
use crate::watch::{DirectoryWatch, next_signal, settled};

/// How long a service without rules waits at most before it tries again.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Orders that wait for the one before them.
const MOST_ORDERS: usize = 64;

/// Reads the rules, and reads them again whenever they may have changed.
#[derive(Debug)]
pub(crate) struct Keeper {
    engine: Arc<Engine>,
    source: Arc<Source>,
    orders: mpsc::Receiver<Order>,
    /// Something may have changed.
    changed: Arc<Notify>,
    in_force: Option<Arc<Content>>,
    /// What came of the last look, if it was no good.
    refused: Option<Refused>,
    /// Deletes what replaced rules leave behind; made when it is first needed.
    forgetting: Option<Forgetting>,
}

/// What was refused.
#[derive(Debug)]
struct Refused {
    /// Nothing where nothing could be read.
    content: Option<Arc<Content>>,
    why: Refusal,
}

/// What made the keeper look.
#[derive(Debug)]
enum Wake {
    /// Time has passed, or something may have changed.
    Routine,
    /// SIGHUP.
    HangUp,
    /// An order.
    Order(Order),
}

/// How is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// As every now and then: what was told before is not told again.
    Routine,
    /// Somebody asked for it, and wants to know.
    Asked,
}

impl Keeper {
    /// Keeps the rules of `engine`.
    pub(crate) fn new(engine: Arc<Engine>, source: Source) -> (Self, Reloader) {
        let (sender, orders) = mpsc::channel(MOST_ORDERS);
        let origin = source.origin();
        let keeper = Self {
            engine,
            source: Arc::new(source),
            orders,
            changed: Arc::default(),
            in_force: None,
            refused: None,
            forgetting: None,
        };
        let orders = sender;
        (keeper, Reloader { orders, origin })
    }

    /// The first rules, where no server need be asked for them: then they must
    /// be good, or the service does not start.
    pub(crate) fn read_first(&mut self) -> Result<Option<RuleSets>, Failure> {
        if let Source::Redis(_) = &*self.source {
            return Ok(None);
        }
        let content = self.source.files(None)?;
        let rules = self.source.compile(&content)?;
        self.in_force = Some(Arc::new(content));
        Ok(Some(rules))
    }

    /// Keeps the rules what they should be for as long as the runtime runs, and
    /// looks at once when it is told to hang up.
    pub(crate) async fn run(mut self, mut hang_up: Option<Signal>) {
        if let Source::Redis(stored) = &*self.source {
            let changed = Arc::clone(&self.changed);
            tokio::spawn(super::stored::listen(stored.store.clone(), changed));
        }
        let mut watch = DirectoryWatch::new(Arc::clone(&self.changed));
        let mut back_off = BackOff::up_to(LONGEST_WAIT);
        let mut wake = Wake::Routine;
        loop {
            // Before the look: what changes after it is seen by the watch.
            watch.follow(&self.source.watched());
            match wake {
                Wake::Routine => drop(self.look(Occasion::Routine).await),
                Wake::HangUp => drop(self.look(Occasion::Asked).await),
                Wake::Order(order) => self.obey(order).await,
            }
            let wait = match self.in_force {
                Some(_) => self.source.poll(),
                None => back_off.next_wait(),
            };
            wake = tokio::select! {
                () = tokio::time::sleep(wait) => Wake::Routine,
                () = self.changed.notified() => {
                    if !matches!(*self.source, Source::Redis(_)) {
                        settled(&self.changed).await;
                    }
                    Wake::Routine
                }
                () = next_signal(&mut hang_up) => Wake::HangUp,
                Some(order) = self.orders.recv() => Wake::Order(order),
            };
        }
    }

    async fn obey(&mut self, order: Order) {
        let looked = self.look(Occasion::Routine).await;
        // Who asked may have gone.
        let _ = order.send(looked.map_err(|refusal| refusal.to_string()));
    }

    /// Looks what is there, and puts it in force if it is new and good.
    async fn look(&mut self, occasion: Occasion) -> Result<(), Refusal> {
        let refused = self.refused.as_ref();
        let refused = refused.and_then(|refused| refused.content.clone());
        let content = self
            .source
            .content(self.in_force.as_ref(), refused.as_ref())
            .await;
        let content = match content {
            Ok(content) => content,
            Err(why) => return Err(self.refuse(None, why, occasion)),
        };
        if self.in_force.as_ref() == Some(&content) {
            if self.refused.take().is_some() || occasion == Occasion::Asked {
                tracing::info!("the rules are those in force");
                self.engine.telemetry().reloaded(true);
            }
            return Ok(());
        }
        if let Some(known) = &self.refused
            && known.content.as_ref() == Some(&content)
            && occasion == Occasion::Routine
        {
            return Err(known.why.clone());
        }
        let (source, read) = (Arc::clone(&self.source), Arc::clone(&content));
        match apart(move || source.compile(&read)).await {
            Ok(rules) => {
                self.swap_rules(rules);
                self.in_force = Some(content);
                self.refused = None;
                Ok(())
            }
            Err(why) => Err(self.refuse(Some(content), why, occasion)),
        }
    }

    /// Keeps what is in force, and says why; not again where it was said.
    fn refuse(
        &mut self,
        content: Option<Arc<Content>>,
        why: Refusal,
        occasion: Occasion,
    ) -> Refusal {
        let known = self.refused.as_ref();
        let is_known = known.is_some_and(|it| it.content == content && it.why.is_same(&why));
        if !is_known || occasion == Occasion::Asked {
            let kept = match self.in_force {
                Some(_) => "new rules are refused; those in force stay",
                None => "there are no rules yet",
            };
            match &why {
                Refusal::Unreadable(why) | Refusal::NoAnswer(why) => tracing::error!(why, "{kept}"),
                Refusal::Invalid(faults) => {
                    for fault in faults {
                        tracing::error!(fault, "{kept}");
                    }
                }
            }
            self.engine.telemetry().reloaded(false);
        }
        let refused = why.clone();
        self.refused = Some(Refused { content, why });
        refused
    }

    /// Puts rules in force: those that were read first, or others.
    pub(crate) fn swap_rules(&mut self, rules: RuleSets) {
        let sets = rules.iter().count();
        let count = rules.iter().map(|set| set.rules().len()).sum::<usize>();
        let replaced = self.engine.swap_rules(rules);
        if any_resets(&replaced) {
            let engine = &self.engine;
            let forgetting = self
                .forgetting
                .get_or_insert_with(|| Forgetting::start(engine));
            forgetting.add(replaced);
        }
        self.engine.telemetry().reloaded(true);
        tracing::info!(rule_sets = sets, rules = count, "rules are in force");
    }
}
