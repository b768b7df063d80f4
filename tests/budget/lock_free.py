#!/usr/bin/python3
"""Looks for locked instructions in the fast paths of mem/.

    lock_free.py FAST_PATHS_PROGRAM SERVER

Disassembles both programs (objdump) and walks, from each function that fast_paths.txt calls fast,
all direct calls and jumps to other functions, up to those it calls slow. What must not be met:
a lock prefix, an exchange with memory (locked by itself), mfence, and a call of pthread_*. In the
server, functions may have been inlined or split: of each listed function whatever is left
(`kv_mem_free`, `kv_mem_free.part.0`, `kv_mem_free.constprop.0`, ...) is walked.

Prints a line `ok ...` or `not ok ...` per function and program. The detector itself is tried on a
small program with an atomic addition, an exchange and a mutex, and must find all of them there.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^\s+[0-9a-f]+:\s+(.*?)\s*$")
TARGET = re.compile(r"<([^>+]+)(?:\+0x[0-9a-f]+)?>")
BRANCH = re.compile(r"^(?:bnd |notrack )*(call|jmp|j[a-z]+)q?\s")

# Each function breaks the rule in its own way; `innocent` does not.
EXAMPLE = """
#include <pthread.h>
#include <stdatomic.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
atomic_long number;
long plain;
__attribute__((noipa)) void adds(void) { atomic_fetch_add_explicit(&number, 1, memory_order_relaxed); }
__attribute__((noipa)) long exchanges(long n) { return atomic_exchange_explicit(&number, n, memory_order_relaxed); }
__attribute__((noipa)) void fences(void) { __builtin_ia32_mfence(); }
__attribute__((noipa)) void locks(void) { pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); }
__attribute__((noipa)) void hides(void) { plain++; adds(); plain++; }
__attribute__((noipa)) void jumps(void) { plain++; adds(); }
__attribute__((noipa)) void innocent(void)
{ atomic_store_explicit(&number, atomic_load_explicit(&number, memory_order_relaxed) + 1, memory_order_relaxed); }
int main(void) { adds(); exchanges(2); fences(); locks(); hides(); jumps(); innocent(); return 0; }
"""
GUILTY = ["adds", "exchanges", "fences", "locks", "hides", "jumps"]


class Program:
    """The functions of a program: name -> list of instructions."""

    def __init__(self, path):
        self.name = Path(path).name
        listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(path)], check=True,
                                 capture_output=True, text=True).stdout
        self.functions = {}
        current = None
        for line in listing.splitlines():
            symbol = SYMBOL.match(line)
            if symbol:
                # Local functions of different files may share a name: all of them count.
                current = self.functions.setdefault(symbol.group(1), [])
                continue
            instruction = INSTRUCTION.match(line)
            if instruction and current is not None:
                current.append(instruction.group(1))

    def versions(self, name):
        """The function and what the compiler split from it or made of it."""
        return [have for have in self.functions if have.split(".")[0] == name]

    def problems(self, name, slow, rare):
        """Findings on the paths from a function: (path, text). `rare`: function -> how many locked
        instructions it may have."""
        found, seen = [], set()
        waiting = [(name, name)]
        while waiting:
            at, path = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            allowed = rare.get(at, 0)
            for text in self.functions[at]:
                reason = forbidden(text)
                if reason and reason.startswith("locked") and allowed > 0:
                    allowed -= 1
                elif reason:
                    found.append((path, "%s: %s" % (reason, " ".join(text.split()))))
                for target in reached(text):
                    if target in self.functions and target.split(".")[0] not in slow \
                            and not target.endswith("@plt"):
                        waiting.append((target, path + " > " + target))
        return found


def forbidden(text):
    words = text.split()
    if "lock" in words[:3]:
        return "locked instruction"
    if words[0].startswith("xchg") and "(" in text:
        return "exchange with memory"
    if words[0] == "mfence":
        return "fence"
    for target in reached(text):
        if target.startswith("pthread_"):
            return "call of " + target.split("@")[0]
    return None


def reached(text):
    """Functions that an instruction calls or jumps to."""
    if not BRANCH.match(text):
        return []
    return TARGET.findall(text)


def read_list():
    """(fast functions, slow functions, {rare function: locked instructions})"""
    fast, slow, rare = [], set(), {}
    for number, line in enumerate((HERE / "fast_paths.txt").read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if len(words) == 2 and words[0] == "fast":
            fast.append(words[1])
        elif len(words) == 2 and words[0] == "slow":
            slow.add(words[1])
        elif len(words) == 3 and words[0] == "rare" and words[2].isdigit():
            rare[words[1]] = int(words[2])
        elif words:
            sys.exit("fast_paths.txt:%d: want fast, slow or rare, and a name" % number)
    return fast, slow, rare


def report(good, text):
    print("%s %s" % ("ok" if good else "not ok", text), flush=True)
    return good


def check(program, name, lists, must_exist):
    versions = program.versions(name)
    if not versions:
        return report(not must_exist, "%s: %s %s" % (
            program.name, name, "does not exist" if must_exist else "is inlined everywhere"))
    findings = [finding for version in versions for finding in program.problems(version, *lists)]
    for path, text in findings[:8]:
        print("    %s: %s" % (path, text))
    return report(not findings, "%s: %s" % (program.name, name))


def try_detector():
    """The detector finds what it is for, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="kvik-lock-free-") as folder:
        source, binary = Path(folder) / "example.c", Path(folder) / "example"
        source.write_text(EXAMPLE)
        subprocess.run(["gcc", "-O2", "-pthread", "-o", str(binary), str(source)], check=True)
        example = Program(binary)
    good = True
    for name in GUILTY + ["innocent"]:
        found = bool(example.problems(name, set(), {}))
        good &= report(found == (name in GUILTY), "detector: %s" % name)
    good &= report(not example.problems("hides", {"adds"}, {}), "detector: stops at what is slow")
    good &= report(not example.problems("adds", set(), {"adds": 1}), "detector: one may be rare")
    return good


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    fast, *lists = read_list()
    good = try_detector()
    program, server = Program(sys.argv[1]), Program(sys.argv[2])
    for name in fast:
        # What mem.h inlines has no function of its own; the wrappers must be there.
        good &= check(program, name, lists, name.startswith("kv_fast_"))
    known = {name.split(".")[0] for name in program.functions}
    for name in sorted(lists[0].union(lists[1]) - known):
        good &= report(False, "fast_paths.txt: %s does not exist" % name)
    for name in fast:
        if not name.startswith("kv_fast_"):
            good &= check(server, name, lists, False)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
