//! Planted bugs: the simulator must find each.
//!
//! A bug replaces a part of the scripts' text. Some are bugs that an earlier release had.

use fluxgate_sim::explore::{Explorer, ScriptPatch};
use fluxgate_sim::plan::{Plan, Theme};

/// A bug.
struct Bug {
    name: &'static str,
    /// What plans try that can find it.
    theme: Theme,
    patch: ScriptPatch,
}

const fn bug(name: &'static str, theme: Theme, from: &'static str, to: &'static str) -> Bug {
    Bug {
        name,
        theme,
        patch: ScriptPatch { from, to },
    }
}

/// The most plans that may be needed.
const MOST_PLANS: u64 = 600;

const BUGS: [Bug; 11] = [
    bug(
        "a rule with a smaller limit erases what another has counted",
        Theme::RuleChanges,
        "  local is_queued = whole > now or part > 0\n",
        "  local is_queued = whole > now or part > 0\n  if whole - now > far then whole, part = now + far - cost, 0 end\n",
    ),
    bug(
        "a window with a smaller limit starts afresh",
        Theme::RuleChanges,
        "  local passes = current + cost <= capacity\n  if passes and cost > 0 then\n    charged, ends = window_state(tag, window, start, 0",
        "  if current > capacity then current = 0 end\n  local passes = current + cost <= capacity\n  if passes and cost > 0 then\n    charged, ends = window_state(tag, window, start, 0",
    ),
    bug(
        "a fraction of another refill is rounded down",
        Theme::RuleChanges,
        "  return whole + 1, 0\nend",
        "  return whole, 0\nend",
    ),
    bug(
        "a cancelled wait returns units that others are queued behind",
        Theme::Waits,
        "  local kept, kept_part = saturating_sub(refill, latest, part, mark, mark_part)\n  local refilled",
        "  local kept, kept_part = 0, 0\n  local refilled",
    ),
    bug(
        "the reservations of a bucket are forgotten",
        Theme::Waits,
        "      overhang = waits and AT_FULL or 0\n",
        "      overhang = 0\n",
    ),
    bug(
        "a wait may be longer than the queue",
        Theme::Waits,
        "  local passes = ahead < far or ahead == far and part <= far_part\n  if passes and cost + cost_part",
        "  local passes = ahead < far + 1000 or ahead == far and part <= far_part\n  if passes and cost + cost_part",
    ),
    bug(
        "there is one more permit to wait",
        Theme::Waits,
        "  if call('ZCARD', key) >= max then\n    return false",
        "  if call('ZCARD', key) > max then\n    return false",
    ),
    bug(
        "there is one more slot",
        Theme::Holds,
        "    local too_many, enough = held + cost - capacity, 0",
        "    local too_many, enough = held + cost - capacity - 1, 0",
    ),
    bug(
        "slots that were not expired are removed with those that were",
        Theme::Holds,
        "      call('ZREMRANGEBYRANK', key, 1, taking.ended)\n    end\n    state.extra",
        "      call('ZREMRANGEBYRANK', key, 1, taking.ended + 1)\n    end\n    state.extra",
    ),
    bug(
        "slots of a hold with several count as one",
        Theme::Holds,
        "    state.extra = state.extra - (taking.ended_slots - taking.ended) + cost - 1",
        "    state.extra = state.extra - (taking.ended_slots - taking.ended)",
    ),
    bug(
        "a hold can be settled twice",
        Theme::Holds,
        "  call('UNLINK', KEYS[k])\n  return 'S' .. table.concat(report)",
        "  return 'S' .. table.concat(report)",
    ),
];

/// Finds a bug. Returns the seed that shows it and how many plans it took.
fn find(bug: &Bug, first: u64) -> Option<(u64, u64)> {
    let mut explorer = Explorer::with_patches(&[bug.patch]);
    for number in 0..MOST_PLANS {
        let seed = first + number;
        let plan = Plan::draw(bug.theme, seed);
        if explorer.run(&plan).violation.is_some() {
            return Some((seed, number + 1));
        }
    }
    assert!(
        explorer.patches_apply(),
        "{}: no script has the text",
        bug.name
    );
    None
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "it prints how long each search took"
)]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for bug in &BUGS {
        let begin = std::time::Instant::now();
        match find(bug, 0) {
            Some((seed, plans)) => println!(
                "{:>6} plans {:>6} ms  seed {seed:>5}  {:?}: {}",
                plans,
                begin.elapsed().as_millis(),
                bug.theme,
                bug.name
            ),
            None => missed.push(bug.name),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
