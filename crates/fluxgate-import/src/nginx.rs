//! An nginx configuration with `limit_req`.
//!
//! A zone counts requests by a key; `limit_req` applies it to a server or a location, with a
//! burst of its own. Uses of one zone with the same burst become one rule. Each server becomes
//! a rule set, because rules do not match hosts.

mod areas;
mod key;
mod limits;
mod parse;

use std::collections::{HashMap, HashSet};

use fluxgate_core::yaml::{Fault, Faults};

use crate::draft::{Draft, Remark, RuleDraft, RuleSetDraft};
use crate::names::{UniqueNames, set_name};
use areas::{Area, Kind};
use key::{ExemptingKey, Exemptions};
use limits::{Zone, ZoneUse};
use parse::Directive;

/// The most servers and locations of a configuration.
const MAX_AREAS: usize = 2_000;

/// Reads a configuration.
pub(crate) fn read(text: &str, faults: &mut Faults) -> Result<Draft, Fault> {
    let directives = parse::parse(text)?;
    let mut reader = Reader {
        faults,
        remarks: Vec::new(),
        zones: HashMap::new(),
        exemptions: Exemptions::default(),
        areas: 0,
        has_include: false,
    };
    reader.zones(&directives);
    let mut servers = Vec::new();
    reader.block(&directives, &InheritedLimits::default(), &mut servers);
    let mut sets = ServerSets::default();
    for server in &servers {
        sets.add(server, reader.set(server));
    }
    let mut sets = sets.all;
    reader.remark_on_shared_zones(&mut sets);
    Ok(Draft {
        remarks: reader.remarks,
        sets,
    })
}

/// The limits that a block inherits from the block around it.
#[derive(Clone, Debug, Default)]
struct InheritedLimits {
    /// The limits, with the lines of their directives.
    limits: Vec<(ZoneUse, usize)>,
    is_dry_run: bool,
}

impl InheritedLimits {
    fn effective(&self) -> Vec<ZoneUse> {
        let limits = self.limits.iter().map(|(limit, _)| ZoneUse {
            is_dry_run: self.is_dry_run,
            ..limit.clone()
        });
        limits.collect()
    }
}

struct Reader<'r> {
    faults: &'r mut Faults,
    remarks: Vec<Remark>,
    zones: HashMap<String, Zone>,
    exemptions: Exemptions,
    areas: usize,
    has_include: bool,
}

