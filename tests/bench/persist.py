#!/usr/bin/python3
"""Measures saving and loading against the installed redis-server: `make bench-persist`, or this file.

    persist.py [--full] [--quick] [--rounds N] [--threads N] [--parts save,load,memory,latency]
               [--json FILE] [data ...]

Data sets: `keys` are small strings, `hashes` have 15 fields. For each, both servers are filled with
the same and take turns; printed are medians over the rounds and of the ratios within a round. CPU is
that of the whole process with threads that have ended, of redis-server with the children that it
has forked. README.md says what each figure is.
"""
import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "server"))
sys.path.insert(0, str(HERE))

from bench import cores, cpu_name  # noqa: E402
from datatypes import hashes, pipe  # noqa: E402
from process import REFERENCE, Server  # noqa: E402
from raw import Closed, Error  # noqa: E402

PARTS = ("save", "load", "memory", "latency")
BOTH = ("kvik", "redis")
VALUE_BYTES = 16
CONNECTIONS = 50
WRITES_PER_SECOND = 20_000  # while memory is watched
SAMPLE_SECONDS = 0.05
TICK = 100  # of /proc/<pid>/stat
CLOCK_REALTIME_COARSE = 5  # the one that times of files are taken from

# name, kind for open.c, items (of --full), targets
DATA = {"keys": ("string", 5_000_000), "hashes": ("hash", 200_000)}
TARGET_RATIO, TARGET_P99 = 0.5, 2.0


def cpu_seconds(pid):
    """CPU time of a process so far: all threads, also those that ended, and children that did."""
    own = time.clock_gettime((~pid << 3) | 2)  # the process's CPU clock, as clock_getcpuclockid names it
    fields = Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()
    return own + (int(fields[13]) + int(fields[14])) / TICK


def children(pid):
    path = Path("/proc/%d/task/%d/children" % (pid, pid))
    return [int(word) for word in path.read_text().split()]


def share_bytes(pid):
    """What a process has in memory, pages that it shares counted in part."""
    try:
        for line in Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass  # a child that ended meanwhile
    return 0


def family_bytes(pid):
    """Of a server and its children together."""
    return sum(share_bytes(one) for one in [pid] + children(pid))


