//! Plans as JSON, with a line for each step: a plan that failed is printed and kept as a file.

use std::fmt;
use std::str::FromStr;

use super::Plan;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        // A line for each rule set and step. No rule has these letters in its text.
        let text = text.replace("\"rules\":[", "\n\"rules\":[\n  ");
        let text = text.replace("\"steps\":[", "\n\"steps\":[\n  ");
        let text = text
            .replace("}],[", "}],\n  [")
            .replace("\",\"{", "\",\n  \"{");
        f.write_str(&text)
    }
}

impl FromStr for Plan {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_as_it_was_written() {
        for seed in 0..200 {
            let plan = Plan::from_seed(seed);
            let text = plan.to_string();
            assert_eq!(text.parse::<Plan>().unwrap(), plan, "{text}");
            assert!(text.lines().count() >= plan.steps.len(), "{text}");
        }
    }
}
