#!/usr/bin/python3
"""Hit rates of the eviction policies against redis-server: `make bench-evict`, or this file.

For each policy the same trace (zipf.c: GET, and SET on a miss) runs against redis-server and against
Kvik with the same maxmemory. Kvik's entries are smaller, so it holds more keys; a third run gives it
only as much memory as makes it hold about as many keys as redis-server did, which compares the
policies themselves. Columns: hit rate and resident keys of the three runs.

A rate depends on the seeds of the servers a little; --seeds runs several traces and takes the means.
"""
import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "server"))

from process import REFERENCE, Server  # noqa: E402

# policy, time to live of each SET in seconds (zipf.c)
POLICIES = [
    ("allkeys-lru", "0"), ("allkeys-lfu", "0"), ("allkeys-random", "0"), ("volatile-lru", "3600"),
    ("volatile-lfu", "3600"), ("volatile-random", "3600"), ("volatile-ttl", "3600"),
    ("volatile-ttl", "mixed"),
]
# skew, bytes of values (zipf.c)
TRACES = [("0.99", "100"), ("0.99", "mixed"), ("0.9", "100"), ("0.9", "mixed")]


class Run:
    """One server, one trace."""

    def __init__(self, options, binary, memory, policy, ttl, skew, values, seed):
        server = Server("--maxmemory", str(memory), "--maxmemory-policy", policy,
                        binary=binary, threads=1)
        try:
            with server.raw() as conn:
                self.base = used(conn)
                line = [options.zipf, server.port, options.operations, options.keys, skew, values,
                        ttl, seed]
                out = subprocess.run([str(word) for word in line], check=True,
                                     capture_output=True, text=True, timeout=600)
                hits, lookups, self.seconds = out.stdout.split()
                self.rate = int(hits) / int(lookups)
                self.resident = conn.cmd("DBSIZE")
                self.used = used(conn)
        finally:
            server.stop()


def used(conn):
    for line in conn.cmd("INFO", "memory").split(b"\r\n"):
        if line.startswith(b"used_memory:"):
            return int(line.split(b":")[1])
    raise ValueError("no used_memory in INFO")


def mean(runs, name):
    return sum(getattr(run, name) for run in runs) / len(runs)


def compare(options, policy, ttl, skew, values):
    theirs, ours, equal = [], [], []
    for seed in range(1, options.seeds + 1):
        trace = (policy, ttl, skew, values, seed)
        theirs.append(Run(options, REFERENCE, options.memory, *trace))
        ours.append(Run(options, options.server, options.memory, *trace))
        share = theirs[-1].resident / ours[-1].resident
        memory = ours[-1].base + (options.memory - ours[-1].base) * share
        equal.append(Run(options, options.server, int(memory), *trace))
    name = policy if ttl in ("0", "3600") else "%s, %s times" % (policy, ttl)
    cells = [name, skew, values]
    for runs in (theirs, ours, equal):
        cells += ["%.2f %%" % (100 * mean(runs, "rate")), "%d" % mean(runs, "resident")]
    print("| " + " | ".join(cells) + " |", flush=True)
    return mean(ours, "rate") >= mean(theirs, "rate")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--server", default=str(ROOT / "build" / "release" / "kvik-server"))
    parser.add_argument("--zipf", default=str(ROOT / "build" / "release" / "bench" / "zipf"))
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--memory", type=int, default=12 * 1024 * 1024)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--policy", help="only this one")
    parser.add_argument("--quick", action="store_true", help="the first trace only")
    options = parser.parse_args()
    if not os.access(options.zipf, os.X_OK):
        sys.exit("%s is missing: make bench-programs V=release" % options.zipf)
    print("| policy | skew | values | Redis hits | keys | Kvik hits | keys | Kvik, keys as Redis | "
          "keys |\n" + "| --- " * 9 + "|", flush=True)
    worse = []
    for skew, values in TRACES[:1] if options.quick else TRACES:
        for policy, ttl in POLICIES:
            if options.policy in (None, policy) and \
                    not compare(options, policy, ttl, skew, values):
                worse.append("%s %s %s" % (policy, skew, values))
    print("\nKvik below Redis: %s" % (", ".join(worse) or "never"))


if __name__ == "__main__":
    main()
