"""Does jobs as fast as FluxGate allows. Needs the package in clients/python.

python jobs.py [URL [USER [JOBS]]]
"""

import sys
import time

from fluxgate import Client, Denied, Unavailable


def main(url="http://127.0.0.1:8081", user="ann", jobs="5"):
    fg = Client(url, on_error="raise", deadline=1)
    for job in range(1, int(jobs) + 1):
        while True:
            try:
                # Waits for its turn if the rule says so. The hold is renewed while the job runs;
                # settling it keeps the charge and returns its slots.
                with fg.hold("jobs", user=user) as hold:
                    print(f"job {job}: done, {hold.decision.remaining} left", flush=True)
                    hold.settle()
                break
            except Unavailable as error:
                # Fails open: the work matters more than the limit.
                print(f"job {job}: done, FluxGate unavailable: {error}", flush=True)
                break
            except Denied as denied:
                wait = denied.decision.retry_after
                if wait is None:
                    sys.exit(f"job {job}: denied permanently")
                print(f"job {job}: denied, retrying in {round(wait * 1000)} ms", flush=True)
                time.sleep(wait)
    fg.close()


main(*sys.argv[1:])
