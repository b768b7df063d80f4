#!/usr/bin/python3
"""What the memory path costs inside commands, before and after: CPU per command and the share of
instructions spent in memory functions.

    tests/bench/mem/server.py --before REV [--after REV] [--rounds N]

Both revisions are exported to temporary folders and built there in the release variant, with
commands.c of this folder (without --after: the files as they are here). Rounds alternate; figures
are medians. callgrind counts instructions of a run of its own; an instruction belongs to the memory
functions when it lies in the allocator's library, or when a function of src/mem is among those that
it was inlined through. Parts: blocks (allocating, freeing, counting), sizes (kv_mem_block_size),
arenas, and the library below.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from memory import replace_between_marks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORKLOADS = ["set", "mset"]
TIMED = {"set": 2_000_000, "mset": 200_000}
COUNTED = {"set": 100_000, "mset": 10_000}
SHARE_LIMIT = 5.0  # percent of instructions


def run(command, **options):
    done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=1200, **options)
    if done.returncode != 0:
        sys.exit("%s: status %d\n%s" % (" ".join(map(str, command)), done.returncode, done.stdout))
    return done.stdout


def export(revision, folder):
    """The files of a revision; None: those of the working tree that git knows."""
    folder.mkdir()
    if revision is None:
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "Makefile", "mk", "src",
                                "tests/bench"], check=True, capture_output=True).stdout
        for name in filter(None, names.decode().split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)
    else:
        archive = subprocess.run(["git", "-C", ROOT, "archive", revision], check=True,
                                 capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    (folder / "tests/bench/mem").mkdir(parents=True, exist_ok=True)
    for name in ("commands.c", "measure.h"):
        shutil.copyfile(HERE / name, folder / "tests/bench/mem" / name)


def build(revision, folder):
    """The program of a revision."""
    export(revision, folder)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    program = folder / "build/release/bench/mem/commands"
    run(["make", "-j2", "--no-print-directory", "BUILD=%s" % (folder / "build"), "V=release",
         program], cwd=folder, env=env)
    return program


def timed(program, work, core):
    return float(run(["taskset", "-c", core, program, work, TIMED[work]]))


# --- instructions ---

def callgrind(program, work, out):
    run(["valgrind", "--tool=callgrind", "--callgrind-out-file=%s" % out, "--dump-instr=yes",
         "--compress-strings=no", "--compress-pos=no", "--collect-atstart=no",
         program, work, COUNTED[work], 20000])


def costs_by_address(path, program):
    """({address: instructions} of `program`, {object: instructions} of everything else)."""
    own, others, current, skip = {}, {}, "", False
    for line in path.read_text().splitlines():
        if line.startswith("ob="):
            current = line[3:]
        elif line.startswith("calls="):
            skip = True  # the next line is what the call cost in all
        elif line.startswith("0x"):
            if not skip:
                address, _, cost = line.split()
                if current == program:
                    own[int(address, 16)] = own.get(int(address, 16), 0) + int(cost)
                else:
                    others[current] = others.get(current, 0) + int(cost)
            skip = False
    return own, others


PARTS = ["blocks", "sizes", "arenas", "library"]


def part_of(function, source):
    if source.startswith("arena"):
        return "arenas"
    return "sizes" if function == "kv_mem_block_size" else "blocks"


def parts_by_address(program, addresses):
    """{address: one of PARTS} for those that were inlined through a function of src/mem."""
    text = subprocess.run(["addr2line", "-a", "-i", "-f", "-e", program], text=True, check=True,
                          input="\n".join("0x%x" % a for a in addresses),
                          capture_output=True).stdout
    found, address, function = {}, None, ""
    for line in text.splitlines():
        match = re.search(r"src/mem/(\w+\.[ch]):", line)
        if re.fullmatch(r"0x[0-9a-f]+", line):
            address = int(line, 16)
        elif match and address not in found:
            found[address] = part_of(function, match.group(1))
        function = line
    return found


def shares(program, work, folder):
    """(instructions per command, {part: percent of them})."""
    out = folder / ("callgrind." + work)
    callgrind(program, work, out)
    own, others = costs_by_address(out, str(program))
    found = parts_by_address(program, list(own))
    if not found:
        sys.exit("no instruction of src/mem was recognised in %s" % program)
    total = sum(own.values()) + sum(others.values())
    sums = dict.fromkeys(PARTS, 0)
    for address, part in found.items():
        sums[part] += own[address]
    sums["library"] = sum(cost for name, cost in others.items() if "jemalloc" in name)
    return total / COUNTED[work], {part: 100 * cost / total for part, cost in sums.items()}


def result(options, programs, samples):
    lines = []
    head = ["command", "", "CPU ns", "instructions", "memory functions"] + PARTS
    lines.append("| " + " | ".join(head) + " |")
    lines.append("| " + " | ".join("---" for _ in head) + " |")
    sums = {}
    for work in WORKLOADS:
        for which, program in programs.items():
            count, parts = shares(program, work, program.parent)
            sums[which, work] = sum(parts.values())
            lines.append("| %s | %s | %.0f | %.0f | %.1f %% | %s |" % (
                work.upper(), which, statistics.median(samples[which, work]), count,
                sums[which, work], " | ".join("%.1f" % parts[p] for p in PARTS)))
    lines.append("")
    for work in WORKLOADS:
        ratios = [a / b for a, b in zip(samples["after", work], samples["before", work])]
        lines.append("- %s: CPU after / before %.3f (median of %d rounds)" % (
            work.upper(), statistics.median(ratios), options.rounds))
    for work in WORKLOADS:
        share = sums["after", work]
        lines.append("- %s %s: %.1f %% of instructions in memory functions, limit %.0f" % (
            "PASS" if share <= SHARE_LIMIT else "MISS", work.upper(), share, SHARE_LIMIT))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--before", required=True, help="revision to compare with")
    parser.add_argument("--after", help="revision; default: the working tree")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--document", type=Path,
                        help="put the result between the marks bench-mem-server of this file")
    options = parser.parse_args()
    core = str(sorted(os.sched_getaffinity(0))[-1])
    with tempfile.TemporaryDirectory(prefix="kvik-bench-mem-") as name:
        folder = Path(name)
        programs = {"before": build(options.before, folder / "before"),
                    "after": build(options.after, folder / "after")}
        samples = {(which, work): [] for which in programs for work in WORKLOADS}
        for number in range(options.rounds):
            order = list(programs) if number % 2 == 0 else list(programs)[::-1]
            for work in WORKLOADS:
                for which in order:
                    samples[which, work].append(timed(programs[which], work, core))
        text = result(options, programs, samples)
    print(text)
    if options.document:
        replace_between_marks(options.document, "bench-mem-server", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
