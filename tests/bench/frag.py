#!/usr/bin/python3
"""Does memory come back? `make bench-frag`, or this file with options.

Kvik and redis-server, each alone on the first core with its load generator on the second, are
filled with values of 100 bytes until SIZE_MB are in use, lose 90 % of the keys at random, and are
filled with values of 150 bytes until as much is in use again. Kvik switches activedefrag on after
the deletion; redis-server is asked to, and its answer printed. Resident and used bytes are as INFO
tells them. A steady load of GETs (one at a time, so many a second) is measured before the deletion
with nothing else going on, and while activedefrag runs. README.md says how to read the result.
"""
import argparse
import os
import platform
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
from process import REFERENCE, Server  # noqa: E402
from raw import Error  # noqa: E402

TARGET_RATIO, TARGET_P99 = 1.15, 2.0
DELETED_PERCENT = 90
STEP_KEYS = 50_000
SETTLE_SECONDS = 60  # at most, after the last filling
QUIET_SECONDS = 6    # without an evacuation: it is over


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


class Subject:
    """One server in the course of the measurement."""

    def __init__(self, which, options):
        self.which, self.options = which, options
        self.size = options.size_mb * 1_000_000
        self.server_core, self.load_core = cores()
        args = []
        if which == "kvik":
            args = ["--active-defrag-ignore-bytes", str(self.size // 50),
                    "--active-defrag-threshold-lower", "5"]
        self.server = Server(*args, binary=REFERENCE if which == "redis" else None,
                             threads=options.threads, debug=False)
        if options.threads == 1:
            subprocess.run(["taskset", "-a", "-c", "-p", str(self.server_core),
                            str(self.server.pid)], check=True, stdout=subprocess.DEVNULL)
        self.conn = self.server.raw(timeout=60)
        self.keys = {}   # by prefix
        self.rows = []
        self.active = []  # (monotonic seconds, percent of time) while anything was watched

    def load(self, *args):
        return ["taskset", "-c", str(self.load_core), self.options.program,
                args[0], str(self.server.port), *map(str, args[1:])]

    def run(self, *args):
        subprocess.run(self.load(*args), check=True)

    def info(self):
        text = self.conn.cmd("INFO", "everything").decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def note(self, what):
        info = self.info()
        used, resident = int(info["used_memory"]), int(info["used_memory_rss"])
        self.rows.append((what, used, resident))
        print("  %-34s used %7.1f MB, resident %7.1f MB, ratio %5.2f" % (
            what, used / 1e6, resident / 1e6, resident / used), flush=True)
        return resident / used

    def fill(self, prefix, value_bytes):
        """Until `size` bytes are in use; steps shrink towards the end."""
        done = 0
        while True:
            missing = self.size - int(self.info()["used_memory"])
            step = min(STEP_KEYS, missing // (value_bytes + 100))
            if step <= 0:
                break
            self.run("set", prefix, done, done + step, value_bytes)
            done += step
        self.keys[prefix] = done

    # --- the steady load ---

    def watch(self, ended):
        """Samples how much time activedefrag takes."""
        conn = self.server.raw(timeout=60)
        while not ended.is_set():
            text = conn.cmd("INFO", "memory").decode()
            at = text.find("active_defrag_running:")
            running = int(text[at:].split(":", 1)[1].split("\r", 1)[0]) if at >= 0 else 0
            self.active.append((time.monotonic(), running))
            ended.wait(0.05)
        conn.close()

    def ask(self, seconds, until_quiet=False):
        """Latencies of the GETs: [(end, microseconds)]. until_quiet: ends as soon as no evacuation
        has run for QUIET_SECONDS."""
        ended = threading.Event()
        watcher = threading.Thread(target=self.watch, args=(ended,))
        with tempfile.TemporaryFile("w+") as out:
            asking = subprocess.Popen(self.load("get", "old", self.keys["old"], DELETED_PERCENT,
                                                self.options.rate, int(seconds)), stdout=out)
            watcher.start()
            while asking.poll() is None:
                time.sleep(0.2)
                if until_quiet and self.quiet():
                    asking.terminate()
            ended.set()
            watcher.join()
            out.seek(0)
            lines = [line.split() for line in out.read().splitlines()]
        return [(float(line[0]), float(line[1])) for line in lines if len(line) == 2 and line[1]]

    def quiet(self):
        now = time.monotonic()
        recent = [running for at, running in self.active if at > now - QUIET_SECONDS]
        return len(recent) >= QUIET_SECONDS * 8 and not any(recent)

    def while_active(self, latencies):
        """Those that ended while an evacuation ran."""
        found, i = [], 0
        for end, latency in latencies:
            while i + 1 < len(self.active) and self.active[i + 1][0] < end:
                i += 1
            if self.active and self.active[i][1] > 0 and self.active[i][0] <= end:
                found.append(latency)
        return found

    def print_latency(self, what, values):
        if not values:
            return
        print("  %-34s %7d GETs, p50 %4.0f us, p99 %4.0f us, p99.9 %5.0f us, max %6.0f us" % (
            what, len(values), percentile(values, 0.5), percentile(values, 0.99),
            percentile(values, 0.999), max(values, default=0)), flush=True)

    # --- the course ---

    def measure(self):
        print("\n%s" % self.which)
        self.fill("old", 100)
        self.note("filled, values of 100 bytes")
        self.ask(2)
        idle = [latency for _, latency in self.ask(self.options.seconds)]
        self.print_latency("idle", idle)
        self.run("del", "old", self.keys["old"], DELETED_PERCENT)
        self.note("90 % deleted at random")
        answer = self.conn.cmd("CONFIG", "SET", "activedefrag", "yes")
        if isinstance(answer, Error):
            print("  activedefrag: %s" % answer, flush=True)
        del self.active[:]
        latencies = self.ask(120 if answer == b"OK" else 5, until_quiet=True)
        self.note("some seconds later")
        self.fill("new", 150)
        self.note("filled again, values of 150 bytes")
        latencies += self.ask(SETTLE_SECONDS, until_quiet=True)
        ratio = self.note("at the end")
        meanwhile = self.while_active(latencies)
        self.print_latency("while activedefrag runs", meanwhile)
        info = self.info()
        print("  moved %s blocks, left %s; %s ms in all" % (
            info["active_defrag_hits"], info["active_defrag_misses"],
            info["total_active_defrag_time"]), end="")
        print(", longest slice %s us" % info["defrag_slice_us_max"]
              if "defrag_slice_us_max" in info else "")
        self.conn.close()
        self.server.process.terminate()
        self.server.wait(120)  # millions of keys are freed one by one
        self.server.stop()
        return ratio, percentile(meanwhile, 0.99) / percentile(idle, 0.99)


def program():
    """tests/bench/frag.c, as make built it, or built here."""
    built = ROOT / "build" / "release" / "bench" / "frag"
    if built.exists():
        return str(built)
    path = os.path.join(tempfile.mkdtemp(prefix="kvik-bench-"), "frag")
    subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O2", "-o", path, str(HERE / "frag.c")],
                   check=True)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("size_mb", nargs="?", type=int, default=1000, help="bytes in use, MB")
    parser.add_argument("--rate", type=int, default=2000, help="GETs a second")
    parser.add_argument("--seconds", type=int, default=15, help="length of the idle measurement")
    parser.add_argument("--threads", type=int, default=1, help="of Kvik; more than 1: not pinned")
    parser.add_argument("--only", choices=["kvik", "redis"])
    options = parser.parse_args()
    options.program = program()
    print("%s, Linux %s, %d MB, %d GETs a second" % (cpu_name(), platform.release(),
                                                     options.size_mb, options.rate))
    results = {which: Subject(which, options).measure()
               for which in ("kvik", "redis") if options.only in (None, which)}
    print("\n%-10s %16s %22s" % ("", "resident / used", "p99 busy / p99 idle"))
    for which, (ratio, p99) in results.items():
        print("%-10s %16.3f %22s" % (which, ratio, "%.2f" % p99 if p99 == p99 else "-"))
    print("%-10s %16.2f %22.1f" % ("target", TARGET_RATIO, TARGET_P99))


if __name__ == "__main__":
    main()
