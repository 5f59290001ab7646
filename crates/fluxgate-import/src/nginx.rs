//! An nginx configuration with `limit_req`.
//!
//! A zone counts requests by a key; `limit_req` applies it to a server or a location, with a
//! burst of its own. Uses of one zone with the same burst become one rule. Each server becomes
//! a rule set, because rules do not match hosts.

mod areas;
mod exemptions;
mod key;
mod limits;
mod parse;
mod servers;

use std::collections::{HashMap, HashSet};

use fluxgate_core::internals::yaml::Faults;

use super::draft::{Draft, Remark, Rule, Set};
use super::names::{Ids, set_name};
use areas::{Area, Kind};
use exemptions::{ExemptingKey, Exemptions};
use limits::{Limit, Zone};
use parse::Directive;
use servers::{Server, ServerSets};

/// The most servers and locations of a configuration.
const MAX_AREAS: usize = 2_000;

/// Reads a configuration.
pub(super) fn read(text: &str, faults: &mut Faults) -> Draft {
    let directives = match parse::parse(text) {
        Ok(directives) => directives,
        Err(fault) => return super::unreadable(fault, faults),
    };
    let mut reader = Reader {
        faults,
        remarks: Vec::new(),
        zones: HashMap::new(),
        exemptions: Exemptions::default(),
        areas: 0,
        uses: HashMap::new(),
        has_include: false,
    };
    reader.zones(&directives);
    let mut servers = Vec::new();
    reader.block(&directives, &Inherited::default(), &mut servers);
    let mut sets = ServerSets::default();
    for server in &servers {
        let set = reader.set(server);
        if let Some(set) = sets.add(server, set) {
            reader.record_uses(set);
        }
    }
    let mut sets = sets.all;
    reader.shared_zones(&mut sets);
    Draft {
        remarks: reader.remarks,
        sets,
    }
}

/// What a block takes over from the one around it.
#[derive(Clone, Debug, Default)]
struct Inherited {
    /// The limits, with the lines of their directives.
    limits: Vec<(Limit, usize)>,
    is_dry_run: bool,
}

impl Inherited {
    fn effective(&self) -> Vec<Limit> {
        let limits = self.limits.iter().map(|(limit, _)| Limit {
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
    /// The rules of each zone, by the names of set and rule.
    uses: HashMap<String, Vec<(String, String)>>,
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
    fn block(&mut self, directives: &[Directive], above: &Inherited, servers: &mut Vec<Server>) {
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

    fn server(&mut self, directive: &Directive, above: &Inherited) -> Server {
        let own = self.inherit(&directive.block, above);
        let mut areas = vec![Area::server(directive.line(), own.effective())];
        self.locations(&directive.block, &own, false, &mut areas);
        let names = directive.block.iter().filter(|it| it.name == "server_name");
        let names = names.flat_map(|it| &it.arguments);
        let mut names = names.filter(|word| !matches!(word.text.as_str(), "_" | ""));
        let name = names.next();
        Server {
            name: name.map_or("nginx".into(), |word| set_name(&word.text)),
            aliases: names.map(|word| format!("`{}`", word.text)).collect(),
            areas,
        }
    }

    /// Adds the locations of a server or, with `is_nested`, of another location.
    fn locations(
        &mut self,
        directives: &[Directive],
        above: &Inherited,
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
            let is_named = directive.argument(0).starts_with('@');
            if is_named {
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
    fn inherit(&mut self, directives: &[Directive], above: &Inherited) -> Inherited {
        let mut own = Inherited {
            limits: Vec::new(),
            is_dry_run: above.is_dry_run,
        };
        for directive in directives {
            let line = directive.line();
            match directive.name.as_str() {
                "limit_req" => {
                    let limit = limits::limit(directive, self.faults);
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
        const HARMLESS: [&str; 6] = [
            "mime.types",
            "fastcgi_params",
            "fastcgi.conf",
            "proxy_params",
            "uwsgi_params",
            "scgi_params",
        ];
        let text = directive.text();
        let text = match directive.name.as_str() {
            "include" => {
                let file = directive.argument(0).rsplit('/').next().unwrap_or_default();
                if HARMLESS.contains(&file) {
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
    fn set(&mut self, server: &Server) -> Set {
        let mut set = Set {
            name: server.name.clone(),
            ..Set::default()
        };
        let mut ids = Ids::default();
        let mut seen = HashSet::new();
        for limit in server.areas.iter().flat_map(|area| &area.limits) {
            if seen.insert(limit) {
                set.rules.extend(self.rule(server, limit, &mut ids));
            }
        }
        set
    }

    /// Records which rules count in which zone. Until then a rule has the name of its zone.
    fn record_uses(&mut self, set: &Set) {
        for rule in &set.rules {
            let zone = rule.name.clone().unwrap_or_default();
            let place = (set.name.clone(), rule.id.clone());
            self.uses.entry(zone).or_default().push(place);
        }
    }

    fn rule(&mut self, server: &Server, limit: &Limit, ids: &mut Ids) -> Option<Rule> {
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
        let mut rule = limits::rule(ids.unique(&zone.name), zone, limit);
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
        rule.matches.path = coverage.path;
        rule.matches.not_path = coverage.not_path;
        rule.matches.not_ip = addresses;
        rule.key = key.parts;
        rule.on_missing_key = key.on_missing_key;
        Some(rule)
    }

    /// Adds a remark to rules of one zone, which share a counter in nginx only.
    fn shared_zones(&mut self, sets: &mut [Set]) {
        for set in sets {
            for rule in &mut set.rules {
                let zone = rule.name.take().unwrap_or_default();
                let places = self.uses.get(&zone).map_or(&[][..], Vec::as_slice);
                let others = places
                    .iter()
                    .filter(|(name, id)| (name, id) != (&set.name, &rule.id));
                let others: Vec<_> = others.map(|(name, id)| format!("{name}/{id}")).collect();
                if !others.is_empty() {
                    let text = format!(
                        "zone `{zone}` is one counter in nginx; {} and this rule have their own",
                        others.join(", ")
                    );
                    let line = self.zones.get(&zone).map_or(1, |zone| zone.line);
                    rule.remarks.push(Remark::changed(line, text));
                }
            }
        }
    }
}
