#!/usr/bin/python3
"""Measures the append-only log beside the installed redis-server: `make bench-aof`.

Both servers keep a log in folders of one file system. Rounds alternate between them, redis-benchmark
sends SETs. Nothing is pinned to cores: with `always` a server works on two, and what counts is how many
replies a second come back. The printed ratio of `always` is the median over rounds of Kvik's throughput to
the reference's; that of `everysec` is CPU per command, Kvik's to the reference's. Rows that ask a
server to start with other threads start servers of their own. README.md says how to read the result.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "server"))
sys.path.insert(0, str(HERE))

from bench import cpu_ns  # noqa: E402
from process import REFERENCE, Server  # noqa: E402

VALUE_BYTES = 32
KEYS = 100_000


class Row:
    """`least`: throughput to be reached; `most`: CPU not to be passed; as ratios, 0: none."""

    def __init__(self, name, fsync, clients, pipeline, requests, threads=1, least=0.0, most=0.0):
        self.name, self.fsync, self.clients, self.pipeline = name, fsync, clients, pipeline
        self.requests, self.threads = requests, threads
        self.least, self.most = least, most


ROWS = [
    Row("always-c50", "always", 50, 1, 100_000, least=3.0),
    Row("always-c50-threads4", "always", 50, 1, 100_000, threads=4, least=3.0),
    Row("always-c1", "always", 1, 1, 6_000),
    Row("always-c200", "always", 200, 1, 200_000),
    Row("always-c50-p16", "always", 50, 16, 800_000),
    Row("everysec-c50-p16", "everysec", 50, 16, 1_500_000, most=0.6),
]


class Bench:
    def __init__(self, options):
        self.options = options
        self.results = []

    def start(self, which, row, folder):
        return Server("--dir", os.path.join(folder, which), "--appendonly", "yes", "--appendfsync",
                      row.fsync, "--auto-aof-rewrite-percentage", "0", debug=False,
                      threads=row.threads, binary=REFERENCE if which == "redis" else None)

    def run_once(self, server, row, requests):
        """(replies a second, CPU microseconds per command, server's log included)"""
        before, start = cpu_ns(server.pid), time.monotonic()
        done = subprocess.run(
            ["redis-benchmark", "-p", str(server.port), "-t", "set", "-c", str(row.clients), "-P",
             str(row.pipeline), "-n", str(requests), "-r", str(KEYS), "-d", str(VALUE_BYTES), "-q"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
        seconds = time.monotonic() - start
        if done.returncode != 0:
            sys.exit("redis-benchmark failed:\n%s" % done.stdout)
        return requests / seconds, (cpu_ns(server.pid) - before) / 1000 / requests

    def measure(self, row, base):
        with tempfile.TemporaryDirectory(prefix="kvik-bench-", dir=base) as folder:
            servers = {}
            for which in ("kvik", "redis"):
                os.mkdir(os.path.join(folder, which))
                servers[which] = self.start(which, row, folder)
            requests = max(row.clients, int(row.requests * self.options.scale))
            rounds = {"kvik": [], "redis": []}
            for number in range(self.options.rounds):
                order = ("kvik", "redis") if number % 2 == 0 else ("redis", "kvik")
                for which in order:
                    rounds[which].append(self.run_once(servers[which], row, requests))
            for server in servers.values():
                server.stop(status=None)
        self.report(row, rounds)

    def report(self, row, rounds):
        def middle(which, column):
            return statistics.median(r[column] for r in rounds[which])

        def ratio(column):
            return statistics.median(ours[column] / theirs[column] for ours, theirs in
                                     zip(rounds["kvik"], rounds["redis"]))

        speed, cpu = ratio(0), ratio(1)
        verdict = ""
        if row.least:
            verdict = "speed %.1f %s" % (row.least, "reached" if speed >= row.least else "MISSED")
        if row.most:
            verdict = "CPU %.2f %s" % (row.most, "reached" if cpu <= row.most else "MISSED")
        self.results.append({"row": row.name, "speed": speed, "cpu": cpu, **rounds})
        print("%-20s %10.0f %10.0f %7.2f %9.2f %9.2f %7.2f   %s" % (
            row.name, middle("kvik", 0), middle("redis", 0), speed, middle("kvik", 1),
            middle("redis", 1), cpu, verdict), flush=True)

    def run(self, selected):
        print("%-20s %10s %10s %7s %9s %9s %7s   %s" % (
            "row", "Kvik op/s", "Redis op/s", "ratio", "Kvik us", "Redis us", "ratio", "target"))
        for row in selected:
            self.measure(row, self.options.dir)
        if self.options.json:
            Path(self.options.json).write_text(json.dumps(self.results, indent=1) + "\n")


def main():
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0],
                                     epilog="rows: " + " ".join(names))
    parser.add_argument("rows", nargs="*", help="all when none is named; a prefix selects many")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on numbers of requests")
    parser.add_argument("--quick", action="store_true", help="3 rounds at a fifth of the size")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="where the logs lie")
    parser.add_argument("--json", help="write all rounds to this file")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 3, 0.2
    selected = [row for row in ROWS
                if not options.rows or any(row.name.startswith(name) for name in options.rows)]
    if not selected:
        parser.error("no such row; there are: " + " ".join(names))
    Bench(options).run(selected)


if __name__ == "__main__":
    main()
