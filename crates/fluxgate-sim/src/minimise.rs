//! Cuts a plan that fails down to what it needs to fail.

use crate::plan::Plan;

/// Returns a smaller plan for which `fails` holds, as it does for `plan`: without any step, or
/// group of steps, that it does not need. Runs at most `most` plans.
pub(crate) fn minimise(plan: &Plan, most: usize, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut runs = 0;
    let mut attempt = |smaller: &Plan| {
        runs += 1;
        (runs <= most).then(|| fails(smaller))
    };
    // Nothing happens after what fails.
    let mut size = best.steps.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < best.steps.len() {
            let mut smaller = best.clone();
            let to = (from + size).min(best.steps.len());
            smaller.steps.drain(from..to);
            match attempt(&smaller) {
                Some(true) => best = smaller,
                Some(false) => from += size,
                None => return best,
            }
        }
        size /= 2;
    }
    for simpler in simplifications(&best) {
        let mut smaller = best.clone();
        simpler(&mut smaller);
        if smaller != best && attempt(&smaller) == Some(true) {
            best = smaller;
        }
    }
    best
}

/// Returns changes that make any plan easier to understand.
fn simplifications(plan: &Plan) -> Vec<fn(&mut Plan)> {
    let mut changes: Vec<fn(&mut Plan)> = vec![
        |plan| plan.near_cache = false,
        |plan| plan.max_waits = 0,
        |plan| plan.drift = 0,
        |plan| plan.network.late = 0,
        |plan| plan.network.slowest = plan.network.fastest,
        |plan| plan.deadline = 1_000_000,
    ];
    if plan.rules.len() == 1 {
        changes.push(|plan| {
            let last = plan.steps.last().map_or(0, |(at, _)| *at);
            plan.end = plan.end.min(last + 2_000_000);
        });
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_steps_that_are_needed_are_left() {
        let plan = Plan::from_seed(3);
        let needed = [plan.steps[2].clone(), plan.steps[9].clone()];
        let fails = |plan: &Plan| needed.iter().all(|step| plan.steps.contains(step));
        let small = minimise(&plan, 10_000, fails);
        assert_eq!(small.steps, needed);
        // A bound on the runs leaves a plan that still fails.
        assert!(fails(&minimise(&plan, 5, fails)));
    }
}
