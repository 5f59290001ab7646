//! No property of a source is dropped silently: each changes the rules or the config, has a
//! comment, or is an error.

mod bucket4j;
mod envoy_ratelimit;
mod kong;
mod nginx;
mod openfluxgate;
mod spring_cloud_gateway;

use fluxgate_import::{Format, ImportError, Output, import};

/// A configuration with places such as `@PLUGIN@`, and what may stand at each.
struct Sample {
    format: Format,
    outputs: &'static [Output],
    text: &'static str,
    places: &'static [(&'static str, &'static [&'static str])],
}

const RULES: &[Output] = &[Output::Rules];
const CONFIG: &[Output] = &[Output::Config];
const BOTH: &[Output] = &[Output::Rules, Output::Config];

/// The rules alone name what only a config has.
const NOT_IN_RULES: &str = "routes, filters and the store: `--config` writes them, too";

#[test]
fn each_property_has_an_effect_or_a_comment() {
    for sample in [
        kong::SAMPLE,
        envoy_ratelimit::SAMPLE,
        bucket4j::SAMPLE,
        openfluxgate::SAMPLE,
        spring_cloud_gateway::LIMITS,
        spring_cloud_gateway::ROUTES,
        nginx::LIMITS,
        nginx::ROUTES,
    ] {
        for output in sample.outputs {
            sample.check(*output);
        }
    }
}

#[test]
fn rules_without_their_config_say_so() {
    for (format, text) in [
        (Format::SpringCloudGateway, spring_cloud_gateway::TEXT),
        (Format::Nginx, nginx::TEXT),
    ] {
        let text = without_places(text);
        let rules = imported(format, &text, Output::Rules).unwrap();
        assert!(rules.contains(NOT_IN_RULES), "{rules}");
        let config = imported(format, &text, Output::Config).unwrap();
        assert!(!config.contains(NOT_IN_RULES), "{config}");
    }
}

impl Sample {
    fn check(&self, output: Output) {
        let plain = imported(self.format, &without_places(self.text), output).unwrap();
        for (place, properties) in self.places {
            assert!(self.text.contains(place), "{place}");
            for property in *properties {
                let text = without_places(&self.text.replace(place, property));
                match imported(self.format, &text, output) {
                    Ok(found) => assert_ne!(
                        found, plain,
                        "{:?}: `{property}` at {place} is dropped silently",
                        self.format
                    ),
                    Err(ImportError::Unusable(error)) => panic!("{property}: {error}"),
                    // The sample itself must be readable.
                    Err(error) => {
                        let error = error.to_string();
                        assert!(!error.contains("not valid YAML"), "{property}: {error}");
                    }
                }
            }
        }
    }
}

/// Returns the result for a text, without the lines in its comments: a property moves what
/// follows it.
fn imported(format: Format, text: &str, output: Output) -> Result<String, ImportError> {
    let found = import(format, "source", text, output)?.text;
    let lines = found.lines().map(|line| match line.split_once(" (line ") {
        Some((comment, _)) => comment,
        None => line,
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Removes the places at which nothing stands.
fn without_places(text: &str) -> String {
    let mut rest = text;
    let mut result = String::new();
    while let Some(start) = rest.find('@') {
        let name = &rest[start + 1..];
        let letters = name.bytes().take_while(u8::is_ascii_uppercase).count();
        if letters > 0 && name[letters..].starts_with('@') {
            result.push_str(&rest[..start]);
            rest = &name[letters + 1..];
        } else {
            result.push_str(&rest[..=start]);
            rest = name;
        }
    }
    result + rest
}
