//! Faults, and what else happens to machines.

use super::process::{FIRST_PORT, SENTINELS, user_name};
use super::state::{Event, World};
use crate::ledger::{Instant, Return, Violation};
use crate::plan::{Deployment, Step};
use crate::redis::{Condition, Reply, Role, hash_slot};

/// How many keys of a hash slot move at once.
const KEYS_AT_ONCE: usize = 1;

/// How soon an instance follows a failover that all sentinels know of.
const FOLLOWS_WITHIN: u64 = 3_000_000;

impl World<'_> {
    /// Checks that an old primary decides no more, once all instances must have left it.
    pub(super) fn check_primary(&mut self, instance: usize, decided: Instant) {
        let disturbed = self.instances[instance].disturbed_until + FOLLOWS_WITHIN;
        let is_late = decided.at > self.followed_by.max(disturbed);
        if self.epoch > 1 && is_late && decided.server != self.primary {
            self.report.violation.get_or_insert(Violation {
                at: decided.at,
                message: format!("instance {instance} still uses the old primary"),
            });
        }
    }

    /// Lets a fault happen. A step that does not fit the plan, because others were cut out of it,
    /// does nothing.
    pub(super) fn fault(&mut self, fault: &Step) {
        self.trace
            .record(self.now, format_args!("fault: {fault:?}"));
        match *fault {
            Step::Rules { instance, version } => {
                let Some(rules) = self.rules.get(version) else {
                    return;
                };
                let rules = rules.clone();
                self.instances[instance].version = version;
                self.with(instance, |process| process.set_rules(rules, version));
            }
            Step::Crash { instance } => self.end(instance, "crashed"),
            Step::Stop { instance } => {
                let operation = self.add_stop(instance);
                self.with(instance, |process| process.stop(operation));
            }
            Step::Start { instance } => self.start(instance),
            Step::Pause { instance, span } => {
                self.instances[instance].paused_until = self.now + span;
                self.instances[instance].disturbed_until = self.now + span;
            }
            Step::Cut { instance } => {
                let network = std::rc::Rc::clone(&self.network);
                let open = network.borrow().open_of(instance).to_vec();
                self.cut(&open);
            }
            Step::Partition { instance, span } => {
                self.instances[instance].partitioned_until = self.now + span;
                self.instances[instance].disturbed_until = self.now + span;
            }
            Step::SetClock { server, by } => {
                // The nodes of a cluster have one clock: a hash slot takes its counters along.
                let is_cluster = matches!(self.plan.deployment, Deployment::Cluster(_));
                let is_set = |number: usize| number == server || is_cluster;
                let servers = self.servers.iter_mut().enumerate();
                for (_, server) in servers.filter(|(number, _)| is_set(*number)) {
                    server.step_clock(by);
                }
                if by < 0 {
                    let progress = self.progress();
                    self.ledger.step_back(progress);
                }
            }
            Step::ScriptFlush { server } => {
                if let Some(server) = self.servers.get_mut(server) {
                    server.forget_scripts();
                }
            }
            Step::Restart { server } => self.restart(server),
            Step::Refuse {
                server,
                condition,
                span,
            } => {
                if let Some(refusing) = self.servers.get_mut(server) {
                    refusing.conditions.push(condition);
                    self.schedule(self.now + span, Event::Accept { server, condition });
                }
            }
            Step::Failover {
                lag,
                overlap,
                spread,
            } => self.fail_over(lag, overlap, spread),
            Step::MoveSlot { user, to, span } => self.move_slot(user, to, span),
            _ => {}
        }
    }

    /// Ends the process of an instance.
    pub(super) fn end(&mut self, instance: usize, how: &str) {
        let state = &mut self.instances[instance];
        if state.process.take().is_some() {
            self.end_waits(instance);
            self.trace
                .record(self.now, format_args!("instance {instance} {how}"));
        }
    }

    /// Resets connections: bytes on their way are lost.
    fn cut(&mut self, connections: &[usize]) {
        let mut touched = Vec::new();
        {
            let mut network = self.network.borrow_mut();
            for number in connections {
                if let Some(connection) = network.get(*number) {
                    connection.reset();
                    touched.push(connection.instance);
                }
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for instance in touched {
            if self.instances[instance].paused_until <= self.now {
                self.let_run(instance, None);
            }
        }
    }

    /// A server starts again without its data.
    fn restart(&mut self, server: usize) {
        let Some(restarted) = self.servers.get_mut(server) else {
            return;
        };
        restarted.keyspace.clear();
        restarted.forget_scripts();
        let port = restarted.port;
        self.history.end(self.now);
        let lost = self.instant(server);
        self.ledger.lose(lost, 0, server, Return::All);
        let open = self.network.borrow().open_to(port);
        self.cut(&open);
    }

    fn fail_over(&mut self, lag: u64, overlap: u64, spread: u64) {
        if self.plan.deployment != Deployment::Sentinel {
            return;
        }
        let (old, new) = (self.primary, 1 - self.primary);
        let since = self.now.saturating_sub(lag);
        self.history.end(since);
        let at = self.instant(old);
        // What the replica did not have may be used again, and what the old primary still decides
        // is lost, too.
        self.ledger.lose(at, since, new, Return::Overlap(overlap));
        let (data, lost) = self.servers[old].keyspace.as_of(since);
        self.trace.record(
            self.now,
            format_args!("server {new} takes over from {old}, without {lost} writes"),
        );
        let continued = self.servers[old].clocked(self.now);
        let promoted = &mut self.servers[new];
        promoted.keyspace = data;
        promoted.conditions.retain(|it| *it != Condition::Replica);
        promoted.continue_from(self.now, &continued);
        self.primary = new;
        self.epoch += 1;
        self.schedule(self.now + overlap, Event::Demote { server: old });
        self.followed_by = self.now + spread + FOLLOWS_WITHIN + 4 * self.plan.network.latest;
        let (primary, epoch) = (FIRST_PORT + new as u16, self.epoch);
        for sentinel in 0..usize::from(SENTINELS) {
            let after = self.random.below(spread + 1);
            let sentinel = 2 + sentinel;
            let learn = Event::Learn {
                sentinel,
                primary,
                epoch,
            };
            self.schedule(self.now + after, learn);
        }
    }

    /// A sentinel learns of a failover, and tells its subscribers.
    pub(super) fn learn(&mut self, sentinel: usize, primary: u16, epoch: u64) {
        let server = &mut self.servers[sentinel];
        let is_newer = matches!(server.role, Role::Sentinel { epoch: known, .. } if known < epoch);
        if !is_newer {
            return;
        }
        server.role = Role::Sentinel { primary, epoch };
        let port = server.port;
        self.trace.record(
            self.now,
            format_args!("server {sentinel} learns of the failover"),
        );
        let subscribers = self.network.borrow().open_to(port);
        let mut messages = Vec::new();
        {
            let mut network = self.network.borrow_mut();
            for number in subscribers {
                let Some(connection) = network.get(number) else {
                    continue;
                };
                let channel = b"+switch-master".to_vec();
                if connection.session.channels.contains(&channel) {
                    let message = Reply::Push(vec![
                        Reply::bulk("message"),
                        Reply::Bulk(channel),
                        Reply::bulk("main"),
                    ]);
                    let mut bytes = Vec::new();
                    message.encode(connection.session.protocol, &mut bytes);
                    messages.push((number, bytes));
                }
            }
        }
        for (connection, bytes) in messages {
            let decided = self.instant(self.primary);
            let arrives = self.now + self.latency();
            let event = Event::ToClient {
                connection,
                bytes,
                decided,
            };
            self.schedule(arrives, event);
        }
    }

    /// The old primary follows the new one.
    pub(super) fn demote(&mut self, server: usize) {
        if server == self.primary {
            return;
        }
        let demoted = &mut self.servers[server];
        demoted.conditions.push(Condition::Replica);
        demoted.keyspace.clear();
        self.trace
            .record(self.now, format_args!("server {server} is a replica now"));
    }

    fn move_slot(&mut self, user: u8, to: usize, span: u64) {
        let Deployment::Cluster(nodes) = self.plan.deployment else {
            return;
        };
        // The hash slot of the counters of this user.
        let Some(slot) = self.slot_of(user).filter(|_| to < nodes) else {
            return;
        };
        if self.hash_slots.owner(slot) != to && !self.hash_slots.moving.contains_key(&slot) {
            self.hash_slots.moving.insert(slot, to);
            let pause = span / 8;
            self.schedule(self.now + pause, Event::MoveKeys { slot, to, pause });
        }
    }

    /// Returns the hash slot of some key of a user, if there is one.
    fn slot_of(&self, user: u8) -> Option<u16> {
        let name = user_name(user);
        let mut keys = self.servers.iter().flat_map(|it| it.keyspace.keys());
        let has_name = |key: &Vec<u8>| key.windows(name.len()).any(|it| it == name.as_bytes());
        keys.find(has_name).map(|key| hash_slot(&key))
    }

    pub(super) fn move_keys(&mut self, slot: u16, to: usize, pause: u64) {
        let from = self.hash_slots.owner(slot);
        let [from, target] = self
            .servers
            .get_disjoint_mut([from, to])
            .expect("a hash slot moves between two nodes");
        if from.move_keys(slot, target, KEYS_AT_ONCE) {
            self.hash_slots.moving.remove(&slot);
            self.hash_slots.moved.insert(slot, to);
            self.trace
                .record(self.now, format_args!("slot {slot} is at node {to}"));
        } else {
            self.schedule(self.now + pause, Event::MoveKeys { slot, to, pause });
        }
    }
}
