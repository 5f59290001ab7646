"""Uses a client that was generated from `/openapi.json`.

    generated_client.py FOLDER URL     FOLDER holds the package `generated`
"""

import sys

sys.path.insert(0, sys.argv[1])

from generated import AuthenticatedClient
from generated.api.decisions import check, explain
from generated.api.rules import get_rule, get_rule_set, put_rule_set, rule_sets, simulate
from generated.api.state import state
from generated.models import Band, Check, Decision, Event, Rule, RuleScope, RuleSet, SimulateBody

client = AuthenticatedClient(base_url=sys.argv[2], token="unused", raise_on_unexpected_status=True)

bands = [Band(id="burst", capacity=2, window="1m"), "100/h"]
rule = Rule(id="by-user", scope=RuleScope.PER_USER, bands=bands)
put = put_rule_set.sync("api", client=client, body=RuleSet(rules=[rule]))
assert put.rules[0].bands == bands, put

stored = get_rule_set.sync("api", client=client)
assert stored.rules[0].bands == bands, stored
assert get_rule.sync("api", "by-user", client=client).bands == bands

active = rule_sets.sync(client=client).rule_sets[0].rules[0]
assert [(band.id, band.capacity, band.window_ms) for band in active.bands] == [
    ("burst", 2, 60_000),
    ("b1", 100, 3_600_000),
], active

request = Check(rule_set="api", user="ann")
decision = check.sync(client=client, body=request)
assert isinstance(decision, Decision) and decision.allowed, decision
assert (decision.rule, decision.band, decision.remaining) == ("by-user", "burst", 1), decision

levels = state.sync(client=client, rule_set="api", rule="by-user", identity=["ann"])
assert [(band.band, band.remaining) for band in levels.bands] == [("burst", 1), ("b1", 99)], levels

explanation = explain.sync(client=client, body=request)
assert explanation.rules[0].bands[0].after.remaining == 0, explanation

events = [Event(t=second * 1_000_000, rule_set="api", user="ann") for second in range(3)]
trial = simulate.sync(client=client, body=SimulateBody(events=events))
assert [decision.allowed for decision in trial.decisions] == [True, True, False], trial