class Sampler(threading.Thread):
    """Highest of family_bytes until stop()."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most, self.over = pid, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(SAMPLE_SECONDS):
            self.most = max(self.most, family_bytes(self.pid))

    def stop(self):
        self.over.set()
        self.join()
        return self.most


class Saving(threading.Thread):
    """One BGSAVE after the other until stop(); gives how many ended."""

    def __init__(self, host):
        super().__init__(daemon=True)
        self.host, self.over, self.count = host, threading.Event(), 0
        self.start()

    def run(self):
        while not self.over.is_set():
            self.host.background_save()
            self.count += 1

    def stop(self):
        self.over.set()
        self.join()
        return self.count


class Host:
    """One server with its data."""

    def __init__(self, bench, which, folder):
        self.bench, self.which, self.dir = bench, which, Path(folder)
        self.server = self.conn = None

    def start(self):
        """Returns wall and CPU seconds from exec to the first PONG."""
        begin = time.monotonic()
        # Arguments that both know; all else is their default: rdbcompression and rdbchecksum yes.
        self.server = Server("--maxclients", "1000", "--dir", str(self.dir), wait=False, debug=False,
                             binary=REFERENCE if self.which == "redis" else None,
                             threads=self.bench.options.threads)
        self.bench.pin_server(self.server.pid)
        while not self.answers():
            if not self.server.alive() or time.monotonic() - begin > 600:
                sys.exit("%s does not start:\n%s" % (self.which, self.server.log()))
            time.sleep(0.002)
        wall, cpu = time.monotonic() - begin, cpu_seconds(self.server.pid)
        self.conn = self.server.raw(timeout=600)
        return wall, cpu

    def answers(self):
        try:
            with self.server.raw(timeout=600) as conn:
                return conn.cmd("PING") == b"PONG"
        except (OSError, Closed):
            return False

    def stop(self):
        self.conn.close()
        self.server.stop()

    def fill(self, data, count):
        if data == "keys":
            self.bench.pinned(self.bench.program("load"), "fill", self.server.port, count, VALUE_BYTES)
        else:
            pipe(self.server, hashes(count))

    def ask(self, *words):
        reply = self.conn.cmd(*words)
        if isinstance(reply, Error):
            sys.exit("%s: %r" % (self.which, reply))
        return reply

    def timed_save(self):
        cpu, begin = cpu_seconds(self.server.pid), time.monotonic()
        self.ask("SAVE")
        return time.monotonic() - begin, cpu_seconds(self.server.pid) - cpu

    def background_save(self):
        """Wall seconds until the file has its name."""
        before = (self.dir / "dump.rdb").stat().st_ctime_ns if self.file_bytes() else 0
        begin = time.clock_gettime(CLOCK_REALTIME_COARSE)
        self.ask("BGSAVE")
        while b"rdb_bgsave_in_progress:1" in self.ask("INFO", "persistence"):
            time.sleep(0.02)
        after = (self.dir / "dump.rdb").stat().st_ctime_ns
        if after == before:
            sys.exit("%s: a background saving failed\n%s" % (self.which, self.server.log()[-2000:]))
        return after / 1e9 - begin

    def timed_background_save(self):
        cpu = cpu_seconds(self.server.pid)
        wall = self.background_save()
        return wall, cpu_seconds(self.server.pid) - cpu

    def file_bytes(self):
        path = self.dir / "dump.rdb"
        return path.stat().st_size if path.exists() else 0


class PersistBench:
    def __init__(self, options):
        self.options, self.results = options, []
        self.server_core, self.load_core = cores()

    def program(self, name):
        return ROOT / "build" / "release" / "bench" / name

    def pin_server(self, pid):
        if self.options.pin:
            subprocess.run(["taskset", "-a", "-c", "-p", str(self.server_core), str(pid)],
                           check=True, stdout=subprocess.DEVNULL)

    def pinned(self, *command):
        line = ["taskset", "-c", str(self.load_core)] if self.options.pin else []
        done = subprocess.run(line + [str(word) for word in command], timeout=1800, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            sys.exit("%s failed:\n%s" % (command[0], done.stdout))
        return done.stdout

    def open_loop(self, host, kind, count, percent, rate, seconds, seed):
        """open.c's figures: requests a second, p50, p99, p99.9, max in microseconds."""
        out = self.pinned(self.program("open"), host.server.port, kind, count, percent, rate, seconds,
                          CONNECTIONS, seed)
        return [float(word) for word in out.split()[1:]]

    # --- the parts; each takes {"kvik": Host, "redis": Host} ---

    def take_turns(self, hosts, measure):
        """Rounds of measure(host, round) on both; {which: [result, ...]}. The first warms up."""
        taken = {which: [] for which in BOTH}
        for number in range(self.options.rounds + 1):
            for which in BOTH if number % 2 else reversed(BOTH):
                result = measure(hosts[which], number)
                if number > 0:
                    taken[which].append(result)
        return taken

    def row(self, name, figures, scale, form, target=None):
        """One line: medians of both and of the ratios of rounds."""
        ratio = statistics.median(a / b for a, b in zip(figures["kvik"], figures["redis"]))
        verdict = "" if target is None else "%8.2f %s" % (
            target, "reached" if ratio <= target else "MISSED")
        middle = [form % (statistics.median(figures[which]) * scale) for which in BOTH]
        print("%-34s %12s %12s %8.2f %s" % (name, *middle, ratio, verdict), flush=True)
        self.results.append({"row": name, "target": target, "ratio": ratio, **figures})

    def wall_and_cpu(self, name, taken):
        for i, what in enumerate(("wall", "CPU")):
            self.row("%s, %s s" % (name, what), {w: [t[i] for t in taken[w]] for w in BOTH}, 1, "%.3f",
                     TARGET_RATIO)

    def save(self, hosts, data, _count):
        self.wall_and_cpu("%s: SAVE" % data, self.take_turns(hosts, lambda h, _: h.timed_save()))
        self.row("%s: file, bytes" % data, {w: [hosts[w].file_bytes()] for w in BOTH}, 1, "%d")
        self.wall_and_cpu("%s: BGSAVE" % data,
                          self.take_turns(hosts, lambda h, _: h.timed_background_save()))

    def load(self, hosts, data, _count):
        def restart(host, _):
            host.stop()
            return host.start()
        for host in hosts.values():
            host.ask("SAVE")
        self.wall_and_cpu("%s: load" % data, self.take_turns(hosts, restart))

    def memory(self, hosts, data, count):
        """Memory beyond what there was, while a saving goes on beside random writes."""
        def watch(host, number):
            seconds = 1 if self.options.quick else 3
            before = family_bytes(host.server.pid)
            sampler, saving = Sampler(host.server.pid), Saving(host)
            self.open_loop(host, DATA[data][0], count, 100, WRITES_PER_SECOND, seconds, number)
            saving.stop()
            return max(0, sampler.stop() - before)
        self.row("%s: extra memory, MiB" % data, self.take_turns(hosts, watch), 1 / 2**20, "%.1f")

    def latency(self, hosts, data, count):
        kind, seconds = DATA[data][0], 1 if self.options.quick else 4
        rate = min(self.open_loop(hosts[w], kind, count, 50, 0, 1, 1)[0] for w in BOTH) / 2

        def both(host, number):
            idle = self.open_loop(host, kind, count, 50, rate, seconds, number)
            saving = Saving(host)
            busy = self.open_loop(host, kind, count, 50, rate, seconds, number)
            return idle, busy, saving.stop()
        taken = self.take_turns(hosts, both)
        print("%s: %d requests a second, half of the highest rate" % (data, rate))
        for at, name in ((2, "p99"), (4, "max")):
            for i, when in enumerate(("idle", "saving")):
                self.row("%s: %s %s, us" % (data, name, when),
                         {w: [t[i][at] for t in taken[w]] for w in BOTH}, 1, "%.0f")
        factors = {w: [t[1][2] / t[0][2] for t in taken[w]] for w in BOTH}
        kvik, redis = (statistics.median(factors[w]) for w in BOTH)
        print("%-34s %12.2f %12.2f %8s %8.2f %s" % (
            "%s: p99 saving to idle" % data, kvik, redis, "", TARGET_P99,
            "reached" if kvik <= TARGET_P99 else "MISSED"), flush=True)
        self.results.append({"row": "%s: p99 saving to idle" % data, "target": TARGET_P99, **factors})

    def run(self, names):
        o = self.options
        print("%s, Linux %s, Kvik with %d threads, %d rounds, scale %g" % (
            cpu_name(), platform.release(), o.threads, o.rounds, o.scale))
        for data in names:
            count = max(1000, int(DATA[data][1] * o.scale))
            print("\n%-34s %12s %12s %8s %8s" % ("%d %s" % (count, data), "Kvik", "Redis", "ratio",
                                                 "target"))
            folders = {which: tempfile.mkdtemp(prefix="kvik-bench-") for which in BOTH}
            hosts = {which: Host(self, which, folders[which]) for which in BOTH}
            for host in hosts.values():
                host.start()
                host.fill(data, count)
            for part in o.parts:
                getattr(self, part)(hosts, data, count)
            for host in hosts.values():
                host.stop()
                shutil.rmtree(host.dir)
        if o.json:
            Path(o.json).write_text(json.dumps(self.results, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", nargs="*", help="%s; all when none is named" % " ".join(DATA))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.2, help="factor on the numbers of items")
    parser.add_argument("--full", action="store_true", help="5 million keys, 200,000 hashes")
    parser.add_argument("--quick", action="store_true", help="one round of a fiftieth of the size")
    parser.add_argument("--threads", type=int, default=1, help="of Kvik")
    parser.add_argument("--pin", action="store_true",
                        help="servers with their children on one core, the load on another")
    parser.add_argument("--parts", default=",".join(PARTS), type=lambda text: text.split(","))
    parser.add_argument("--json", help="write all rounds to this file")
    options = parser.parse_args()
    if options.full:
        options.scale = 1.0
    if options.quick:
        options.rounds, options.scale = 1, 0.02
    names = options.data or list(DATA)
    if set(names) - set(DATA) or set(options.parts) - set(PARTS):
        parser.error("data: %s; parts: %s" % (" ".join(DATA), " ".join(PARTS)))
    PersistBench(options).run(names)


if __name__ == "__main__":
    main()
