"""Does jobs as fast as FluxGate allows, over the Redis protocol.

pip install redis
python client_resp.py [URL [USER [JOBS]]]
"""

import sys
import time

import redis


def settle(fluxgate, decision):
    """Settle the hold of a job, if it has one: its slots are free, its charge stays."""
    # A job that takes longer than the hold must renew it: FG.RENEW.
    if len(decision) > 9:
        try:
            fluxgate.execute_command("FG.SETTLE", decision[9])
        except redis.RedisError as error:
            print(f"the slots expire by themselves: {error}", flush=True)


def main(url="redis://127.0.0.1:8083", user="ann", jobs="5"):
    fluxgate = redis.Redis.from_url(url, socket_timeout=1)
    for job in range(1, int(jobs) + 1):
        while True:
            try:
                decision = fluxgate.execute_command("FG.CHECK", "jobs", "user", user)
            except redis.RedisError as error:
                # Fails open: the work matters more than the limit.
                print(f"job {job}: done, FluxGate unavailable: {error}", flush=True)
                break
            allowed, _limit, remaining, wait, _reset, delay = decision[:6]
            if allowed:
                time.sleep(delay / 1000)
                print(f"job {job}: done, {remaining} left", flush=True)
                settle(fluxgate, decision)
                break
            if wait < 0:
                sys.exit(f"job {job}: denied permanently")
            print(f"job {job}: denied, retrying in {wait} ms", flush=True)
            time.sleep(wait / 1000)


main(*sys.argv[1:])