impl Reader<'_> {
    /// Reads the zones and the variables of their keys, which may be defined after their use.
    fn zones(&mut self, directives: &[Directive]) {
        for directive in directives {
            if directive.name == "include" {
                self.has_include = true;
            }
            if matches!(directive.name.as_str(), "geo" | "map") {
                self.exemptions.add(directive);
                continue;
            }
            if directive.name == "limit_req_zone"
                && let Some(zone) = limits::zone(directive, self.faults)
            {
                if let Some(first) = self.zones.get(&zone.name) {
                    let text = format!("zone `{}` is already on line {}", zone.name, first.line);
                    self.faults.add(directive.position, text);
                }
                self.zones.entry(zone.name.clone()).or_insert(zone);
            }
            self.zones(&directive.block);
        }
    }

    /// Reads the directives of the main or the `http` block.
    fn block(
        &mut self,
        directives: &[Directive],
        above: &InheritedLimits,
        servers: &mut Vec<Server>,
    ) {
        let own = self.inherit(directives, above);
        let mut has_blocks = false;
        for directive in directives {
            match directive.name.as_str() {
                "http" => {
                    has_blocks = true;
                    self.block(&directive.block, &own, servers);
                }
                "server" => {
                    has_blocks = true;
                    let server = self.server(directive, &own);
                    servers.push(server);
                }
                _ => {}
            }
        }
        // A part of a configuration, which another file includes.
        let locations = directives.iter().filter(|it| it.name == "location");
        let has_limits = !own.limits.is_empty() && above.limits.is_empty();
        if !has_blocks && (has_limits || locations.count() > 0) {
            let mut areas = vec![Area::server(1, own.effective())];
            self.locations(directives, &own, false, &mut areas);
            servers.push(Server {
                name: "nginx".into(),
                aliases: Vec::new(),
                areas,
            });
        }
    }

    fn server(&mut self, directive: &Directive, above: &InheritedLimits) -> Server {
        let own = self.inherit(&directive.block, above);
        let mut areas = vec![Area::server(directive.line(), own.effective())];
        self.locations(&directive.block, &own, false, &mut areas);
        let mut names = directive
            .block
            .iter()
            .filter(|directive| directive.name == "server_name")
            .flat_map(|directive| &directive.arguments)
            .filter(|word| !matches!(word.text.as_str(), "_" | ""));
        Server {
            name: names
                .next()
                .map_or("nginx".into(), |word| set_name(&word.text)),
            aliases: names.map(|word| format!("`{}`", word.text)).collect(),
            areas,
        }
    }

    /// Adds the locations of a server or, with `is_nested`, of another location.
    fn locations(
        &mut self,
        directives: &[Directive],
        above: &InheritedLimits,
        is_nested: bool,
        areas: &mut Vec<Area>,
    ) {
        for directive in directives.iter().filter(|it| it.name == "location") {
            self.areas += 1;
            if self.areas > MAX_AREAS {
                if self.areas == MAX_AREAS + 1 {
                    let text = format!("there are more than {MAX_AREAS} locations");
                    self.faults.add(directive.position, text);
                }
                return;
            }
            let own = self.inherit(&directive.block, above);
            let arguments: Vec<_> = directive
                .arguments
                .iter()
                .map(|it| it.text.as_str())
                .collect();
            // A named location.
            if directive.argument(0).starts_with('@') {
                // Requests come here from another location, which has counted them.
                if own.limits != above.limits {
                    let text = format!("the limits of `{}`", directive.text());
                    self.remarks.push(Remark::lost(directive.line(), text));
                }
                continue;
            }
            match Area::location(directive.line(), &arguments, own.effective()) {
                Some(area) if is_nested && area.kind == Kind::Regex => {
                    // Its patterns would match outside the location around it, too.
                    if area.limits != above.effective() {
                        areas.push(area.without_patterns());
                    }
                }
                Some(area) => areas.push(area),
                None => {
                    let text = "a location needs a path, after an optional =, ~, ~* or ^~";
                    self.faults.add(directive.position, text);
                }
            }
            self.locations(&directive.block, &own, true, areas);
        }
    }

    /// Reads the limits of a block. Its own limits replace all of the block around it.
    fn inherit(&mut self, directives: &[Directive], above: &InheritedLimits) -> InheritedLimits {
        let mut own = InheritedLimits {
            limits: Vec::new(),
            is_dry_run: above.is_dry_run,
        };
        for directive in directives {
            let line = directive.line();
            match directive.name.as_str() {
                "limit_req" => {
                    let limit = limits::zone_use(directive, self.faults);
                    let Some(limit) = limit else { continue };
                    if self.zones.contains_key(&limit.zone) {
                        own.limits.push((limit, line));
                    } else if self.has_include {
                        let text = format!("`{}`: its zone is not in this file", directive.text());
                        self.remarks.push(Remark::lost(line, text));
                    } else {
                        let text = format!("zone `{}` is not defined", limit.zone);
                        self.faults.add(directive.position, text);
                    }
                }
                "limit_req_dry_run" => match directive.argument(0) {
                    "on" => own.is_dry_run = true,
                    "off" => own.is_dry_run = false,
                    other => {
                        let text = format!("`limit_req_dry_run` must be on or off, not `{other}`");
                        self.faults.add(directive.position, text);
                    }
                },
                _ => self.remark_on(directive),
            }
        }
        if own.limits.is_empty() {
            own.limits.clone_from(&above.limits);
        }
        own
    }

    /// Adds a remark on a directive that has no counterpart.
    fn remark_on(&mut self, directive: &Directive) {
        // They set parameters and types.
        const HARMLESS: &str = "mime.types fastcgi_params fastcgi.conf proxy_params \
            uwsgi_params scgi_params";
        let text = directive.text();
        let text = match directive.name.as_str() {
            "include" => {
                let file = directive.argument(0).rsplit('/').next().unwrap_or_default();
                if HARMLESS.split(' ').any(|it| it == file) {
                    return;
                }
                format!("`{text}`: the file is not read")
            }
            "limit_conn" | "limit_conn_zone" => format!("`{text}`: it limits connections"),
            "limit_conn_status" | "limit_conn_dry_run" | "limit_conn_log_level" => {
                format!("`{text}`")
            }
            "limit_rate" | "limit_rate_after" => format!("`{text}`: it limits bandwidth"),
            "limit_req_log_level" => format!("`{text}`"),
            "limit_req_status" if directive.argument(0) != "429" => {
                format!("`{text}`: a denied request is answered with 429")
            }
            _ => return,
        };
        self.remarks.push(Remark::lost(directive.line(), text));
    }

    /// Returns the rule set of a server.
    fn set(&mut self, server: &Server) -> RuleSetDraft {
        let mut set = RuleSetDraft {
            name: server.name.clone(),
            ..RuleSetDraft::default()
        };
        let mut ids = UniqueNames::default();
        let mut seen = HashSet::new();
        for limit in server.areas.iter().flat_map(|area| &area.limits) {
            if seen.insert(limit) {
                set.rules.extend(self.rule(server, limit, &mut ids));
            }
        }
        set
    }

    fn rule(
        &mut self,
        server: &Server,
        limit: &ZoneUse,
        ids: &mut UniqueNames,
    ) -> Option<RuleDraft> {
        let zone = self.zones.get(&limit.zone)?;
        let exempting = self.exemptions.resolve(&zone.key);
        let ExemptingKey { key, addresses } = exempting.unwrap_or_else(|| ExemptingKey {
            key: zone.key.clone(),
            addresses: Vec::new(),
        });
        let key = match key::convert(&key, zone.line) {
            Ok(key) => key,
            Err(variable) => {
                let text = format!("zone `{}`: rules cannot count by {variable}", zone.name);
                let remark = Remark::lost(zone.line, text);
                if !self.remarks.contains(&remark) {
                    self.remarks.push(remark);
                }
                return None;
            }
        };
        let coverage = areas::coverage(&server.areas, limit);
        for (line, location) in &coverage.missed {
            let text = format!("the limit of `{location}`: no path pattern matches the same paths");
            self.remarks.push(Remark::lost(*line, text));
        }
        let covers_server = server.areas[0].limits.contains(limit);
        if !covers_server && coverage.path.is_empty() {
            return None;
        }
        let mut rule = limits::rule(ids.unique_id(&zone.name), zone, limit);
        rule.name = Some(zone.name.clone());
        rule.remarks.extend(key.remarks);
        for (line, location) in &coverage.extra {
            let text = format!("the requests of `{location}` count here too");
            rule.remarks.push(Remark::changed(*line, text));
        }
        for (line, location) in &coverage.approximate {
            let text = format!("the path patterns only resemble `{location}`");
            rule.remarks.push(Remark::changed(*line, text));
        }
        rule.conditions.path = coverage.path;
        rule.conditions.not_path = coverage.not_path;
        rule.conditions.not_ip = addresses;
        rule.key = key.parts;
        rule.on_missing_key = key.on_missing_key;
        Some(rule)
    }

    /// Adds a remark to rules of one zone, which share a counter in nginx only. Until now, the
    /// name of each rule is that of its zone.
    fn remark_on_shared_zones(&self, sets: &mut [RuleSetDraft]) {
        let mut uses: HashMap<_, Vec<_>> = HashMap::new();
        for set in &*sets {
            for rule in &set.rules {
                let place = format!("{}/{}", set.name, rule.id);
                uses.entry(rule.name.clone()).or_default().push(place);
            }
        }
        for set in sets {
            for rule in &mut set.rules {
                let place = format!("{}/{}", set.name, rule.id);
                let others = uses.get(&rule.name).into_iter().flatten();
                let others: Vec<_> = others.filter(|it| **it != place).cloned().collect();
                let zone = rule.name.take().unwrap_or_default();
                if !others.is_empty() {
                    let others = others.join(", ");
                    let text = format!(
                        "zone `{zone}` is one counter in nginx; {others} and this rule have their own"
                    );
                    let line = self.zones.get(&zone).map_or(1, |zone| zone.line);
                    rule.remarks.push(Remark::changed(line, text));
                }
            }
        }
    }
}

