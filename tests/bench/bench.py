#!/usr/bin/python3
"""Measures Kvik against the installed redis-server: `make bench`, or this file with options.

Both servers run on one core, the load generator on another. For each workload both are filled once;
then rounds alternate between them. Each round gives operations per second and the server's CPU
microseconds per command, from the schedstat of all its threads, which stays true when the generator
is the bottleneck. The printed ratio is the median over rounds of Kvik's CPU per command to the
reference's. Memory workloads give resident bytes per key. README.md says how to read the result.
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "server"))

from process import REFERENCE, Server  # noqa: E402

KEY_BYTES = 16  # key:000000000000


class Workload:
    """One line of the table. `redis-benchmark` sends `test`; `requests` is the number a round."""

    def __init__(self, name, test, keys, value, pipeline, requests, target, clients=50):
        self.name, self.test, self.keys, self.value = name, test, keys, value
        self.pipeline, self.requests, self.target = pipeline, requests, target
        self.clients = clients
        self.fill_id = (keys, value)

    def bytes_needed(self):
        """Memory of both servers together, roughly."""
        return 2 * self.keys * (self.value + 120)


WORKLOADS = [
    Workload("set-p50", "set", 100_000, 32, 50, 4_000_000, 0.30),
    Workload("get-p50", "get", 100_000, 32, 50, 4_000_000, 0.30),
    Workload("set-p10", "set", 100_000, 32, 10, 2_000_000, 0.50),
    Workload("get-p10", "get", 100_000, 32, 10, 2_000_000, 0.50),
    Workload("set-p1", "set", 100_000, 32, 1, 400_000, 0.90),
    Workload("get-p1", "get", 100_000, 32, 1, 400_000, 0.90),
    Workload("set-120b-3m-p1", "set", 3_000_000, 120, 1, 400_000, 1.00),
    Workload("set-120b-3m-p50", "set", 3_000_000, 120, 50, 3_000_000, 0.50),
    Workload("set-512b-3m-p1", "set", 3_000_000, 512, 1, 400_000, 1.00),
    Workload("set-512b-3m-p50", "set", 3_000_000, 512, 50, 2_000_000, 0.50),
    Workload("set-8192b-500k-p1", "set", 500_000, 8192, 1, 300_000, 1.00),
    Workload("set-8192b-500k-p16", "set", 500_000, 8192, 16, 400_000, 1.00),
    Workload("mget1000-5m", "mget", 5_000_000, 32, 1, 3_000, 0.50, clients=10),
]
SETTLE_SECONDS = 4  # for both servers: allocators give freed pages back with a delay
MEMORY = ["memory", "memory-ttl", "memory-refresh"]


def cores():
    """(server's core, generator's core), or exits: one core measures nothing."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("bench needs two cores: one for the server, one for the load generator")
    return allowed[0], allowed[1]


def cpu_ns(pid):
    """CPU time of all threads of a process."""
    total = 0
    for task in Path("/proc/%d/task" % pid).iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass  # a thread that ended meanwhile
    return total


def resident_bytes(pid):
    """Private and shared resident memory without what is mapped from files."""
    for line in Path("/proc/%d/status" % pid).read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no RssAnon")


def available_bytes():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no MemAvailable")


