//! The upstreams of a route.

use std::path::PathBuf;

use fluxgate_core::yaml::{Faults, Node, Value};
use fluxgate_gateway::{UpstreamScheme, UpstreamTarget};

use crate::config::section::Section;
use crate::config::tree;
use crate::config::url::parse_upstream;

/// The largest weight of an upstream.
const MAX_WEIGHT: u32 = 100;

/// A server that a route forwards requests to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Where it is. The authorities of its certificate are not read yet.
    pub target: UpstreamTarget,
    /// Its share of the requests, in proportion to those of the other upstreams.
    pub weight: u32,
    /// The file with the authorities of its certificate, if they are not those of the system.
    pub ca: Option<PathBuf>,
}

/// Reads the list under `upstreams`.
pub(super) fn read(route: &mut Section<'_, '_>) -> Vec<Upstream> {
    let (mut upstreams, mut shown) = (Vec::new(), Vec::new());
    for node in route.list("upstreams") {
        if let Some((upstream, node)) = read_one(node, route.faults) {
            upstreams.push(upstream);
            shown.push(node);
        }
    }
    route.show("upstreams", tree::list(shown));
    upstreams
}

/// Reads a URL, or a mapping with one.
fn read_one(node: &Node, faults: &mut Faults) -> Option<(Upstream, Node)> {
    if !matches!(node.value, Value::Map(_)) {
        let text = node.text("an upstream", faults)?;
        return match parse_upstream(text) {
            Ok(target) => {
                let shown = tree::text(target.to_string());
                let (weight, ca) = (1, None);
                Some((Upstream { target, weight, ca }, shown))
            }
            Err(why) => {
                faults.add(node.position, format!("an upstream {why}"));
                None
            }
        };
    }
    let mut section = Section::read(node, "an upstream", &["url", "weight", "ca"], faults);
    if section.get("url").is_none() {
        section.missing("an upstream needs a `url`");
    }
    let target = section.parsed("url", parse_upstream);
    let weight = section.whole("weight", 1..=MAX_WEIGHT, 1);
    let ca = section.path("ca");
    if let Some((target, node)) = target.as_ref().zip(section.get("ca"))
        && !is_https(target)
    {
        section.fault(node, "`ca` is only for https");
    }
    let upstream = target.map(|target| Upstream { target, weight, ca });
    let shown = section.into_node();
    upstream.map(|upstream| (upstream, shown))
}

fn is_https(target: &UpstreamTarget) -> bool {
    let UpstreamTarget::Http { scheme, .. } = target else {
        return false;
    };
    *scheme == UpstreamScheme::Https
}
