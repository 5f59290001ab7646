//! An nginx configuration with `limit_req` and `limit_conn`.
//!
//! A zone counts requests by a key; `limit_req` applies it to a server or a location, with a
//! burst of its own, and `limit_conn` with a number of requests in progress. Equal uses of one
//! zone become one rule. Each server becomes a rule set, because rules do not match hosts.

mod areas;
mod key;
mod limits;
mod listen;
mod maps;
mod parse;
mod proxy;
mod routes;
mod upstreams;

use std::collections::{HashMap, HashSet};

use fluxgate_core::OnMissingKey;
use fluxgate_core::yaml::{Fault, Faults};

use crate::draft::{Draft, Remark, RuleDraft, RuleSetDraft};
use crate::names::{UniqueNames, set_name};
use areas::{Area, Kind};
use limits::{UseKind, Zone, ZoneUse};
use maps::{Maps, ResolvedKey};
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
        maps: Maps::default(),
        areas: 0,
        has_include: false,
        used_zones: HashSet::new(),
    };
    reader.zones(&directives);
    let mut servers = Vec::new();
    reader.block(&directives, &InheritedLimits::default(), &mut servers);
    reader.remark_on_unused_zones();
    let mut sets = ServerSets::default();
    let mut set_names = HashMap::new();
    for server in &servers {
        let name = sets.add(server, reader.set(server));
        set_names.extend(name.map(|name| (server.line(), name)));
    }
    let mut sets = sets.all;
    let config = routes::read(&directives, &set_names);
    reader.remark_on_shared_zones(&mut sets);
    Ok(Draft {
        remarks: reader.remarks,
        sets,
        config,
    })
}

/// The limits that a block inherits from the block around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct InheritedLimits {
    requests: OwnLimits,
    connections: OwnLimits,
}

/// The limits of `limit_req`, or those of `limit_conn`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OwnLimits {
    limits: Vec<ZoneUse>,
    is_dry_run: bool,
}

impl InheritedLimits {
    fn is_empty(&self) -> bool {
        self.requests.limits.is_empty() && self.connections.limits.is_empty()
    }

    fn effective(&self) -> Vec<ZoneUse> {
        let all = [&self.requests, &self.connections].into_iter();
        let effective = all.flat_map(|own| {
            own.limits.iter().map(|limit| ZoneUse {
                is_dry_run: own.is_dry_run,
                ..limit.clone()
            })
        });
        effective.collect()
    }
}

impl OwnLimits {
    /// Returns limits of a block inside of this one, which has none of its own yet.
    fn inside(&self) -> Self {
        Self {
            limits: Vec::new(),
            is_dry_run: self.is_dry_run,
        }
    }

    /// Takes over the limits of the block around it, unless it has its own.
    fn inherit(&mut self, above: &Self) {
        if self.limits.is_empty() {
            self.limits.clone_from(&above.limits);
        }
    }
}

struct Reader<'r> {
    faults: &'r mut Faults,
    remarks: Vec<Remark>,
    zones: HashMap<String, Zone>,
    maps: Maps,
    areas: usize,
    has_include: bool,
    /// The names of zones that limits use.
    used_zones: HashSet<String>,
}

