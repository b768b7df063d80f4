#!/usr/bin/python3
"""Compares builds of Kvik with each other: `make bench-build`, or this file with options.

    build.py [--rounds N] [--scale F] [--json FILE] [--kvik "NAME=SERVER [ARG ...]" ...] [row ...]

Every build and redis-server run at once, pinned to one core and idle but for the one that is
measured; the load generator has the other core. In each round every row is run on every server, in
an order that moves on by one a round. Printed per row: the median over the rounds of redis-server's
CPU microseconds per command, and for each build the median of the ratios to the redis-server of the
same round (smaller is better). The last rows: geometric means over all rows and over the pipelined
ones, where the kernel's share is smaller; and a build's gain against the first named. Less than 12
minutes with the default numbers; never part of `make test`. What was found: docs/build.md.
"""
import argparse
import json
import math
import os
import platform
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from bench import Bench, Workload, cpu_name, cpu_ns  # noqa: E402
from process import REFERENCE, Server  # noqa: E402

BUILDS = ["o2", "o3", "o2lto", "o3lto", "pgo"]
KEYS = 100_000
ROWS = [
    Workload("set-p1", "set", KEYS, 32, 1, 40_000, 0),
    Workload("get-p1", "get", KEYS, 32, 1, 40_000, 0),
    Workload("set-p10", "set", KEYS, 32, 10, 250_000, 0),
    Workload("get-p10", "get", KEYS, 32, 10, 250_000, 0),
    Workload("set-p50", "set", KEYS, 32, 50, 700_000, 0),
    Workload("get-p50", "get", KEYS, 32, 50, 700_000, 0),
    Workload("set-512b-p50", "set", KEYS, 512, 50, 400_000, 0),
    Workload("mget-30", "mget", KEYS, 32, 1, 15_000, 0, clients=10),
    Workload("incr-p50", "incr", KEYS, 32, 50, 700_000, 0),
    Workload("mixed-p16", "mixed", KEYS, 32, 16, 400_000, 0),
]


class BuildBench(Bench):
    def __init__(self, options, binaries):
        super().__init__(options)
        self.binaries = binaries
        load = ROOT / options.build / "release" / "bench" / "load"
        if load.exists():
            self.load = str(load)

    def start(self, which):
        binary, *args = self.binaries[which].split()
        server = Server("--maxclients", "1000", *args, binary=binary, threads=1, debug=False)
        self.pin(server.pid)
        return server

    def pin(self, pid):
        for task in Path("/proc/%d/task" % pid).iterdir():
            os.sched_setaffinity(int(task.name), {self.server_core})

    def run_row(self, server, work, number):
        """CPU microseconds per command of one run on one server."""
        requests = self.scaled(work.requests)
        before = cpu_ns(server.pid)
        if work.test == "mget":
            self.pinned(self.load, "mget", server.port, KEYS, work.value, 30, work.clients,
                        requests, number + 1)
        elif work.test == "mixed":
            self.pinned(self.load, "mixed", server.port, requests, number + 1)
        else:
            self.pinned("redis-benchmark", "-p", server.port, "-t", work.test, "-c", work.clients,
                        "-P", work.pipeline, "-n", requests, "-r", KEYS, "-d", work.value, "-q")
        return (cpu_ns(server.pid) - before) / 1000 / requests

    def measure_builds(self, rows):
        """{row: {server: [us per command, one a round]}}"""
        servers = {which: self.start(which) for which in self.binaries}
        names = list(servers)
        figures = {work.name: {which: [] for which in names} for work in rows}
        # Rows that change the length of values come last, so that MGET finds what it counts on.
        for work in sorted(rows, key=lambda row: row.value):
            for server in servers.values():
                self.fill(server, KEYS, work.value)
            for number in range(self.options.rounds + 1):
                start = number % len(names)
                for which in names[start:] + names[:start]:
                    used_us = self.run_row(servers[which], work, number)
                    if number > 0:  # the first warms up
                        figures[work.name][which].append(used_us)
            print_row(work.name, figures[work.name])
        for server in servers.values():
            server.stop()
        return figures


def ratios_of(row):
    """{build: median of its ratios to redis-server}"""
    return {which: statistics.median(ours / theirs for ours, theirs in zip(times, row["redis"]))
            for which, times in row.items() if which != "redis"}


def print_line(name, redis, values, form="%10.3f"):
    print("%-18s %9s" % (name, redis) + "".join(form % value for value in values), flush=True)


def print_row(name, row):
    print_line(name, "%.3f" % statistics.median(row["redis"]), ratios_of(row).values())


def geometric(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def summarize(figures, builds):
    def mean(names):
        ratios = [ratios_of(figures[name]) for name in names]
        return [geometric(row[build] for row in ratios) for build in builds]

    everything = mean(figures)
    print_line("mean of all", "", everything)
    pipelined = [name for name in figures if not name.endswith("-p1")]
    if pipelined:
        print_line("mean of pipelined", "", mean(pipelined))
        everything = mean(pipelined)
    print_line("gain over %s" % builds[0], "",
               [100 * (1 - value / everything[0]) for value in everything], "%9.1f%%")


def main():
    names = [work.name for work in ROWS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0],
                                     epilog="rows: " + " ".join(names))
    parser.add_argument("rows", nargs="*", help="all when none is named")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the requests")
    parser.add_argument("--build", default="build", help="folder of the builds")
    parser.add_argument("--kvik", action="append", metavar="NAME=SERVER",
                        help="a build to measure, arguments may follow its path; default: all of "
                             "docs/build.md")
    parser.add_argument("--json", help="every round's figures")
    options = parser.parse_args()
    unknown = set(options.rows) - set(names)
    if unknown:
        parser.error("no such row: " + " ".join(sorted(unknown)))
    builds = dict(entry.split("=", 1) for entry in options.kvik or [
        "%s=%s" % (name, ROOT / options.build / name / "kvik-server") for name in BUILDS])
    builds = {name: " ".join([str(Path(line.split()[0]).resolve()), *line.split()[1:]])
              for name, line in builds.items()}
    missing = [line for line in builds.values() if not Path(line.split()[0]).exists()]
    if missing:
        sys.exit("not built: " + " ".join(missing))
    print("%s, Linux %s, %d rounds; redis: us per command; builds: ratio to it" % (
        cpu_name(), platform.release(), options.rounds))
    print_line("row", "redis", builds, "%10s")
    bench = BuildBench(options, {"redis": REFERENCE, **builds})
    figures = bench.measure_builds([work for work in ROWS
                                    if not options.rows or work.name in options.rows])
    summarize(figures, list(builds))
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
