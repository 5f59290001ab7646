//! A matcher that tries everything, and the requests and rules that it is compared on.

use std::net::IpAddr;

use fluxgate_core::RequestContext;
use fluxgate_core::path::RequestPath;

/// Matches segments one by one, `**` by trying every length.
pub(super) fn path_fits(pattern: &str, path: &str) -> bool {
    fn segments_fit(patterns: &[&str], segments: &[&str]) -> bool {
        match patterns {
            [] => segments.is_empty(),
            ["**", rest @ ..] => {
                (0..=segments.len()).any(|from| segments_fit(rest, &segments[from..]))
            }
            [first, rest @ ..] => segments.split_first().is_some_and(|(segment, segments)| {
                let (first, segment): (Vec<_>, Vec<_>) =
                    (first.chars().collect(), segment.chars().collect());
                segment_fits(&first, &segment) && segments_fit(rest, segments)
            }),
        }
    }
    fn segment_fits(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            ['{', .., '}'] => !text.is_empty(),
            [] => text.is_empty(),
            ['*', rest @ ..] => (0..=text.len()).any(|from| segment_fits(rest, &text[from..])),
            ['?', rest @ ..] => !text.is_empty() && segment_fits(rest, &text[1..]),
            [char, rest @ ..] => text.first() == Some(char) && segment_fits(rest, &text[1..]),
        }
    }
    let Some(path) = path.strip_prefix('/') else {
        return false;
    };
    let patterns: Vec<_> = pattern[1..].split('/').collect();
    segments_fit(&patterns, &path.split('/').collect::<Vec<_>>())
}

/// The conditions of a rule, for the model and as a rule.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) priority: i32,
    pub(super) paths: Vec<String>,
    pub(super) not_paths: Vec<String>,
    pub(super) methods: Vec<&'static str>,
    pub(super) headers: Vec<(usize, Wanted)>,
    pub(super) attributes: Vec<(usize, Wanted)>,
    pub(super) user: Option<Wanted>,
    pub(super) api_key: Option<Wanted>,
    pub(super) ips: Addresses,
    pub(super) not_ips: Addresses,
    pub(super) group: Option<u8>,
}

/// The values of a header or an attribute that match.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    OneOf(Vec<&'static str>),
    NoneOf(Vec<&'static str>),
    Present(bool),
    /// In one of [`LISTS`].
    In(usize),
    NotIn(usize),
}

/// Networks, or a list of them.
#[derive(Clone, Debug)]
pub(super) enum Addresses {
    Networks(Vec<usize>),
    /// One of [`NETWORK_LISTS`].
    List(usize),
}

/// The values of lists, each by its position in [`VALUES`].
pub(super) const LISTS: [&[usize]; 3] = [&[0], &[0, 1], &[2, 1]];

/// The networks of lists, each by its position in [`NETWORKS`].
pub(super) const NETWORK_LISTS: [&[usize]; 3] = [&[0, 3], &[1, 4], &[2, 1, 5]];

/// Returns all lists, as a rule set has them.
pub(super) fn lists() -> String {
    let values = LISTS.iter().enumerate().map(|(list, values)| {
        let values: Vec<_> = values.iter().map(|value| VALUES[*value]).collect();
        format!("v{list}: {values:?}")
    });
    let networks = NETWORK_LISTS.iter().enumerate().map(|(list, networks)| {
        let networks: Vec<_> = networks
            .iter()
            .map(|network| NETWORKS[*network].0)
            .collect();
        format!("n{list}: {networks:?}")
    });
    let lists: Vec<_> = values.chain(networks).collect();
    format!("{{ {} }}", lists.join(", "))
}

impl Wanted {
    fn yaml(&self) -> String {
        match self {
            Self::OneOf(values) if values.len() == 1 => format!("{:?}", values[0]),
            Self::OneOf(values) => format!("{values:?}"),
            Self::NoneOf(values) if values.len() == 1 => format!("{{ not: {:?} }}", values[0]),
            Self::NoneOf(values) => format!("{{ not: {values:?} }}"),
            Self::Present(present) => format!("{{ present: {present} }}"),
            Self::In(list) => format!("{{ in: v{list} }}"),
            Self::NotIn(list) => format!("{{ not_in: v{list} }}"),
        }
    }