impl Reader<'_> {
    /// Reads the zones and the variables of their keys, which may be defined after their use.
    fn zones(&mut self, directives: &[Directive]) {
        for directive in directives {
            if directive.name == "include" {
                self.has_include = true;
            }
            if matches!(directive.name.as_str(), "geo" | "map") {
                self.maps.add(directive);
                continue;
            }
            if directive.name == "stream" {
                self.remark_on_streams(directive);
                continue;
            }
            let zone = match directive.name.as_str() {
                "limit_req_zone" => limits::zone(directive, self.faults),
                "limit_conn_zone" => limits::connection_zone(directive, self.faults),
                _ => None,
            };
            if let Some(zone) = zone {
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
        let has_limits = !own.is_empty() && above.is_empty();
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
                if own != *above {
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

    /// Reads the limits of a block. Its own limits replace all of the block around it that are
    /// of their kind.
    fn inherit(&mut self, directives: &[Directive], above: &InheritedLimits) -> InheritedLimits {
        let mut own = InheritedLimits {
            requests: above.requests.inside(),
            connections: above.connections.inside(),
        };
        for directive in directives {
            match directive.name.as_str() {
                "limit_req" => {
                    let limit = limits::zone_use(directive, self.faults);
                    own.requests.limits.extend(self.known(limit, directive));
                }
                "limit_conn" => {
                    let limit = limits::connections(directive, self.faults);
                    own.connections.limits.extend(self.known(limit, directive));
                }
                "limit_req_dry_run" => self.dry_run(directive, &mut own.requests),
                "limit_conn_dry_run" => self.dry_run(directive, &mut own.connections),
                _ => self.remark_on(directive),
            }
        }
        own.requests.inherit(&above.requests);
        own.connections.inherit(&above.connections);
        own
    }

    /// Returns a limit if its zone is known.
    fn known(&mut self, limit: Option<ZoneUse>, directive: &Directive) -> Option<ZoneUse> {
        let limit = limit?;
        let zone = self.zones.get(&limit.zone);
        let limits_requests = matches!(limit.kind, UseKind::Requests { .. });
        if zone.is_some_and(|zone| zone.rate.is_some() == limits_requests) {
            self.used_zones.insert(limit.zone.clone());
            return Some(limit);
        }
        if zone.is_none() && self.has_include {
            let text = format!("`{}`: its zone is not in this file", directive.text());
            self.remarks.push(Remark::lost(directive.line(), text));
        } else if let Some(zone) = zone {
            let text = format!(
                "zone `{}` on line {} is of another kind",
                zone.name, zone.line
            );
            self.faults.add(directive.position, text);
        } else {
            let text = format!("zone `{}` is not defined", limit.zone);
            self.faults.add(directive.position, text);
        }
        None
    }

    fn remark_on_unused_zones(&mut self) {
        let zones = self.zones.values();
        let mut unused: Vec<_> = zones
            .filter(|zone| !self.used_zones.contains(&zone.name))
            .map(|zone| (zone.line, &zone.name))
            .collect();
        unused.sort_unstable();
        for (line, name) in unused {
            let text = format!("zone `{name}`: no limit in this file uses it");
            self.remarks.push(Remark::lost(line, text));
        }
    }

    /// Adds a remark on the limits of TCP and UDP.
    fn remark_on_streams(&mut self, directive: &Directive) {
        if directive.contains("limit_conn") {
            let text = "the limits of `stream`: rules limit requests";
            self.remarks.push(Remark::lost(directive.line(), text));
        }
    }

    fn dry_run(&mut self, directive: &Directive, own: &mut OwnLimits) {
        match directive.argument(0) {
            "on" => own.is_dry_run = true,
            "off" => own.is_dry_run = false,
            other => {
                let text = format!("`{}` must be on or off, not `{other}`", directive.name);
                self.faults.add(directive.position, text);
            }
        }
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
            "limit_rate" | "limit_rate_after" => format!("`{text}`: it limits bandwidth"),
            "limit_zone" => format!("`{text}`: write it as `limit_conn_zone`"),
            "set_real_ip_from" | "real_ip_header" | "real_ip_recursive" => {
                format!("`{text}`: see `trusted_proxies` and `client_ip` of the filter")
            }
            "limit_req_log_level" | "limit_conn_log_level" => format!("`{text}`"),
            "limit_req_status" | "limit_conn_status" if directive.argument(0) != "429" => {
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
        let resolved = self.maps.resolve(&zone.key);
        let ResolvedKey {
            key,
            addresses,
            falls_back_to_address,
        } = resolved.unwrap_or_else(|| ResolvedKey::plain(&zone.key));
        let mut key = match key::convert(&key, zone.line) {
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
        if falls_back_to_address {
            key.on_missing_key = OnMissingKey::Ip;
        }
        let coverage = areas::coverage(&server.areas, limit);
        for (line, location) in &coverage.missed {
            let text = format!("the limit of `{location}`: no path pattern matches the same paths");
            self.remarks.push(Remark::lost(*line, text));
        }
        let covers_server = server.areas[0].limits.contains(limit);
        if !covers_server && coverage.path.is_empty() {
            return None;
        }
        let mut rule = limits::rule(ids.unique_id(&zone.name), zone, limit)?;
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
    /// Adds the set of a server, unless it has no rules, and returns its name. Servers with the same name and limits,
    /// such as those for HTTP and HTTPS, share one set, because nginx counts their requests
    /// together.
    fn add(&mut self, server: &Server, mut set: RuleSetDraft) -> Option<String> {
        if set.rules.is_empty() {
            return None;
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
            return Some(self.all[index].name.clone());
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
        let name = set.name.clone();
        self.all.push(set);
        Some(name)
    }
}
