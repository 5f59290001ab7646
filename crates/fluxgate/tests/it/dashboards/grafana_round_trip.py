"""Parses a dashboard with Grafana's own types, serializes it, and prints the differences,
which are fields that Grafana does not know or does not expect there."""

import json
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(before, after, path=""):
    if isinstance(before, dict):
        for name, value in before.items():
            if isinstance(after, dict) and name in after:
                yield from differences(value, after[name], f"{path}/{name}")
            elif value is not None:
                yield f"{path}/{name}: unknown"
    elif isinstance(before, list):
        if not isinstance(after, list) or len(before) != len(after):
            yield f"{path}: not a list of that length"
        else:
            for index, pair in enumerate(zip(before, after)):
                yield from differences(*pair, f"{path}/{index}")
    elif before != after:
        yield f"{path}: {before!r} became {after!r}"


plugins.register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    dashboard = json.load(file)
again = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
for line in differences(dashboard, again):
    print(line)