class Bench:
    def __init__(self, options):
        self.options = options
        self.server_core, self.load_core = cores()
        self.load = self.load_program()
        self.results = []

    def load_program(self):
        """tests/bench/load.c, as make built it, or built here."""
        built = ROOT / "build" / "release" / "bench" / "load"
        if built.exists():
            return str(built)
        path = os.path.join(tempfile.mkdtemp(prefix="kvik-bench-"), "load")
        subprocess.run(["cc", "-std=gnu17", "-O2", "-o", path, str(HERE / "load.c")], check=True)
        return path

    # --- servers ---

    def start(self, which):
        binary = REFERENCE if which == "redis" else None
        server = Server("--maxclients", "1000", binary=binary, threads=1, debug=False)
        subprocess.run(["taskset", "-a", "-c", "-p", str(self.server_core), str(server.pid)],
                       check=True, stdout=subprocess.DEVNULL)
        return server

    def pinned(self, *command):
        """Runs a program on the generator's core; its output."""
        done = subprocess.run(["taskset", "-c", str(self.load_core), *map(str, command)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=1800)
        if done.returncode != 0:
            sys.exit("%s failed:\n%s" % (" ".join(map(str, command)), done.stdout))
        return done.stdout

    def fill(self, server, keys, value, ttl=0):
        self.pinned(self.load, "fill", server.port, keys, value, ttl)

    # --- speed ---

    def scaled(self, number):
        return max(1, int(number * self.options.scale))

    def run_once(self, server, work, round_number):
        """(operations per second, CPU microseconds per command) of one round on one server."""
        requests = self.scaled(work.requests)
        before, start = cpu_ns(server.pid), time.monotonic()
        if work.test == "mget":
            self.pinned(self.load, "mget", server.port, self.scaled(work.keys), work.value, 1000,
                        work.clients, max(requests, work.clients), round_number)
            requests = max(requests, work.clients)
        else:
            self.pinned("redis-benchmark", "-p", server.port, "-t", work.test, "-c", work.clients,
                        "-P", work.pipeline, "-n", requests, "-r", self.scaled(work.keys), "-d",
                        work.value, "-q")
        seconds = time.monotonic() - start
        return requests / seconds, (cpu_ns(server.pid) - before) / 1000 / requests

    def measure(self, works):
        """All workloads of one filling, on one pair of servers."""
        needed = self.options.scale * max(work.bytes_needed() for work in works)
        if needed > available_bytes() * 0.9:
            print("%-20s skipped: needs %.1f GB" % (works[0].name, needed / 1e9))
            return
        servers = {which: self.start(which) for which in ("kvik", "redis")}
        for server in servers.values():
            self.fill(server, self.scaled(works[0].keys), works[0].value)
        for work in works:
            self.rounds(servers, work)
        for server in servers.values():
            server.stop()

    def rounds(self, servers, work):
        rows = {"kvik": [], "redis": []}
        for which, server in servers.items():  # warm up, not counted
            self.run_once(server, Workload("", work.test, work.keys, work.value, work.pipeline,
                                           work.requests // 10, 0, work.clients), 0)
        for number in range(self.options.rounds):
            order = ("kvik", "redis") if number % 2 == 0 else ("redis", "kvik")
            for which in order:
                rows[which].append(self.run_once(servers[which], work, number + 1))
        ratios = [ours[1] / theirs[1] for ours, theirs in zip(rows["kvik"], rows["redis"])]
        self.results.append({
            "workload": work.name, "target": work.target,
            "ratio": statistics.median(ratios), "ratios": ratios,
            "kvik": rows["kvik"], "redis": rows["redis"],
        })
        self.print_speed(self.results[-1])

    def print_speed(self, row):
        def medians(rows):
            return statistics.median(r[0] for r in rows), statistics.median(r[1] for r in rows)

        ours, theirs = medians(row["kvik"]), medians(row["redis"])
        print("%-20s %10.0f %10.0f %9.3f %9.3f %7.3f   %4.2f %s" % (
            row["workload"], ours[0], theirs[0], ours[1], theirs[1], row["ratio"], row["target"],
            "reached" if row["ratio"] <= row["target"] else "MISSED"), flush=True)

    # --- memory ---

    def memory_of(self, which, ttl):
        """Resident bytes per key beyond key and value."""
        keys = self.scaled(1_000_000)
        server = self.start(which)
        self.fill(server, 1000, 32, ttl)  # buffers and code paths have been used once
        server.redis().flushall()
        before = resident_bytes(server.pid)
        self.fill(server, keys, 32, ttl)
        time.sleep(SETTLE_SECONDS)
        per_key = (resident_bytes(server.pid) - before) / keys - KEY_BYTES - 32
        server.stop()
        return per_key

    def refresh_of(self, which):
        """Resident bytes that a million refreshes of one time to live cost."""
        server = self.start(which)
        self.fill(server, 1000, 32, 1000)
        self.pinned(self.load, "expire", server.port, 10_000)
        before = resident_bytes(server.pid)
        self.pinned(self.load, "expire", server.port, self.scaled(1_000_000))
        grown = resident_bytes(server.pid) - before
        server.stop()
        return grown

    def memory(self, selected):
        print("\n%-44s %10s %10s   target" % ("memory", "Kvik", "Redis"))
        plain = {}
        if "memory" in selected or "memory-ttl" in selected:
            plain = {which: self.memory_of(which, 0) for which in ("kvik", "redis")}
            self.print_memory("bytes per key beyond 48 of payload", "memory", plain, 28)
        if "memory-ttl" in selected:
            more = {which: self.memory_of(which, 100000) - plain[which]
                    for which in ("kvik", "redis")}
            self.print_memory("bytes more per key with a TTL", "memory-ttl", more, 20)
        if "memory-refresh" in selected:
            grown = {which: self.refresh_of(which) for which in ("kvik", "redis")}
            self.print_memory("bytes after a million refreshes of one TTL", "memory-refresh", grown,
                              65536)

    def print_memory(self, text, name, values, target):
        self.results.append({"workload": name, "target": target, **values})
        print("%-44s %10.1f %10.1f   %d %s" % (text, values["kvik"], values["redis"], target,
                                               "reached" if values["kvik"] <= target else "MISSED"),
              flush=True)

    # --- all ---

    def run(self, selected):
        print("%s, Linux %s, server on core %d, load on core %d, %d rounds, scale %g" % (
            cpu_name(), platform.release(), self.server_core, self.load_core, self.options.rounds,
            self.options.scale))
        works = [work for work in WORKLOADS if work.name in selected]
        if works:
            print("\n%-20s %10s %10s %9s %9s %7s   %s" % (
                "workload", "Kvik op/s", "Redis op/s", "Kvik us", "Redis us", "ratio", "target"))
        fills = []
        for work in works:
            if work.fill_id not in fills:
                fills.append(work.fill_id)
        for fill_id in fills:
            self.measure([work for work in works if work.fill_id == fill_id])
        if set(selected) & set(MEMORY):
            self.memory(selected)
        if self.options.json:
            Path(self.options.json).write_text(json.dumps(self.results, indent=1) + "\n")


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    names = [work.name for work in WORKLOADS] + MEMORY
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0],
                                     epilog="workloads: " + " ".join(names))
    parser.add_argument("workloads", nargs="*", help="all when none is named; a prefix selects many")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0,
                        help="factor on the numbers of keys and requests")
    parser.add_argument("--quick", action="store_true", help="2 rounds at a twentieth of the size")
    parser.add_argument("--json", help="write all rounds to this file")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 2, 0.05
    selected = [name for name in names
                if not options.workloads or any(name.startswith(w) for w in options.workloads)]
    if not selected:
        parser.error("no such workload; there are: " + " ".join(names))
    for tool in ("redis-benchmark", "taskset", REFERENCE):
        if shutil.which(tool) is None:
            sys.exit("bench needs %s" % tool)
    Bench(options).run(selected)


if __name__ == "__main__":
    main()
