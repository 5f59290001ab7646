//! Planted bugs: the simulator must find each.
//!
//! A bug replaces a part of the scripts' text. Some are bugs that an earlier release had.

use fluxgate_sim::explore::{Explorer, ScriptPatch};
use fluxgate_sim::plan::{Plan, Theme};

use super::is_long;

/// A bug.
struct Bug {
    name: &'static str,
    /// What plans try that can find it.
    theme: Theme,
    /// The first seed whose plan finds it.
    seed: u64,
    patch: ScriptPatch,
}

const fn bug(
    name: &'static str,
    (theme, seed): (Theme, u64),
    from: &'static str,
    to: &'static str,
) -> Bug {
    Bug {
        name,
        theme,
        seed,
        patch: ScriptPatch { from, to },
    }
}

/// The most plans that are tried.
const MOST_PLANS: u64 = 2_000;

const BUGS: [Bug; 21] = [
    bug(
        "a rule with a smaller limit erases what another has counted",
        (Theme::RuleChanges, 10),
        "  local is_queued = whole > now or part > 0\n",
        "  local is_queued = whole > now or part > 0\n  if whole - now > far then whole, part = now + far - cost, 0 end\n",
    ),
    bug(
        "a window with a smaller limit starts afresh",
        (Theme::RuleChanges, 29),
        "  local passes = current + cost <= capacity\n  if passes and cost > 0 then\n    charged, ends = window_state(tag, window, start, 0",
        "  if current > capacity then current = 0 end\n  local passes = current + cost <= capacity\n  if passes and cost > 0 then\n    charged, ends = window_state(tag, window, start, 0",
    ),
    bug(
        "a fraction of another refill is rounded down",
        (Theme::RuleChanges, 27),
        "  return whole + 1, 0\nend",
        "  return whole, 0\nend",
    ),
    bug(
        "a cancelled wait returns units that others are queued behind",
        (Theme::Waits, 33),
        "  local kept, kept_part = saturating_sub(refill, latest, part, mark, mark_part)\n  local refilled",
        "  local kept, kept_part = 0, 0\n  local refilled",
    ),
    bug(
        "there is one more permit to wait",
        (Theme::Waits, 1),
        "  if call('ZCARD', key) >= max then\n    return false",
        "  if call('ZCARD', key) > max then\n    return false",
    ),
    bug(
        "there is one more slot",
        (Theme::Holds, 31),
        "    local too_many, enough = held + cost - capacity, 0",
        "    local too_many, enough = held + cost - capacity - 1, 0",
    ),
    bug(
        "slots that were not expired are removed with those that were",
        (Theme::Holds, 0),
        "      call('ZREMRANGEBYRANK', key, 1, taking.ended)\n    end\n    state.extra",
        "      call('ZREMRANGEBYRANK', key, 1, taking.ended + 1)\n    end\n    state.extra",
    ),
    bug(
        "slots of a hold with several count as one",
        (Theme::Holds, 3),
        "    state.extra = state.extra - (taking.ended_slots - taking.ended) + cost - 1",
        "    state.extra = state.extra - (taking.ended_slots - taking.ended)",
    ),
    bug(
        "a hold can be settled twice",
        (Theme::Holds, 10),
        "  call('UNLINK', KEYS[k])\n  return 'S' .. table.concat(report)",
        "  return 'S' .. table.concat(report)",
    ),
    bug(
        "a fraction that becomes a whole microsecond is lost",
        (Theme::Rates, 5),
        "  if part >= refill then\n    whole, part = whole + 1, part - refill\n  end\n",
        "  if part >= refill then\n    part = part - refill\n  end\n",
    ),
    bug(
        "a sliding window forgets the window before",
        (Theme::Rates, 1),
        "    return start, current, 0, now, false, stored",
        "    return start, 0, 0, now, false, stored",
    ),
    bug(
        "an event leaves a log too early",
        (Theme::Rates, 17),
        "'-inf', log.at - width)",
        "'-inf', log.at - width + 1000)",
    ),
    bug(
        "units of one instant replace each other",
        (Theme::Rates, 0),
        "      units = log.units\n",
        "      units = 0\n",
    ),
    bug(
        "a permit to wait ends before the wait",
        (Theme::Waits, 1),
        "millis + (wait + 999 - (wait + 999) % 1000) / 1000 + 1000)",
        "millis + 1)",
    ),
    bug(
        "a release frees one slot too many",
        (Theme::Holds, 24),
        "    state.extra = state.extra - slots_of(member) + 1\n",
        "    state.extra = state.extra - slots_of(member)\n",
    ),
    bug(
        "a settlement returns units to the window of the present",
        (Theme::Holds, 265),
        "    if still_counts and start == mark then\n",
        "    if true then\n",
    ),
    bug(
        "a settlement takes units off another event of a log",
        (Theme::Holds, 32),
        "    if at ~= mark then\n      return\n    end\n",
        "    if not at then\n      return\n    end\n",
    ),
    bug(
        "a report of a lease counts twice",
        (Theme::Leases, 210),
        "        return true\n      end\n    end\n    return false\n",
        "        return true\n      end\n    end\n    return true\n",
    ),
    bug(
        "a lease on a window is not charged",
        (Theme::Leases, 0),
        "      set_cell(k, pack(COUNTS, FIXED_WINDOW, start, 0, current + granted), ends)\n",
        "",
    ),
    bug(
        "what is out on lease has no bound",
        (Theme::Leases, 21),
        "    local room = most > sum and #ends < MAX_ENDS and most - sum or 0\n",
        "    local room = most\n",
    ),
    bug(
        "a renewal extends slots beyond what their rule allows",
        (Theme::Holds, 31),
        "    ends = now + (span < longest and span or longest)\n    call('ZADD', KEYS[k], ends, member)",
        "    ends = now + span\n    call('ZADD', KEYS[k], ends, member)",
    ),
];

/// Finds a bug from a seed on. Returns the seed that shows it and how many plans it took.
fn find(bug: &Bug, first: u64) -> Option<(u64, u64)> {
    let mut explorer = Explorer::with_patches(&[bug.patch]);
    for number in 0..MOST_PLANS {
        let seed = first + number;
        let plan = Plan::draw(bug.theme, seed);
        let shows_it = explorer.run(&plan).violation.is_some();
        // The bug is what breaks the rule.
        if shows_it && Explorer::new().run(&plan).violation.is_none() {
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
        // A change of the simulator may move the seeds: a long run says where to.
        match find(bug, if is_long() { 0 } else { bug.seed }) {
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
