#!/usr/bin/python3
"""Counts the instructions of fast paths under callgrind and compares them with budgets.txt.

    budget.py PROGRAM [case ...]        PROGRAM: build/release/budget/budget

Each case of budget.c runs with N and with 2 N rounds; the difference by N is what a round costs, so
that neither the start of the program nor warming up is counted. The cost of an empty round is
subtracted and the rest divided by the operations of a round. Prints `ok ...` or `not ok ...` per
case. A ceiling that lies far above what is counted is named as such, so that it gets lowered, but
does not fail: compilers differ. A case without a ceiling and a ceiling without a case fail.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
FUNCTION = "kv_budget_measured"
OPERATIONS = 2000  # about so many in N rounds
ROUNDS_MIN = 40    # the pipelines of budget.c cover their keys twice
TIMEOUT_S = 120
SLACK = 1.10       # a ceiling further above than this is named


def read_ceilings():
    ceilings = {}
    for number, line in enumerate((HERE / "budgets.txt").read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not re.fullmatch(r"\d+(\.\d+)?", words[1]):
            sys.exit("budgets.txt:%d: want a case and a number" % number)
        ceilings[words[0]] = float(words[1])
    return ceilings


def read_cases(program):
    """{case: (operations a round, text)}"""
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout
    rows = [line.split(" ", 2) for line in listed.splitlines()]
    return {name: (int(operations), text) for name, operations, text in rows}


def collected(program, case, rounds):
    """Instructions within the measured function."""
    with tempfile.NamedTemporaryFile(prefix="kvik-budget-") as out:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out.name,
             "--toggle-collect=" + FUNCTION, program, case, str(rounds)],
            capture_output=True, text=True, timeout=TIMEOUT_S)
        match = re.search(r"^(?:summary|totals): (\d+)", Path(out.name).read_text(), re.MULTILINE)
        if done.returncode != 0 or not match:
            raise RuntimeError("%s does not run under callgrind:\n%s" % (case, done.stderr[-2000:]))
        return int(match.group(1))


def per_round(program, case, operations):
    rounds = max(ROUNDS_MIN, OPERATIONS // operations)
    return (collected(program, case, 2 * rounds) - collected(program, case, rounds)) / rounds


def judge(case, text, counted, ceiling):
    if ceiling is None:
        print("not ok %-22s %8.1f instructions, no ceiling in budgets.txt (%s)" % (
            case, counted, text), flush=True)
        return False
    good = counted <= ceiling
    print("%s %-22s %8.1f of %g instructions (%s)%s" % (
        "ok" if good else "not ok", case, counted, ceiling, text,
        " -- lower the ceiling" if counted * SLACK < ceiling and ceiling - counted > 2 else ""),
        flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    ceilings, cases = read_ceilings(), read_cases(options.program)
    good = True
    for name in sorted(set(ceilings) - set(cases)):
        print("not ok %s: budgets.txt names it, budget.c does not" % name)
        good = False
    wanted = [case for case in cases if case in (options.cases or cases) and case != "loop"]
    with ThreadPoolExecutor(2) as pool:
        counts = pool.map(lambda case: per_round(options.program, case, cases[case][0]),
                          ["loop"] + wanted)
        loop = next(counts)
        for case, counted in zip(wanted, counts):
            operations, text = cases[case]
            good &= judge(case, text, (counted - loop) / operations, ceilings.get(case))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
