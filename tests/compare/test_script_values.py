#!/usr/bin/python3
"""Random scripts that make and convert values give the same replies on Kvik and on redis-server.

SEED=n runs that seed alone; KVIK_COMPARE_ROUNDS=n adds n seeds to the fixed ones.
"""
import os
import random
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "server")]

from compare import REFERENCE, Server  # noqa: E402
from process import TIME_SCALE  # noqa: E402
from raw import parse_at  # noqa: E402
from script_values import Scripts  # noqa: E402

SCRIPTS = 150


def seeds():
    if "SEED" in os.environ:
        return [int(os.environ["SEED"])]
    rounds = int(os.environ.get("KVIK_COMPARE_ROUNDS", "0"))
    return list(range(1, 13)) + [random.randrange(1 << 30) for _ in range(rounds)]


def is_same_double(ours, theirs):
    """The reference prints 17 digits, Kvik the fewest that say the same (differences.md)."""
    try:
        return float(ours) == float(theirs) and theirs == b"%.17g" % float(theirs)
    except (TypeError, ValueError):
        return False


def agree(ours, theirs):
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(agree, ours, theirs))
    if isinstance(ours, dict):
        return len(ours) == len(theirs) and \
            all(map(agree, (x for pair in ours.items() for x in pair),
                    (x for pair in theirs.items() for x in pair)))
    return ours == theirs or is_same_double(ours, theirs)


def same(ours, theirs):
    return ours == theirs or agree(parse_at(ours, 0)[0], parse_at(theirs, 0)[0])


@pytest.fixture(scope="module")
def servers():
    kvik, reference = Server(), Server(binary=REFERENCE)
    yield kvik, reference
    reference.stop()
    kvik.stop()


@pytest.mark.timeout(120 * TIME_SCALE)
@pytest.mark.parametrize("seed", seeds())
def test_scripts_convert_alike(servers, seed):
    scripts = Scripts(random.Random(seed))
    with servers[0].raw() as ours, servers[1].raw() as theirs:
        for conn in (ours, theirs):
            conn.cmd("FLUSHALL")
            conn.cmd("HELLO", "2" if seed % 2 else "3")
        for _ in range(SCRIPTS):
            text = scripts.script()
            for conn in (ours, theirs):
                conn.send_cmd("EVAL", text, "0")
            reply, wanted = ours.read_bytes(), theirs.read_bytes()
            assert same(reply, wanted), "%s\n  Kvik:  %r\n  Redis: %r" % (text, reply, wanted)


def test_the_comparison_tells_when_not():
    assert same(b"$18\r\n0.3333333333333333\r\n", b"$19\r\n0.33333333333333331\r\n")
    assert same(b"*1\r\n*2\r\n:1\r\n$3\r\n0.1\r\n", b"*1\r\n*2\r\n:1\r\n$19\r\n0.10000000000000001\r\n")
    assert not same(b"$3\r\n0.1\r\n", b"$3\r\n0.2\r\n")
    assert not same(b"$4\r\n1000\r\n", b"$3\r\n1e3\r\n")
    assert not same(b":1\r\n", b"$1\r\n1\r\n")
    assert not same(b"*1\r\n:1\r\n", b"*2\r\n:1\r\n:1\r\n")
