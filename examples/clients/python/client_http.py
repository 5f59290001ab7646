"""Does jobs as fast as FluxGate allows, over HTTP. Needs only Python.

python client_http.py [URL [USER [JOBS]]]
"""

import http.client
import json
import sys
import time
import urllib.request


def check(url, user):
    """Return the decision for one job of a user, which is charged if it is allowed."""
    body = json.dumps({"rule_set": "jobs", "user": user}).encode()
    request = urllib.request.Request(
        url + "/v1/check", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=1) as response:
        return json.load(response)


def main(url="http://127.0.0.1:8081", user="ann", jobs="5"):
    for job in range(1, int(jobs) + 1):
        while True:
            try:
                decision = check(url, user)
            except (OSError, http.client.HTTPException, ValueError) as error:
                # Fails open: the work matters more than the limit.
                print(f"job {job}: done, FluxGate unavailable: {error}", flush=True)
                break
            if decision["allowed"]:
                time.sleep(decision["delay_ms"] / 1000)
                print(f"job {job}: done, {decision['remaining']} left", flush=True)
                break
            wait = decision["retry_after_ms"]
            if wait is None:
                sys.exit(f"job {job}: denied permanently")
            print(f"job {job}: denied, retrying in {wait} ms", flush=True)
            time.sleep(wait / 1000)


main(*sys.argv[1:])
