"""Does jobs as fast as FluxGate allows, over HTTP. Needs only Python.

python client_http.py [URL [USER [JOBS]]]
"""

import http.client
import json
import sys
import time
import urllib.request


def post(url, body):
    """Post JSON and return the JSON of the response."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=1) as response:
        return json.load(response)


def settle(url, decision):
    """Settle the hold of a job, if it has one: its slots are free, its charge stays."""
    # A job that takes longer than `hold_ms` must renew its hold: POST /v1/renew.
    if "hold" in decision:
        try:
            post(url + "/v1/settle", {"hold": decision["hold"]})
        except (OSError, http.client.HTTPException, ValueError) as error:
            print(f"the slots expire by themselves: {error}", flush=True)


def main(url="http://127.0.0.1:8081", user="ann", jobs="5"):
    for job in range(1, int(jobs) + 1):
        while True:
            try:
                decision = post(url + "/v1/check", {"rule_set": "jobs", "user": user})
            except (OSError, http.client.HTTPException, ValueError) as error:
                # Fails open: the work matters more than the limit.
                print(f"job {job}: done, FluxGate unavailable: {error}", flush=True)
                break
            if decision["allowed"]:
                time.sleep(decision["delay_ms"] / 1000)
                print(f"job {job}: done, {decision['remaining']} left", flush=True)
                settle(url, decision)
                break
            wait = decision["retry_after_ms"]
            if wait is None:
                sys.exit(f"job {job}: denied permanently")
            print(f"job {job}: denied, retrying in {wait} ms", flush=True)
            time.sleep(wait / 1000)


main(*sys.argv[1:])
