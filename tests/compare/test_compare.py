#!/usr/bin/python3
"""Random command sequences on Kvik and on redis-server 7.0.15 must give the same replies and content.

SEED=n runs that seed alone; KVIK_COMPARE_ROUNDS=n adds n seeds to the fixed ones. What differs on
purpose is in differences.json and explained in differences.md.
"""
import json
import os
import random
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from compare import (REFERENCE, Comparison, Differences, Server, check_seed,  # noqa: E402
                     known_commands, reference_version)
from events import EventComparison, event_commands  # noqa: E402
from generate import Generator, load_table  # noqa: E402
from process import TIME_SCALE  # noqa: E402

FIXED_SEEDS = list(range(1, 25))


def seeds():
    if "SEED" in os.environ:
        return [int(os.environ["SEED"])]
    rounds = int(os.environ.get("KVIK_COMPARE_ROUNDS", "0"))
    return FIXED_SEEDS + [random.randrange(1 << 30) for _ in range(rounds)]


@pytest.fixture(scope="module")
def servers():
    kvik, reference = Server(), Server(binary=REFERENCE)
    yield kvik, reference
    reference.stop()
    kvik.stop()


@pytest.fixture(scope="module")
def setting(servers):
    differences = Differences()
    commands = known_commands(load_table(), servers[1], differences)
    return Comparison(*servers, differences), commands, reference_version(servers[1])


@pytest.mark.timeout(120 * TIME_SCALE)
@pytest.mark.parametrize("seed", seeds())
def test_same_commands_same_answers(setting, seed):
    """Seeds alternate between RESP2 and RESP3, and between pipelines and single commands."""
    comparison, commands, newest = setting
    report = check_seed(comparison, commands, newest, seed, 2 + seed % 2, seed % 4 < 2)
    assert report is None, report


@pytest.mark.timeout(120 * TIME_SCALE)
@pytest.mark.parametrize("seed", [seed for seed in seeds() if seed <= 12 or seed not in FIXED_SEEDS])
def test_same_commands_same_events(servers, seed):
    differences = Differences()
    commands = event_commands(load_table(), servers[1], differences)
    comparison = EventComparison(*servers, differences)
    report = check_seed(comparison, commands, reference_version(servers[1]), seed, 2 + seed % 2,
                        False)
    for server in servers:
        with server.raw() as conn:
            conn.cmd("CONFIG", "SET", "notify-keyspace-events", "")
    assert report is None, report


@pytest.mark.timeout(120 * TIME_SCALE)
def test_every_command_alone(setting):
    """Forty lines of each command on a little content, so that none depends on luck."""
    comparison, commands, newest = setting
    generator = Generator(random.Random(7), commands, newest)
    fill = [("mset", [b"MSET", b"a", b"12", b"b", b"hello", b"c", b"3.5", b"k1", b"x" * 60]),
            ("expire", [b"EXPIRE", b"a", b"1000"])]
    for command in commands:
        lines = [(command.id, generator.line(command)) for _ in range(40)]
        sequence = [step for line in lines for step in fill + [line]]
        problem = comparison.problem(sequence, 2, True)
        assert problem is None, "%s: %s" % (command.id, problem)


@pytest.mark.timeout(120 * TIME_SCALE)
def test_wrong_number_of_arguments(setting):
    """Every command with 0 to 6 meaningless arguments more than its name.

    The number is large enough that a key which gets it as its time to live outlasts the comparison.
    """
    comparison, commands, _ = setting
    for command in commands:
        words = [word.encode() for word in command.words]
        sequence = [(command.id, words + [b"90000"] * count) for count in range(7)]
        problem = comparison.problem(sequence, 2, True)
        assert problem is None, "%s: %s" % (command.id, problem)


def test_shrinking_finds_the_culprit(setting):
    """The harness itself: a difference that is put in is found and reduced to its line."""
    comparison, commands, newest = setting

    class Spoiled(Comparison):
        def reply(self, conn, line):
            reply = super().reply(conn, line)
            spoil = conn.sock.getpeername()[1] == self.kvik.port and line[0] == b"ECHO"
            return reply.replace(b"needle", b"nadel") if spoil else reply

    spoiled = Spoiled(comparison.kvik, comparison.reference, comparison.differences)
    sequence = Generator(random.Random(3), commands, newest).sequence(60)
    sequence = [step for step in sequence if step[0] not in ("multi", "exec", "discard")]
    assert spoiled.problem(sequence, 2, True) is None
    sequence.insert(31, ("echo", [b"ECHO", b"needle"]))
    assert spoiled.problem(sequence, 2, True)
    assert spoiled.shrink(sequence, 2, True) == [("echo", [b"ECHO", b"needle"])]


def test_intended_differences_are_explained():
    """Each entry has a reason, and each intended difference of a reply has its paragraph."""
    text = (HERE / "differences.md").read_text()
    data = json.loads((HERE / "differences.json").read_text())
    for entry in data["skip"] + data["compare"] + data["events"]:
        assert len(entry["reason"]) > 5, entry
    for entry in data["replies"]:
        assert set(entry) - {"diverges"} == {"id", "command", "kvik", "reference"}, entry
        assert re.search(r"^## %s$" % re.escape(entry["id"]), text, re.MULTILINE), entry["id"]