    fn fits(&self, value: Option<&&'static str>) -> bool {
        match self {
            Self::OneOf(values) => value.is_some_and(|value| values.contains(value)),
            Self::NoneOf(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Present(present) => value.is_some() == *present,
            Self::In(list) => LISTS[*list].iter().any(|it| Some(&VALUES[*it]) == value),
            Self::NotIn(list) => LISTS[*list].iter().all(|it| Some(&VALUES[*it]) != value),
        }
    }
}

/// Networks, each with the addresses among [`ADDRESSES`] that it contains.
pub(super) const NETWORKS: [(&str, &[usize]); 6] = [
    ("10.0.0.0/8", &[0, 1]),
    ("10.1.0.0/16", &[1]),
    ("10.1.2.3", &[1]),
    ("192.0.2.0/31", &[2]),
    ("2001:db8::/32", &[3]),
    ("::/0", &[3, 4]),
];
pub(super) const ADDRESSES: [&str; 5] = [
    "10.0.0.1",
    "::ffff:10.1.2.3",
    "192.0.2.1",
    "2001:db8::1",
    "::1",
];

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) ip: Option<usize>,
    pub(super) path: Option<String>,
    /// Its normal form, if it has another.
    pub(super) normal: Option<String>,
    pub(super) method: Option<&'static str>,
    pub(super) headers: Vec<(usize, &'static str)>,
    pub(super) attributes: Vec<(usize, &'static str)>,
    pub(super) user: Option<&'static str>,
    pub(super) api_key: Option<&'static str>,
}

pub(super) const METHODS: [&str; 3] = ["GET", "get", "POST"];
pub(super) const VALUES: [&str; 3] = ["1", "2", ""];

impl Asked {
    pub(super) fn rule(&self, id: usize) -> String {
        let list = |name: &str, items: Vec<String>| {
            if items.is_empty() {
                String::new()
            } else {
                format!("{name}: [{}], ", items.join(", "))
            }
        };
        let quoted = |items: &[String]| items.iter().map(|item| format!("{item:?}")).collect();
        let pairs = |prefix: &str, pairs: &[(usize, Wanted)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| format!("{prefix}{name}: {}", value.yaml()))
                .collect();
            format!("{{ {} }}", pairs.join(", "))
        };
        let mut parts =
            list("path", quoted(&self.paths)) + &list("not_path", quoted(&self.not_paths));
        parts += &list(
            "methods",
            self.methods.iter().map(ToString::to_string).collect(),
        );
        parts += &format!("headers: {}, ", pairs("X-H", &self.headers));
        parts += &format!("attributes: {}, ", pairs("a", &self.attributes));
        for (name, wanted) in [("user", &self.user), ("api_key", &self.api_key)] {
            if let Some(wanted) = wanted {
                parts += &format!("{name}: {}, ", wanted.yaml());
            }
        }
        for (name, addresses) in [("ip", &self.ips), ("not_ip", &self.not_ips)] {
            parts += &match addresses {
                Addresses::Networks(chosen) => {
                    let chosen = chosen.iter();
                    let quoted = chosen.map(|network| format!("{:?}", NETWORKS[*network].0));
                    list(name, quoted.collect())
                }
                Addresses::List(list) => format!("{name}: {{ in: n{list} }}, "),
            };
        }
        let priority = self.priority;
        let group = self.group.map(|group| format!("group: g{group}, "));
        let group = group.unwrap_or_default();
        format!(
            "{{ id: r{id}, scope: global, {group}priority: {priority}, match: {{ {parts} }}, \
             bands: [{{ capacity: 1000, window: 1h }}] }}"
        )
    }

    pub(super) fn applies(&self, request: &Request) -> bool {
        let any_fits = |patterns: &[String], path: &String| {
            let mut patterns = patterns.iter();
            patterns.any(|pattern| path_fits(pattern, path))
        };
        let forms: Vec<_> = match &request.path {
            Some(path) => std::iter::once(path).chain(&request.normal).collect(),
            None => Vec::new(),
        };
        let normal = request.path.as_ref().and(request.normal.as_ref());
        let dropped = normal.and_then(|path| path.strip_suffix('/'));
        let dropped = dropped.filter(|path| !path.is_empty()).map(str::to_owned);
        let either = |patterns: &[String]| {
            let mut forms = forms.iter().copied().chain(&dropped);
            forms.any(|path| any_fits(patterns, path))
        };
        let both = |patterns: &[String]| {
            !forms.is_empty() && forms.iter().all(|path| any_fits(patterns, path))
        };
        // Of several headers with one name the first counts.
        fn value(pairs: &[(usize, &'static str)], name: usize) -> Option<&'static str> {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| *value)
        }
        let is_in = |addresses: &Addresses| {
            let mut networks = addresses.networks().iter();
            let ip = request.ip;
            ip.is_some_and(|ip| networks.any(|network| NETWORKS[*network].1.contains(&ip)))
        };
        let fits = |wanted: &Option<Wanted>, value: &Option<&'static str>| {
            wanted.as_ref().is_none_or(|it| it.fits(value.as_ref()))
        };
        (self.paths.is_empty() || either(&self.paths))
            && !both(&self.not_paths)
            && (self.methods.is_empty()
                || request
                    .method
                    .is_some_and(|method| self.methods.contains(&method)))
            && self
                .headers
                .iter()
                .all(|(name, wanted)| wanted.fits(value(&request.headers, *name).as_ref()))
            && self
                .attributes
                .iter()
                .all(|(name, wanted)| wanted.fits(value(&request.attributes, *name).as_ref()))
            && fits(&self.user, &request.user)
            && fits(&self.api_key, &request.api_key)
            && (self.ips.networks().is_empty() || is_in(&self.ips))
            && !is_in(&self.not_ips)
    }
}

impl Addresses {
    fn networks(&self) -> &[usize] {
        match self {
            Self::Networks(networks) => networks,
            Self::List(list) => NETWORK_LISTS[*list],
        }
    }
}

impl Request {
    pub(super) fn context(&self) -> RequestContext<'static> {
        let mut builder = RequestContext::builder();
        if let Some(path) = &self.path {
            let path = RequestPath::as_given(path.clone());
            builder = builder.request_path(match &self.normal {
                Some(normal) => path.with_normal(normal.clone()),
                None => path,
            });
        }
        if let Some(method) = self.method {
            builder = builder.method(method);
        }
        if let Some(ip) = self.ip {
            builder = builder.ip(ADDRESSES[ip].parse::<IpAddr>().unwrap());
        }
        if let Some(user) = self.user {
            builder = builder.user(user);
        }
        if let Some(api_key) = self.api_key {
            builder = builder.api_key(api_key);
        }
        for (name, value) in &self.headers {
            builder = builder.header(format!("x-h{name}"), *value);
        }
        for (name, value) in &self.attributes {
            builder = builder.attribute(format!("a{name}"), *value);
        }
        builder.build()
    }
}
