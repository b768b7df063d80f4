#!/usr/bin/python3
"""Compares Kvik's allocator with others: `make bench-mem`, or this file with options.

Every contender is a program of its own, built from paths.c. Rounds alternate between them, and who
begins a round changes; a figure is the median over the rounds of CPU nanoseconds per pair of
allocation and free. Instructions are counted by callgrind. One thread runs on the second allowed
core, two threads on the first and the second. The last lines are the checks: PASS or MISS.
"""
import argparse
import contextlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# jemalloc's options for deep and wide caches: 16 slabs' worth of blocks a class, 1,000 to 4,000.
ENLARGED = ("tcache_max:65536,lg_tcache_nslots_mul:4,tcache_nslots_small_min:1000,"
            "tcache_nslots_small_max:4000,tcache_nslots_large:200")
# name: (program, MALLOC_CONF, what it is)
CONTENDERS = {
    "kvik": ("kvik", "", "kv_mem_alloc, kv_mem_free; the release build (-O2, LTO)"),
    "kvik-plain": ("kvik-plain", "", "the same sources with -O2, without LTO"),
    "pool": ("pool", "", "intrusive list a size and thread, no accounting: the limit"),
    "jemalloc": ("jemalloc", "", "malloc, free"),
    "sized": ("sized", "", "jemalloc: malloc, sdallocx"),
    "enlarged": ("sized", ENLARGED, "jemalloc: malloc, sdallocx, enlarged thread caches"),
    "counted": ("counted", "", "jemalloc: size look-up and an atomic add at both ends"),
    "mimalloc": ("mimalloc", "", "mi_malloc, mi_free"),
    "glibc": ("glibc", "", "malloc, free"),
    "none": ("none", "", "no allocation: what the loops and random numbers cost"),
}
GENERAL = ["jemalloc", "sized", "enlarged", "counted", "mimalloc", "glibc"]
SIZES = [16, 24, 32, 48, 64, 100, 128, 192, 256, 384, 512]
DOCUMENTED_SIZES = [16, 48, 100, 256, 512]
SMALL_PATTERNS = ["pair", "burst", "reverse"]
HANDOFF_SIZES = [16, 64, 256]
POOL_LIMIT, COUNTED_FACTOR = 1.25, 6.0
CACHE_LIMIT_BYTES = 2 * 1024 * 1024
BURST_SIZES = [16, 24, 32, 48, 64]  # of which a pipeline's bursts consist


class Scale:
    """How much work: (full, quick)."""

    def __init__(self, quick):
        self.small_rounds, self.slice_us = (2, 250) if quick else (11, 1200)
        self.big_rounds = 1 if quick else 7
        self.operations = 200_000 if quick else 2_000_000
        self.handoffs = 100_000 if quick else 1_000_000
        self.instruction_sizes = [48] if quick else [0]