/// A server.
#[derive(Debug)]
struct Server {
    name: String,
    /// Its other names.
    aliases: Vec<String>,
    /// The server outside of its locations, then its locations.
    areas: Vec<Area>,
}

impl Server {
    fn line(&self) -> usize {
        self.areas[0].line
    }
}

/// The rule sets of all servers. Servers may have the same name.
#[derive(Debug, Default)]
struct ServerSets {
    all: Vec<RuleSetDraft>,
    names: UniqueNames,
    /// The sets of each server name.
    by_server: HashMap<String, Vec<usize>>,
}

impl ServerSets {
    /// Adds the set of a server, unless it has no rules. Servers with the same name and limits,
    /// such as those for HTTP and HTTPS, share one set, because nginx counts their requests
    /// together.
    fn add(&mut self, server: &Server, mut set: RuleSetDraft) {
        if set.rules.is_empty() {
            return;
        }
        let remark = (!server.aliases.is_empty()).then(|| {
            let names = server.aliases.join(", ");
            let text = format!("the server is also named {names}: use this set for all its names");
            Remark::changed(server.line(), text)
        });
        let same_name = self.by_server.entry(server.name.clone()).or_default();
        let same = same_name
            .iter()
            .find(|&&index| self.all[index].decides_like(&set));
        if let Some(&index) = same {
            let remarks = &mut self.all[index].remarks;
            let is_known = |new: &Remark| remarks.iter().any(|known| known.text == new.text);
            let new = remark.filter(|remark| !is_known(remark));
            remarks.extend(new);
            return;
        }
        set.remarks.extend(remark);
        if let Some(&first) = same_name.first() {
            let text = format!(
                "another server has the same name and other limits, see `{}`",
                self.all[first].name
            );
            set.remarks.push(Remark::changed(server.line(), text));
        }
        set.name = self.names.unique(&server.name);
        same_name.push(self.all.len());
        self.all.push(set);
    }
}