class MemoryBench:
    def __init__(self, programs, scale):
        self.programs, self.scale = Path(programs), scale
        self.samples = {}  # (contender, what, variant, size): figures, one a round
        self.instructions = {}  # likewise: instructions a pair
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            sys.exit("bench-mem needs two cores")
        self.one_core, self.both = str(cores[1]), "%d,%d" % (cores[0], cores[1])

    def environment(self, name):
        env = {k: v for k, v in os.environ.items() if k not in ("MALLOC_CONF", "LD_PRELOAD")}
        if CONTENDERS[name][1]:
            env["MALLOC_CONF"] = CONTENDERS[name][1]
        return env

    def command(self, name, cores, *arguments):
        program = self.programs / CONTENDERS[name][0]
        return ["taskset", "-c", cores, str(program), *map(str, arguments)]

    def run(self, name, cores, *arguments):
        command = self.command(name, cores, *arguments)
        done = subprocess.run(command, env=self.environment(name), text=True, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0 or "Invalid conf" in done.stderr:
            sys.exit("%s: status %d\n%s" % (" ".join(command), done.returncode, done.stderr))
        for line in done.stdout.splitlines():
            what, variant, size, figure = line.split()
            key = (name, what, variant, int(size))
            self.samples.setdefault(key, []).append(float(figure))

    def rounds(self, count, names, cores, *arguments):
        for number in range(count):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                self.run(name, cores, *arguments)

    def measure(self):
        everybody = list(CONTENDERS)
        # The pool cannot hand blocks to another thread: they would only pile up there.
        sharing = [n for n in everybody if n != "pool"]
        self.rounds(self.scale.small_rounds, everybody, self.one_core, "small",
                    self.scale.slice_us)
        self.rounds(self.scale.big_rounds, everybody, self.one_core, "churn",
                    self.scale.operations)
        self.rounds(self.scale.big_rounds, sharing, self.both, "handoff", self.scale.handoffs)
        self.rounds(1, everybody, self.one_core, "caches")

    # --- instructions ---

    def count_instructions(self):
        jobs = [(name, size) for name in CONTENDERS for size in self.scale.instruction_sizes]
        with ThreadPoolExecutor(2) as pool:
            for name, counted in pool.map(self.count_of, jobs):
                for (what, variant, size), figure in counted.items():
                    self.instructions[name, what, variant, size] = figure

    def count_of(self, job):
        name, only_size = job
        with tempfile.TemporaryDirectory(prefix="kvik-bench-mem-") as folder:
            command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=%s/out" % folder,
                       *self.command(name, self.both, "instructions", only_size)[3:]]
            done = subprocess.run(command, env=self.environment(name), text=True, timeout=300,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if done.returncode != 0:
                sys.exit("%s: status %d\n%s" % (" ".join(command), done.returncode, done.stderr))
            return name, dict(filter(None, map(read_dump, Path(folder).iterdir())))

    # --- figures ---

    def figure(self, name, what, variant, size):
        samples = self.samples.get((name, what, variant, size))
        return statistics.median(samples) if samples else None

    def small(self, name, pattern, size):
        return self.figure(name, pattern, "constant", size)

    def spread(self, name, what, variant, size):
        """Half the distance of the quartiles, relative to the median."""
        samples = sorted(self.samples.get((name, what, variant, size), []))
        if len(samples) < 4:
            return None
        quarters = statistics.quantiles(samples, n=4)
        return (quarters[2] - quarters[0]) / 2 / quarters[1]


def read_dump(path):
    """((pattern, variant, size), instructions a pair) of one dump of callgrind, or None."""
    text = path.read_text()
    name = re.search(r"^desc: Trigger: Client Request: (\w+) (\w+) (\d+) (\d+)$", text, re.M)
    total = re.search(r"^(?:totals|summary): (\d+)", text, re.M)
    if name is None or total is None:
        return None
    pattern, variant, size, steps = name.groups()
    return (pattern, variant, int(size)), int(total.group(1)) / int(steps)


# --- what is printed ---

def cell(value, digits=2):
    return "-" if value is None else "%.*f" % (digits, value)


def print_table(title, head, rows):
    print("\n### %s\n" % title)
    print("| " + " | ".join(head) + " |")
    print("| " + " | ".join("---" for _ in head) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def print_small(bench):
    """Tables of times and of instructions, whichever were taken."""
    columns = [("kvik", "constant"), ("kvik", "variable"), ("kvik-plain", "constant"),
               ("pool", "constant"), ("pool", "variable")]
    columns += [(n, "constant") for n in CONTENDERS if n not in ("kvik", "kvik-plain", "pool")]
    head = ["bytes"] + [n if n not in ("kvik", "pool") else "%s, %s" % (n, v) for n, v in columns]
    for pattern in SMALL_PATTERNS:
        rows = [[str(size)] + [cell(bench.figure(n, pattern, v, size)) for n, v in columns]
                for size in SIZES if bench.samples]
        if rows:
            print_table("%s: CPU ns a pair" % pattern, head, rows)
    for pattern in SMALL_PATTERNS:
        rows = [[str(size)] + [cell(bench.instructions.get((n, pattern, v, size)), 1)
                               for n, v in columns]
                for size in SIZES if any(k[1] == pattern and k[3] == size
                                         for k in bench.instructions)]
        if rows:
            print_table("%s: instructions a pair (callgrind)" % pattern, head, rows)


def print_big(bench):
    def row(name):
        figures = [bench.figure(name, w, "variable", 0) for w in ("churn", "churn-read")]
        figures += [bench.figure(name, "handoff", "constant", s) for s in HANDOFF_SIZES]
        resident = bench.figure(name, "churn-resident", "variable", 0)
        caches = [bench.figure(name, "churn-cache", "variable", 0),
                  bench.figure(name, "cache-most", "variable", 0)]
        return ([name] + [cell(f, 1) for f in figures]
                + [cell(resident if name != "none" else None, 3)]
                + ["-" if c is None or c < 0 else "%.0f" % (c / 1024) for c in caches])

    head = ["", "churn", "churn, read first"] + ["handoff %d" % s for s in HANDOFF_SIZES]
    head += ["resident / live", "caches after churn, KiB", "caches at most, KiB"]
    print_table("churn and handoff: CPU ns a pair, both threads together", head,
                [row(name) for name in CONTENDERS])


def ratio_check(bench, pattern, other, good, text):
    """One check over all sizes: (holds, line). `ratio` is other's time over Kvik's."""
    ratios = {}
    for size in SIZES:
        mine, theirs = bench.small("kvik", pattern, size), bench.small(other, pattern, size)
        ratios[size] = theirs / mine
    worst = min(ratios, key=ratios.get)
    missed = [size for size in SIZES if not good(ratios[size])]
    return not missed, text(worst, ratios[worst], missed)


def checks(bench):
    for pattern in SMALL_PATTERNS:
        yield ratio_check(
            bench, pattern, "pool", lambda r: 1 / r <= POOL_LIMIT,
            lambda size, r, missed: "%s: %.2f times the pool at worst (%d bytes), limit %.2f%s" % (
                pattern, 1 / r, size, POOL_LIMIT, at_sizes(missed)))
    for pattern in SMALL_PATTERNS:
        yield ratio_check(
            bench, pattern, "counted", lambda r: r >= COUNTED_FACTOR,
            lambda size, r, missed: "%s: %.1f times faster than jemalloc with look-up and atomics "
            "at worst (%d bytes), wanted %.0f%s" % (pattern, r, size, COUNTED_FACTOR,
                                                    at_sizes(missed)))
    for what, variant, size in ([("churn", "variable", 0), ("churn-read", "variable", 0)]
                                + [("handoff", "constant", s) for s in HANDOFF_SIZES]):
        mine = bench.figure("kvik", what, variant, size)
        best = min(GENERAL, key=lambda n: bench.figure(n, what, variant, size))
        theirs = bench.figure(best, what, variant, size)
        yield mine <= theirs, "%s%s: %.1f ns, best of the others %.1f (%s)" % (
            what, " of %d bytes" % size if size else "", mine, theirs, best)
    most = max(bench.figure("kvik", w, "variable", 0) for w in ("cache-most", "churn-cache"))
    yield 0 < most <= CACHE_LIMIT_BYTES, "thread cache: %.0f KiB at most, limit %d" % (
        most / 1024, CACHE_LIMIT_BYTES / 1024)
    traffic = {size: sum(bench.figure("kvik", "steady-%s" % p, "constant", size)
                         for p in ("burst", "reverse")) for size in BURST_SIZES}
    yield not any(traffic.values()), "bursts of 640 blocks of %d to %d bytes: %d refills and " \
        "flushes in 200" % (BURST_SIZES[0], BURST_SIZES[-1], sum(traffic.values()))


def at_sizes(missed):
    return "; missed at " + ", ".join(map(str, missed)) if missed else ""


def print_noise(bench):
    spreads = [s for key in bench.samples if key[1] in SMALL_PATTERNS
               for s in [bench.spread(*key)] if s is not None]
    if spreads:
        print("\nspread of pair and burst over the rounds (half the distance of the quartiles): "
              "median %.1f %%, worst %.0f %%" % (100 * statistics.median(spreads),
                                                 100 * max(spreads)))


# --- the section of docs/measurements.md ---

def document(bench, verdicts):
    """What stands between the marks of the document: fewer sizes, times and instructions
    together, the checks."""
    def both(name, pattern, variant, size):
        instructions = bench.instructions.get((name, pattern, variant, size))
        return cell(bench.figure(name, pattern, variant, size), 1) + (
            " (%.0f)" % instructions if instructions is not None else "")

    columns = [("kvik", "constant"), ("kvik", "variable")]
    columns += [(n, "constant") for n in ["pool", *GENERAL]]
    head = ["bytes", "Kvik", "Kvik, size unknown"] + [n for n, _ in columns[2:]]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for pattern in SMALL_PATTERNS:
            rows = [[str(size)] + [both(n, pattern, v, size) for n, v in columns]
                    for size in DOCUMENTED_SIZES]
            print_table("%s: CPU ns a pair (instructions)" % pattern, head, rows)
        print_big(bench)
        print()
        for holds, text in verdicts:
            print("- %s: %s" % ("reached" if holds else "missed", text))
    return out.getvalue()


def replace_between_marks(path, mark, text):
    """Puts text between the lines <!-- mark --> and <!-- /mark --> of a file."""
    old = path.read_text()
    begin, end = "<!-- %s -->\n" % mark, "<!-- /%s -->" % mark
    if old.count(begin) != 1 or old.count(end) != 1:
        sys.exit("%s: no marks %s" % (path, begin.strip()))
    path.write_text(old[:old.index(begin) + len(begin)] + text + "\n" + old[old.index(end):])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--programs", required=True, help="folder of the contenders")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work?")
    parser.add_argument("--json", help="write every figure of every round there")
    parser.add_argument("--document", type=Path,
                        help="put the result between the marks bench-mem of this file")
    parser.add_argument("--no-instructions", action="store_true", help="leave callgrind out")
    parser.add_argument("--only-instructions", action="store_true", help="nothing but callgrind")
    options = parser.parse_args()
    bench = MemoryBench(options.programs, Scale(options.quick))
    start, load = time.monotonic(), os.getloadavg()[0]
    for name, (_, conf, text) in CONTENDERS.items():
        print("%-11s %s%s" % (name, text, "; MALLOC_CONF=" + conf if conf else ""))
    sys.stdout.flush()
    if not options.no_instructions:
        bench.count_instructions()
    if options.only_instructions:
        print_small(bench)
        return 0
    bench.measure()
    print_small(bench)
    print_big(bench)
    print_noise(bench)
    print("\nload average at the start %.2f, at the end %.2f; %.0f s\n" % (
        load, os.getloadavg()[0], time.monotonic() - start))
    verdicts = list(checks(bench))
    for holds, text in verdicts:
        print("%s %s" % ("PASS" if holds else "MISS", text))
    if options.document:
        replace_between_marks(options.document, "bench-mem", document(bench, verdicts))
    if options.json:
        named = {kind: {" ".join(map(str, key)): value for key, value in figures.items()}
                 for kind, figures in (("ns", bench.samples), ("ir", bench.instructions))}
        Path(options.json).write_text(json.dumps(named, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
